"""The official Python client, typed and dynamic, and kr8s, unchanged: they read discovery the old way, decode every
answer into types of their own, and split watches into lines themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import kr8s
import pytest
import yaml
from kr8s.asyncio.objects import ConfigMap as Kr8sConfigMap
from kr8s.asyncio.objects import Deployment as Kr8sDeployment
from kr8s.asyncio.objects import object_from_spec
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from .harness import Cluster
from .manifests import DEMO, WIDGET, WIDGETS

T = TypeVar("T")
ODD = "line\u2028separator\u0085next\x0bvertical\x1cfile é\U0001f600"


@pytest.fixture
def api(cluster: Cluster) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(cluster.kubeconfig) as made:
        yield made
        made.rest_client.pool_manager.clear()


@pytest.fixture
async def kr8s_api(cluster: Cluster) -> AsyncIterator[Any]:
    made = await kr8s.asyncio.api(kubeconfig=cluster.kubeconfig)
    yield made
    await made._session.aclose()  # it has no public way to close, and an open socket is a warning at the end


async def aside(work: Callable[[], T]) -> T:
    """The official client blocks; the server runs in this loop."""
    async with asyncio.timeout(120):
        return await asyncio.to_thread(work)


async def test_typed_objects_go_there_and_back(api: client.ApiClient) -> None:
    def work() -> None:
        core = client.CoreV1Api(api)
        made = core.create_namespaced_config_map(
            "default",
            client.V1ConfigMap(metadata=client.V1ObjectMeta(name="c", labels={"a": "b"}), data={"odd": ODD}),
        )
        assert made.data == {"odd": ODD} and made.metadata.creation_timestamp is not None
        core.patch_namespaced_config_map("c", "default", {"data": {"more": "1", "odd": None}})
        assert core.read_namespaced_config_map("c", "default").data == {"more": "1"}
        made.metadata.labels = {"a": "c"}
        with pytest.raises(ApiException) as stale:
            core.replace_namespaced_config_map("c", "default", made)
        assert (stale.value.status, stale.value.reason) == (409, "Conflict")
        assert [item.metadata.name for item in core.list_namespaced_config_map("default", label_selector="a=b").items]
        core.delete_namespaced_config_map("c", "default")
        with pytest.raises(ApiException) as missing:
            core.read_namespaced_config_map("c", "default")
        assert missing.value.status == 404
        assert core.list_node().items[0].status.conditions[0].type == "Ready"
        assert client.VersionApi(api).get_code().minor == "35"
        assert client.ApisApi(api).get_api_versions().groups

    await aside(work)


async def test_typed_workloads_reviews_and_tokens(api: client.ApiClient, cluster: Cluster) -> None:
    def work() -> None:
        utils.create_from_yaml(api, yaml_objects=list(yaml.safe_load_all(DEMO)))
        apps = client.AppsV1Api(api)
        apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 1}})
        assert apps.read_namespaced_deployment_scale("web", "default").spec.replicas == 1
        token = client.CoreV1Api(api).create_namespaced_service_account_token(
            "default", "default", client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        )
        assert token.status.token.count(".") == 2
        review = client.AuthorizationV1Api(api).create_self_subject_access_review(
            client.V1SelfSubjectAccessReview(
                spec=client.V1SelfSubjectAccessReviewSpec(
                    resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods", namespace="default")
                )
            )
        )
        assert review.status.allowed is True
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="nope"))
        with pytest.raises(ApiException) as missing:
            client.CoreV1Api(api).create_namespaced_pod_eviction("nope", "default", eviction)
        assert missing.value.status == 404

    await aside(work)
    await cluster.shell.run("kubectl rollout status deploy/web --timeout=100s")


async def test_typed_watch_tells_every_step(api: client.ApiClient) -> None:
    def work() -> list[tuple[str, Any]]:
        core = client.CoreV1Api(api)
        at = core.list_namespaced_config_map("default").metadata.resource_version
        core.create_namespaced_config_map("default", {"metadata": {"name": "w"}, "data": {"odd": ODD}})
        core.patch_namespaced_config_map("w", "default", {"data": {"odd": "plain"}})
        core.delete_namespaced_config_map("w", "default")
        stream = watch.Watch().stream(
            core.list_namespaced_config_map,
            "default",
            resource_version=at,
            field_selector="metadata.name=w",
            timeout_seconds=60,
        )
        heard = []
        for event in stream:
            heard.append((event["type"], event["object"].data["odd"]))
            if event["type"] == "DELETED":
                return heard
        raise AssertionError(f"the watch ended early: {heard}")

    assert await aside(work) == [("ADDED", ODD), ("MODIFIED", "plain"), ("DELETED", "plain")]


async def test_dynamic_client_discovers_and_applies(api: client.ApiClient) -> None:
    def work() -> None:
        found = dynamic.DynamicClient(api)
        crds = found.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
        crds.create(body=yaml.safe_load(WIDGETS))
        found.resources.invalidate_cache()
        widgets = found.resources.get(api_version="demo.io/v1", kind="Widget")
        body = yaml.safe_load(WIDGET)
        widgets.server_side_apply(body=body, namespace="default", field_manager="alice")
        body["spec"]["size"] = 4
        with pytest.raises(ConflictError):
            widgets.server_side_apply(body=body, namespace="default", field_manager="bob")
        widgets.server_side_apply(body=body, namespace="default", field_manager="bob", force_conflicts=True)
        assert widgets.get(name="w", namespace="default").spec.size == 4
        widgets.patch(
            name="w",
            namespace="default",
            body={"spec": {"size": 5}},
            content_type="application/merge-patch+json",
        )
        widgets.status.patch(
            name="w",
            namespace="default",
            body={"status": {"phase": "Big"}},
            content_type="application/merge-patch+json",
        )
        items = widgets.get(namespace="default").items
        assert [(item.spec.size, item.status.phase) for item in items] == [(5, "Big")]
        for event in widgets.watch(namespace="default", timeout=60):
            assert (event["type"], event["object"].metadata.name) == ("ADDED", "w")
            break
        widgets.delete(name="w", namespace="default")
        with pytest.raises(NotFoundError):
            widgets.get(name="w", namespace="default")

    await aside(work)


async def test_kr8s_reads_writes_and_watches(kr8s_api: Any) -> None:
    assert (await kr8s_api.version())["minor"] == "35"
    names = {entry["name"] for entry in await kr8s_api.api_resources()}
    assert {"pods", "deployments", "customresourcedefinitions"} <= names
    body = {"metadata": {"name": "k", "namespace": "default", "labels": {"a": "b"}}, "data": {"odd": ODD}}
    made = await Kr8sConfigMap(body, api=kr8s_api)
    await made.create()
    await made.patch({"data": {"more": "1"}})
    assert made.data == {"odd": ODD, "more": "1"}
    await made.label({"c": "d"})
    await made.annotate({"e": "f"})
    found = [item.name async for item in kr8s_api.get("configmaps", namespace="default", label_selector="a=b,c=d")]
    assert found == ["k"]

    async def follow() -> None:
        async for kind, obj in kr8s_api.watch("configmaps", namespace="default", label_selector="a=b"):
            heard.append((kind, obj.data))
            if kind == "ADDED":
                await made.patch({"data": {"odd": f"{ODD}!"}})
            elif kind == "MODIFIED":
                await made.delete()
            else:
                return

    heard: list[tuple[str, Any]] = []
    async with asyncio.timeout(120):
        await follow()
    assert [kind for kind, _ in heard] == ["ADDED", "MODIFIED", "DELETED"]
    assert heard[1][1]["odd"] == f"{ODD}!"
    assert not await made.exists()


async def test_kr8s_pages_scales_and_waits(cluster: Cluster, kr8s_api: Any) -> None:
    await asyncio.gather(
        *(
            cluster.client.create(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": f"p{number:03}", "namespace": "default", "labels": {"page": "yes"}},
                }
            )
            for number in range(230)
        )
    )
    found = [item.name async for item in kr8s_api.get("configmaps", namespace="default", label_selector="page=yes")]
    assert sorted(found) == [f"p{number:03}" for number in range(230)]
    manifest = next(iter(yaml.safe_load_all(DEMO))) | {"metadata": {"name": "web", "namespace": "default"}}
    web = await Kr8sDeployment(manifest, api=kr8s_api)
    await web.create()
    async with asyncio.timeout(120):
        await web.wait("condition=Available")
        await web.scale(1)
        assert web.replicas == 1
        pods = [pod async for pod in kr8s_api.get("pods", namespace="default", label_selector="app=web")]
        assert pods
        await web.delete()
        await web.wait("delete")


async def test_kr8s_uses_custom_resources(cluster: Cluster, kr8s_api: Any) -> None:
    await cluster.shell.run("kubectl apply -f -", stdin=WIDGETS)
    spec = yaml.safe_load(WIDGET)
    spec["metadata"]["namespace"] = "default"
    widget = object_from_spec(spec, api=kr8s_api, allow_unknown_type=True, _asyncio=True)
    await widget.create()
    await widget.patch({"status": {"phase": "Big"}}, subresource="status")
    await widget.refresh()
    assert widget.status.phase == "Big"
    listed = [item.name async for item in kr8s_api.get("widgets.demo.io", namespace="default")]
    assert listed == ["w"]

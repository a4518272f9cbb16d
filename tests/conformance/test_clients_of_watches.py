"""What clients build on watches: informers, kubectl's waits, a cache of the whole cluster, a leader's lease."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regional.kube.client import Client, Informer
from regional.kube.client.config import kubeconfig_transport

from .objects import Custom, config_map, deployment
from .servers import Cluster
from .test_watches import STREAMING, revision
from .wire import PATIENCE, Http, Obj, Shell

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OPENAPI = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.check(82)
async def test_an_informer_holds_what_the_server_holds(
    http: Http, cluster: Cluster, namespace: str, config_maps: str, tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig(namespace=namespace))
    client = Client(kubeconfig_transport(tmp_path / "kubeconfig"))
    informer = Informer(client, "v1", "ConfigMap", namespace)
    try:
        (await http.post(config_maps, config_map("before"))).ok(201)
        informer.start()
        async with asyncio.timeout(PATIENCE):
            await informer.synced()
        assert informer.get(namespace, "before") is not None
        (await http.post(config_maps, config_map("after", {"a": "1"}))).ok(201)
        (await http.delete(f"{config_maps}/before")).ok(200)
        async with asyncio.timeout(PATIENCE):
            while informer.get(namespace, "before") or not informer.get(namespace, "after"):
                await asyncio.sleep(0.02)
    finally:
        await informer.stop()
        await client.close()


@pytest.mark.check(82)
async def test_a_streamed_list_is_a_list(http: Http, config_maps: str) -> None:
    """What client-go's reflectors do: everything up to the annotated bookmark is the list."""
    for number in range(50):
        (await http.post(config_maps, config_map(f"c{number}"))).ok(201)
    held: dict[str, int] = {}
    async with http.watch(f"{config_maps}?{STREAMING}") as watch:
        while (event := await watch.next())["type"] == "ADDED":
            held[event["object"]["metadata"]["name"]] = revision(event["object"])
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    listed = (await http.get(config_maps)).ok(200)
    assert held == {item["metadata"]["name"]: revision(item) for item in listed["items"]}
    assert revision(event["object"]) >= max(held.values())


@pytest.mark.check(83)
async def test_who_is_refused_a_streamed_list_lists_and_watches(http: Http, config_maps: str) -> None:
    """A client that forgets the match is refused before any event, and goes on in the old way."""
    (await http.post(config_maps, config_map("one"))).ok(201)
    refused = await http.get(f"{config_maps}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true")
    assert refused.status == 422
    listed = (await http.get(f"{config_maps}?limit=500&resourceVersion=0")).ok(200)
    since = listed["metadata"]["resourceVersion"]
    async with http.watch(f"{config_maps}?resourceVersion={since}&allowWatchBookmarks=true") as watch:
        (await http.post(config_maps, config_map("two"))).ok(201)
        while (event := await watch.next())["object"]["metadata"].get("name") != "two":
            pass  # a list of any revision may be older than `one`
        assert event["type"] == "ADDED"


@pytest.mark.check(85)
async def test_kubectl_watches_and_waits(http: Http, config_maps: str, deployments: str, kubectl: Shell) -> None:
    (await http.post(config_maps, config_map("x", {"k": "1"}))).ok(201)
    waiting = asyncio.create_task(kubectl("wait configmap/x --for=jsonpath='{.data.k}'=2 --timeout=90s"))
    watching = asyncio.create_task(
        # Ends by itself as soon as it has seen what it waits for.
        kubectl.run("kubectl get configmap -w -o 'jsonpath={.metadata.name}={.data.k}{\"\\n\"}' | grep -m1 x=2")
    )
    (await http.patch(f"{config_maps}/x", {"data": {"k": "2"}})).ok(200)
    assert "configmap/x condition met" in await waiting
    # The pipe is only noticed with the next line that kubectl prints.
    while not watching.done():
        (
            await http.patch(
                f"{config_maps}/x", {"metadata": {"labels": {"n": str(asyncio.get_running_loop().time())}}}
            )
        ).ok()
        await asyncio.sleep(0.5)
    assert "x=2" in watching.result()
    (await http.post(deployments, deployment("web"))).ok(201)
    assert 'deployment "web" successfully rolled out' in await kubectl("rollout status deploy/web --timeout=90s")


CHART = {
    "Chart.yaml": "apiVersion: v2\nname: demo\nversion: 1.0.0\n",
    "values.yaml": "size: one\n",
    "templates/cm.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-cm}
data:
  size: {{ .Values.size }}
  found: {{ (lookup "v1" "ConfigMap" .Release.Namespace "seen").data.here | default "no" | quote }}
""",
}


@pytest.mark.check(113)
async def test_helm_installs_upgrades_rolls_back_and_removes(http: Http, config_maps: str, kubectl: Shell) -> None:
    for name, text in CHART.items():
        path = kubectl.folder / "demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (await http.post(config_maps, config_map("seen", {"here": "yes"}))).ok(201)
    await kubectl.run("helm install r1 ./demo")
    made = (await http.get(f"{config_maps}/r1-cm")).ok(200)
    assert made["data"] == {"size": "one", "found": "yes"}
    assert [entry["operation"] for entry in made["metadata"]["managedFields"]] == ["Apply"]
    await kubectl.run("helm upgrade r1 ./demo --set size=two")
    assert (await http.get(f"{config_maps}/r1-cm")).ok(200)["data"]["size"] == "two"
    await kubectl.run("helm rollback r1 1")
    assert (await http.get(f"{config_maps}/r1-cm")).ok(200)["data"]["size"] == "one"
    await kubectl.run("helm uninstall r1")
    assert (await http.get(f"{config_maps}/r1-cm")).status == 404


@pytest.mark.check(127)
async def test_a_cache_of_the_whole_cluster_fills_and_follows(http: Http, widgets: Custom, config_maps: str) -> None:
    """As Argo CD does it: OpenAPI as protobuf, every kind that can be listed and watched, its pages, its watch."""
    assert (await http.get("/openapi/v2", accept=OPENAPI)).status == 200
    paths = [path async for path in _watchable(http)]
    assert {"/api/v1/configmaps", "/apis/apps/v1/deployments"} <= set(paths)
    for path in paths:
        # Kinds of tests before this one may be on their way out: discovered a little longer than they are served.
        leaving = ".demo.io/" in path and widgets.group not in path
        token, pages = "", []
        while True:
            answer = await http.get(f"{path}?limit=500" + (f"&continue={token}" if token else ""))
            if answer.status == 404 and leaving:
                break
            page = answer.ok(200)
            pages.append(page["metadata"]["resourceVersion"])
            token = page["metadata"].get("continue", "")
            if not token:
                break
        if not pages:
            continue
        assert len(set(pages)) == 1
        async with http.watch(
            f"{path}?resourceVersion={pages[0]}&allowWatchBookmarks=true&timeoutSeconds=600"
        ) as watch:
            assert watch.status == 200 or (watch.status == 404 and leaving), path
            if path == "/api/v1/configmaps":
                (await http.post(config_maps, config_map("seen"))).ok(201)
                while (event := await watch.next())["object"]["metadata"].get("name") != "seen":
                    pass
                assert event["type"] == "ADDED"


async def _watchable(http: Http) -> Any:
    for root in ("/api", "/apis"):
        for group in (await http.get(root, accept=V2)).ok(200)["items"]:
            name = group["metadata"].get("name", "")
            version = group["versions"][0]
            if version.get("freshness") != "Current":
                continue
            for resource in version.get("resources") or ():
                if {"list", "watch"} <= set(resource["verbs"]):
                    base = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                    yield f"{base}/{resource['resource']}"


def lease(holder: str, transitions: int, **metadata: str) -> Obj:
    moment = "2026-01-01T00:00:00.000000Z"
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader"} | metadata,
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "acquireTime": moment,
            "renewTime": moment,
            "leaseTransitions": transitions,
        },
    }


@pytest.mark.check(128)
async def test_one_of_many_becomes_leader(http: Http, namespace: str) -> None:
    """Eight candidates race for a lease by compare-and-swap, term after term; each term has one winner."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    first = await asyncio.gather(*(http.post(path, lease(f"c{number}", 0)) for number in range(8)))
    assert sorted(answer.status for answer in first) == [201] + [409] * 7
    for term in range(1, 4):
        held = (await http.get(f"{path}/leader")).ok(200)
        seen = held["metadata"]["resourceVersion"]
        tried = await asyncio.gather(
            *(http.put(f"{path}/leader", lease(f"c{number}", term, resourceVersion=seen)) for number in range(8))
        )
        assert sorted(answer.status for answer in tried) == [200] + [409] * 7
        winner = next(answer.body for answer in tried if answer.status == 200)
        now = (await http.get(f"{path}/leader")).ok(200)
        assert now == winner and now["spec"]["leaseTransitions"] == term
        lost = next(answer for answer in tried if answer.status == 409)
        lost.refused(
            409,
            "Conflict",
            'Operation cannot be fulfilled on leases.coordination.k8s.io "leader": the object has been modified; '
            "please apply your changes to the latest version and try again",
            {"name": "leader", "group": "coordination.k8s.io", "kind": "leases"},
        )

"""A HostedCluster and a pull secret become a control plane that answers, and the objects say what happened."""

from __future__ import annotations

import asyncio
import uuid

from regional.kube.client import Client
from regional.kube.objects import (
    Obj,
    annotations_of,
    condition_of,
    finalizers_of,
    generation_of,
    is_true,
    labels_of,
    name_of,
    owners_of,
    spec_of,
    status_of,
    uid_of,
    version_of,
)
from tests.hypershift.harness import HYPERSHIFT, RELEASE, Operated, eventually, hosted_cluster, pull_secret

FINALIZER = "hypershift.openshift.io/finalizer"


async def test_the_kubeconfig_works_from_outside(mc: Operated) -> None:
    await mc.create("shop", "outside")
    await mc.available("shop", "outside")
    await mc.create_pool("workers", "outside", "shop", 2)
    await mc.pool_ready("workers", "outside", 2)
    seen = await mc.guest_kubectl("shop", "outside", "get", "nodes,ns,clusterversion", "-o", "name")
    assert seen.count("node/workers-") == 2
    assert "namespace/openshift-kube-apiserver\n" in seen
    assert "clusterversion.config.openshift.io/version\n" in seen
    assert await mc.guest_kubectl("shop", "outside", "auth", "can-i", "*", "*", "--all-namespaces") == "yes\n"
    await mc.guest_kubectl("shop", "outside", "create", "configmap", "mine", "--from-literal=a=b")
    operators = await mc.guest_kubectl("shop", "outside", "get", "clusteroperators", "-o", "name")
    assert "clusteroperator.config.openshift.io/kube-apiserver\n" in operators


async def test_what_a_new_cluster_is_given(mc: Operated) -> None:
    await mc.create("ids", "given")
    hosted = await mc.available("ids", "given")
    uuid.UUID(spec_of(hosted)["clusterID"])
    infra = spec_of(hosted)["infraID"]
    assert infra.startswith("ids-") and len(infra) == len("ids-") + 5
    assert FINALIZER in finalizers_of(hosted)
    namespace = await mc.client.get("v1", "Namespace", "given-ids")
    assert labels_of(namespace)["hypershift.openshift.io/hosted-control-plane"] == "true"
    plane = await mc.client.get(HYPERSHIFT, "HostedControlPlane", "ids", "given-ids")
    assert annotations_of(plane)["hypershift.openshift.io/cluster"] == "given/ids"
    assert status_of(plane)["ready"] is True
    service = await mc.client.get("v1", "Service", "kube-apiserver", "given-ids")
    assert status_of(hosted)["controlPlaneEndpoint"] == {"host": spec_of(service)["clusterIP"], "port": 6443}


async def test_the_customer_gets_secrets_of_the_clusters_own(mc: Operated) -> None:
    await mc.create("keys", "customer")
    hosted = await mc.available("keys", "customer")
    assert status_of(hosted)["kubeconfig"] == {"name": "keys-admin-kubeconfig"}
    assert status_of(hosted)["kubeadminPassword"] == {"name": "keys-kubeadmin-password"}
    for name, key in (("keys-admin-kubeconfig", "kubeconfig"), ("keys-kubeadmin-password", "password")):
        live = await mc.client.get("v1", "Secret", name, "customer")
        assert list(live["data"]) == [key]
        assert [owner["uid"] for owner in owners_of(live)] == [uid_of(hosted)]
    password = (await mc.secret("keys-kubeadmin-password", "customer"))["password"]
    assert [len(group) for group in password.split("-")] == [5, 5, 5, 5]
    assert (await mc.secret("pull-secret", "customer-keys"))[".dockerconfigjson"].startswith("{")
    kept = {name_of(live) for live in await mc.client.list("v1", "Secret", "customer-keys")}
    assert {"admin-kubeconfig", "root-ca", "sa-signing-key", "kas-server-crt", "system-admin-signer"} <= kept


async def test_a_lost_kubeconfig_comes_back_and_is_the_same(mc: Operated) -> None:
    await mc.create("lost", "copies")
    await mc.available("lost", "copies")
    before = await mc.secret("lost-admin-kubeconfig", "copies")
    await mc.client.delete("v1", "Secret", "lost-admin-kubeconfig", "copies")
    await eventually(lambda: mc.client.get_or_none("v1", "Secret", "lost-admin-kubeconfig", "copies"))
    assert await mc.secret("lost-admin-kubeconfig", "copies") == before


async def test_a_cluster_with_identity_providers_has_no_kubeadmin(mc: Operated) -> None:
    await mc.create("idp", "idp", configuration={"oauth": {"identityProviders": []}})
    hosted = await mc.available("idp", "idp")
    assert "kubeadminPassword" not in status_of(hosted)
    assert await mc.client.get_or_none("v1", "Secret", "idp-kubeadmin-password", "idp") is None


async def test_conditions_and_versions_of_a_cluster_without_and_with_nodes(mc: Operated) -> None:
    await mc.create("steps", "versions")
    hosted = await mc.available("steps", "versions")
    for kind in ("InfrastructureReady", "EtcdAvailable", "KubeAPIServerAvailable", "ValidConfiguration"):
        assert is_true(hosted, kind), kind
    for kind in ("SupportedHostedCluster", "ValidReleaseImage", "ReconciliationActive", "ReconciliationSucceeded"):
        assert is_true(hosted, kind), kind
    assert (condition_of(hosted, "EtcdAvailable") or {})["reason"] == "QuorumAvailable"
    hosted = await mc.told("HostedCluster", "steps", "versions", "Progressing", "False", "AsExpected")
    assert (condition_of(hosted, "DataPlaneConnectionAvailable") or {})["reason"] == "NoWorkerNodesAvailable"
    assert status_of(hosted)["version"]["history"][0]["state"] == "Partial"
    plane_history = status_of(hosted)["controlPlaneVersion"]["history"]
    assert [(entry["state"], entry["version"], entry["image"]) for entry in plane_history] == [
        ("Completed", "4.21.3", RELEASE)
    ]
    await mc.create_pool("workers", "versions", "steps", 1)

    async def complete() -> Obj | None:
        live = await mc.hosted("steps", "versions")
        return live if live and status_of(live)["version"]["history"][0]["state"] == "Completed" else None

    hosted = await eventually(complete)
    entry = status_of(hosted)["version"]["history"][0]
    assert entry["version"] == "4.21.3" and entry["completionTime"]
    await mc.told("HostedCluster", "steps", "versions", "DataPlaneConnectionAvailable", "True")


async def test_every_condition_says_which_generation_it_is_about(mc: Operated) -> None:
    await mc.create("generations", "observed")
    hosted = await mc.available("generations", "observed")
    conditions = status_of(hosted)["conditions"]
    assert {condition["observedGeneration"] for condition in conditions} == {generation_of(hosted)}
    assert all(condition["reason"] and condition["lastTransitionTime"] for condition in conditions)


async def test_components_are_available_at_the_release(mc: Operated) -> None:
    await mc.create("parts", "components")
    await mc.available("parts", "components")

    async def complete() -> list[Obj] | None:
        found = await mc.client.list(HYPERSHIFT, "ControlPlaneComponent", "components-parts")
        return found if found and all(is_true(part, "RolloutComplete") for part in found) else None

    parts = await eventually(complete)
    assert {"etcd", "kube-apiserver", "kube-controller-manager"} <= {name_of(part) for part in parts}
    assert {status_of(part)["version"] for part in parts} == {"4.21.3"}
    assert all(is_true(part, "Available") for part in parts)


async def test_it_is_never_available_before_its_kubeconfig_exists(mc: Operated) -> None:
    states: list[tuple[bool, bool, bool, bool]] = []

    async def follow(version: str) -> None:
        async for _, hosted in mc.client.watch(HYPERSHIFT, "HostedCluster", "order", resource_version=version):
            etcd, api, whole = (is_true(hosted, f"{k}Available") for k in ("Etcd", "KubeAPIServer", ""))
            states.append((etcd, api, whole, bool(status_of(hosted).get("kubeconfig"))))

    made = await mc.create("order", "order")
    watching = asyncio.create_task(follow(version_of(made)))  # each change since then, whenever it is asked for
    await mc.available("order", "order")
    await eventually(lambda: _is(bool(states and states[-1][2])))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert states[0][2] is False
    assert all(etcd and api and kubeconfig for etcd, api, whole, kubeconfig in states if whole)


async def _is(value: bool) -> bool:
    return value


async def test_a_steady_cluster_is_not_written_to(mc: Operated) -> None:
    await mc.create("steady", "steady")
    await mc.available("steady", "steady")
    await mc.settled("steady", "steady")
    pods = [version_of(await mc.api_pod("steady", "steady"))]
    for look in range(6):
        touched = await mc.patch("HostedCluster", "steady", "steady", {"metadata": {"labels": {"look": str(look)}}})
        await asyncio.sleep(0.2)
    after = await mc.hosted("steady", "steady")
    assert after is not None and version_of(after) == version_of(touched)
    assert [version_of(await mc.api_pod("steady", "steady"))] == pods


async def test_a_pull_secret_may_come_after_its_cluster(mc: Operated) -> None:
    await mc.namespace("late")
    await mc.client.create(hosted_cluster("late", "late"))
    hosted = await mc.told("HostedCluster", "late", "late", "ValidReleaseImage", "False", "SecretNotFound")
    assert (condition_of(hosted, "Progressing") or {})["reason"] == "Blocked"
    assert "pull-secret" in (condition_of(hosted, "Available") or {})["message"]
    assert await mc.client.get_or_none("v1", "Namespace", "late-late") is None
    await mc.client.create(pull_secret("late"))
    await mc.available("late", "late")


async def test_two_clusters_of_one_name_do_not_know_each_other(mc: Operated) -> None:
    await asyncio.gather(mc.create("twin", "left"), mc.create("twin", "right"))
    left, right = await asyncio.gather(mc.available("twin", "left"), mc.available("twin", "right"))
    assert status_of(left)["controlPlaneEndpoint"] != status_of(right)["controlPlaneEndpoint"]
    await mc.guest_kubectl("twin", "left", "create", "namespace", "only-here")
    assert "only-here" not in await mc.guest_kubectl("twin", "right", "get", "ns", "-o", "name")
    crossed = (await mc.secret("twin-admin-kubeconfig", "left"))["kubeconfig"].replace(
        status_of(left)["controlPlaneEndpoint"]["host"], status_of(right)["controlPlaneEndpoint"]["host"]
    )
    file = mc.cluster.region.root / "crossed.kubeconfig"
    file.write_text(crossed)
    async with Client.from_kubeconfig(file) as client:
        answered = await eventually(lambda: _refused(client))
    assert "certificate" in answered.lower()
    await mc.delete("twin", "left")
    await mc.gone("twin", "left")
    assert "default" in await mc.guest_kubectl("twin", "right", "get", "ns", "-o", "name")


async def _refused(client: Client) -> str:
    try:
        await client.list("v1", "Namespace")
    except Exception as error:
        return str(error)
    raise AssertionError("a stranger was let in")


async def test_ten_at_once_all_come_up(mc: Operated) -> None:
    await mc.namespace("many")
    await mc.client.create(pull_secret("many"))
    names = [f"c{number}" for number in range(10)]
    await asyncio.gather(*(mc.client.create(hosted_cluster(name, "many")) for name in names))
    clusters = await asyncio.gather(*(mc.available(name, "many") for name in names))
    assert len({status_of(cluster)["controlPlaneEndpoint"]["host"] for cluster in clusters}) == 10
    await asyncio.gather(*(mc.delete(name, "many") for name in names))
    await asyncio.gather(*(mc.gone(name, "many") for name in names))


async def test_a_request_can_be_followed_through_the_log(mc: Operated) -> None:
    request = "req-7f3a"
    await mc.create("traced", "traced", annotations={"regional.io/request-id": request})
    hosted = await mc.available("traced", "traced")

    async def span() -> Obj | None:
        lines = [line for line in await mc.log_lines() if line.get("request_id") == request]
        return next((line for line in lines if line.get("span") == "hypershift.control_plane"), None)

    line = await eventually(span)
    assert line["resource"] == spec_of(hosted)["clusterID"]
    assert line["ms"] > 0
    namespace = await mc.client.get("v1", "Namespace", "traced-traced")
    assert annotations_of(namespace)["regional.io/request-id"] == request
    said = [line["msg"] for line in await mc.log_lines() if line.get("request_id") == request]
    assert "hosted cluster accepted" in said


async def test_no_key_and_no_password_reaches_the_log(mc: Operated) -> None:
    await mc.create("quiet", "quiet")
    await mc.available("quiet", "quiet")
    password = (await mc.secret("quiet-kubeadmin-password", "quiet"))["password"]
    text = str(await mc.log_lines())
    assert password not in text
    assert "PRIVATE KEY" not in text and "dTpw" not in text


async def test_pausing_stops_changes_and_goes_on_by_itself(mc: Operated) -> None:
    await mc.create("nap", "paused")
    await mc.available("nap", "paused")
    newer = RELEASE.replace("4.21.3", "4.21.9")
    await mc.patch("HostedCluster", "nap", "paused", {"spec": {"pausedUntil": "true", "release": {"image": newer}}})
    hosted = await mc.told("HostedCluster", "nap", "paused", "ReconciliationActive", "False", "ReconciliationPaused")
    plane = await mc.client.get(HYPERSHIFT, "HostedControlPlane", "nap", "paused-nap")
    assert spec_of(plane)["pausedUntil"] == "true"
    history = status_of(hosted)["controlPlaneVersion"]["history"]
    assert [entry["image"] for entry in history] == [RELEASE], "nothing of the new release was carried out"
    pod = await mc.api_pod("nap", "paused")
    annotations = {"hypershift.openshift.io/restart-date": "today"}
    await mc.patch("HostedCluster", "nap", "paused", {"metadata": {"annotations": annotations}})
    await asyncio.sleep(0.5)
    assert uid_of(await mc.api_pod("nap", "paused")) == uid_of(pod)
    await mc.patch("HostedCluster", "nap", "paused", {"spec": {"pausedUntil": None}})

    async def restarted() -> bool:
        return uid_of(await mc.api_pod("nap", "paused")) != uid_of(pod)

    await eventually(restarted)
    await mc.available("nap", "paused")
    plane = await mc.client.get(HYPERSHIFT, "HostedControlPlane", "nap", "paused-nap")
    assert "pausedUntil" not in spec_of(plane)

"""StatefulSets keep names and order; DaemonSets keep one pod on each node."""

from __future__ import annotations

from typing import Any

from regional.kube.client import Informer
from regional.kube.objects import Obj, is_deleting, is_true, name_of, spec_of, status_of
from tests.kube_controllers.harness import Cluster, Kubelet, eventually


def owner(kind: str, image: str = "app:1", **spec: Any) -> Obj:
    labels = {"app": "it"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "it", "namespace": "t"},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


async def status(cluster: Cluster, kind: str) -> Obj:
    return status_of(await cluster.client.get("apps/v1", kind, "it", "t"))


async def set_image(cluster: Cluster, kind: str, image: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    await cluster.client.patch("apps/v1", kind, "it", "t", patch, type="strategic")


async def names(cluster: Cluster) -> list[str]:
    return sorted(name_of(pod) for pod in await cluster.pods("t"))


async def test_a_statefulset_starts_in_order_and_shrinks_from_the_end(cluster: Cluster) -> None:
    await cluster.namespace("t")
    too_early: list[str] = []

    def check(kind: str, pod: Obj) -> None:
        position = int(name_of(pod)[-1])
        before = pods.get("t", f"it-{position - 1}")
        if kind == "ADDED" and position and (before is None or not is_true(before, "Ready")):
            too_early.append(name_of(pod))

    pods = Informer(cluster.client, "v1", "Pod", "t", handler=check)
    pods.start()
    await pods.synced()
    await cluster.client.create(owner("StatefulSet", replicas=3, serviceName="it"))

    async def up() -> bool:
        now = await status(cluster, "StatefulSet")
        return bool(now.get("availableReplicas") == 3 and now["currentRevision"] == now["updateRevision"])

    await eventually(up)
    assert await names(cluster) == ["it-0", "it-1", "it-2"]
    assert not too_early
    await pods.stop()
    await cluster.client.patch("apps/v1", "StatefulSet", "it", "t", {"spec": {"replicas": 1}})

    async def small() -> bool:
        return await names(cluster) == ["it-0"]

    await eventually(small)


async def test_a_statefulset_replaces_each_pod_under_its_name(cluster: Cluster) -> None:
    await cluster.namespace("t")
    claims = [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    await cluster.client.create(owner("StatefulSet", replicas=2, serviceName="it", volumeClaimTemplates=claims))

    async def complete() -> bool:
        now = await status(cluster, "StatefulSet")
        return bool(
            now.get("readyReplicas") == now.get("updatedReplicas") == 2
            and now["currentRevision"] == now["updateRevision"]
        )

    await eventually(complete)
    first = (await status(cluster, "StatefulSet"))["updateRevision"]
    await set_image(cluster, "StatefulSet", "app:2")

    async def renewed() -> bool:
        now = await status(cluster, "StatefulSet")
        return await complete() and now["updateRevision"] != first

    await eventually(renewed)
    pods = await cluster.pods("t")
    assert {spec_of(pod)["containers"][0]["image"] for pod in pods} == {"app:2"}
    assert await names(cluster) == ["it-0", "it-1"]
    found = await cluster.client.list("v1", "PersistentVolumeClaim", "t")
    assert sorted(name_of(claim) for claim in found) == ["data-it-0", "data-it-1"]


async def test_a_statefulset_waits_for_a_pod_that_takes_its_time_to_end(cluster: Cluster) -> None:
    """Its name is free only then; a controller that believes the pod gone too early never makes the next one."""
    await cluster.namespace("t")
    await cluster.client.create(owner("StatefulSet", replicas=1, serviceName="it", podManagementPolicy="Parallel"))

    async def up() -> bool:
        return (await status(cluster, "StatefulSet")).get("readyReplicas") == 1

    await eventually(up)
    cluster.kubelet.lets_go = lambda pod: False
    await set_image(cluster, "StatefulSet", "app:2")

    async def ending() -> bool:
        return any(is_deleting(pod) for pod in await cluster.client.list("v1", "Pod", "t"))

    await eventually(ending)
    await cluster.client.patch("apps/v1", "StatefulSet", "it", "t", {"metadata": {"labels": {"look": "again"}}})
    cluster.kubelet.lets_go = lambda pod: True
    cluster.kubelet.recheck()

    async def renewed() -> bool:
        pods = await cluster.pods("t")
        return [spec_of(pod)["containers"][0]["image"] for pod in pods if is_true(pod, "Ready")] == ["app:2"]

    await eventually(renewed)


async def test_a_daemonset_is_on_every_node(cluster: Cluster) -> None:
    await cluster.namespace("t")
    second = Kubelet(cluster.api.client("kubelet"), node="node-2")
    await second.start()
    await cluster.client.create(owner("DaemonSet"))

    async def everywhere() -> bool:
        now = await status(cluster, "DaemonSet")
        homes = sorted(spec_of(pod)["nodeName"] for pod in await cluster.pods("t"))
        return homes == ["node-1", "node-2"] and now.get("numberAvailable") == 2

    await eventually(everywhere)
    await set_image(cluster, "DaemonSet", "app:2")

    async def renewed() -> bool:
        images = {spec_of(pod)["containers"][0]["image"] for pod in await cluster.pods("t")}
        return images == {"app:2"} and await everywhere()

    await eventually(renewed)
    await second.stop()

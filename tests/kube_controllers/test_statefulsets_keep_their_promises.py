"""What a StatefulSet promises beyond names and order: a partition, a say in replacement, claims that go or stay."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import Obj, labels_of, name_of, owners_of, spec_of, status_of
from tests.kube_controllers.harness import Cluster, eventually
from tests.kube_controllers.test_named_and_placed_pods import names, owner, set_image, status

CLAIMS = [
    {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]


async def made(cluster: Cluster, **spec: Any) -> None:
    await cluster.namespace("t")
    await cluster.client.create(owner("StatefulSet", **({"replicas": 2, "serviceName": "it"} | spec)))
    await ready(cluster, int(spec.get("replicas", 2)))


async def ready(cluster: Cluster, count: int) -> None:
    async def check() -> bool:
        now = await status(cluster, "StatefulSet")
        return bool(now.get("readyReplicas", 0) == now.get("replicas") == now.get("availableReplicas") == count)

    await eventually(check, f"{count} ready", seconds=60)


async def images(cluster: Cluster) -> dict[str, str]:
    return {name_of(pod): spec_of(pod)["containers"][0]["image"] for pod in await cluster.pods("t")}


async def seen(cluster: Cluster, wanted: dict[str, str]) -> None:
    async def check() -> bool:
        return await images(cluster) == wanted

    await eventually(check, str(wanted), seconds=60)


async def test_below_the_partition_pods_keep_and_regain_the_old_template(cluster: Cluster) -> None:
    await made(cluster, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
    await set_image(cluster, "StatefulSet", "app:2")
    await seen(cluster, {"it-0": "app:1", "it-1": "app:2"})
    await cluster.client.delete("v1", "Pod", "it-0", "t")
    await seen(cluster, {"it-0": "app:1", "it-1": "app:2"})
    now = await status(cluster, "StatefulSet")
    assert now["currentRevision"] != now["updateRevision"]
    await cluster.client.patch(
        "apps/v1", "StatefulSet", "it", "t", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    )
    await seen(cluster, {"it-0": "app:2", "it-1": "app:2"})

    async def complete() -> bool:
        now = await status(cluster, "StatefulSet")
        return bool(now["currentRevision"] == now["updateRevision"] and now.get("currentReplicas") == 2)

    await eventually(complete, seconds=60)


async def test_on_delete_waits_for_somebody_to_delete(cluster: Cluster) -> None:
    await made(cluster, updateStrategy={"type": "OnDelete"})
    await set_image(cluster, "StatefulSet", "app:2")

    async def observed() -> bool:
        obj = await cluster.client.get("apps/v1", "StatefulSet", "it", "t")
        return bool(status_of(obj).get("observedGeneration") == obj["metadata"]["generation"])

    await eventually(observed, seconds=60)
    assert set((await images(cluster)).values()) == {"app:1"}
    await cluster.client.delete("v1", "Pod", "it-0", "t")
    await seen(cluster, {"it-0": "app:2", "it-1": "app:1"})


async def test_a_template_that_comes_back_is_the_old_revision_with_a_new_number(cluster: Cluster) -> None:
    await made(cluster, replicas=1)
    for image in ("app:2", "app:1"):
        await set_image(cluster, "StatefulSet", image)
        await seen(cluster, {"it-0": image})
    found = await cluster.client.list("apps/v1", "ControllerRevision", "t")
    assert sorted(int(revision["revision"]) for revision in found) == [2, 3]


async def test_a_failed_pod_is_replaced_under_its_name(cluster: Cluster) -> None:
    await made(cluster, replicas=1)
    first = (await cluster.pods("t"))[0]
    cluster.kubelet.finish = lambda pod: "Failed" if pod["metadata"]["uid"] == first["metadata"]["uid"] else ""
    cluster.kubelet.recheck()

    async def another() -> bool:
        return [pod["metadata"]["uid"] for pod in await cluster.pods("t")] not in ([first["metadata"]["uid"]], [])

    await eventually(another, seconds=60)
    assert await names(cluster) == ["it-0"]


@pytest.mark.parametrize("scaled", ["Retain", "Delete"])
async def test_claims_of_pods_that_are_scaled_away(cluster: Cluster, scaled: str) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": "Retain"}
    await made(cluster, volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=policy)
    await cluster.client.patch("apps/v1", "StatefulSet", "it", "t", {"spec": {"replicas": 1}})
    await ready(cluster, 1)
    wanted = ["data-it-0"] if scaled == "Delete" else ["data-it-0", "data-it-1"]

    async def settled() -> bool:
        claims = [
            claim
            for claim in await cluster.client.list("v1", "PersistentVolumeClaim", "t")
            if not claim["metadata"].get("deletionTimestamp")
        ]
        return sorted(map(name_of, claims)) == wanted and not any(map(owners_of, claims))

    await eventually(settled, seconds=60)


async def test_claims_that_go_with_the_set_are_owned_by_it(cluster: Cluster) -> None:
    policy = {"whenScaled": "Retain", "whenDeleted": "Delete"}
    await made(cluster, volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=policy)
    claims = await cluster.client.list("v1", "PersistentVolumeClaim", "t")
    assert [[o["kind"] for o in owners_of(claim)] for claim in claims] == [["StatefulSet"], ["StatefulSet"]]


async def test_the_pods_of_a_set_that_was_orphaned_are_taken_in_again(cluster: Cluster) -> None:
    await made(cluster)
    before = {name_of(pod): pod["metadata"]["uid"] for pod in await cluster.pods("t")}
    await cluster.client.delete("apps/v1", "StatefulSet", "it", "t", propagation="Orphan")

    async def free() -> bool:
        gone = await cluster.client.get_or_none("apps/v1", "StatefulSet", "it", "t") is None
        return gone and not any(map(owners_of, await cluster.pods("t")))

    await eventually(free, seconds=60)
    await cluster.client.create(owner("StatefulSet", replicas=2, serviceName="it"))
    await ready(cluster, 2)
    assert {name_of(pod): pod["metadata"]["uid"] for pod in await cluster.pods("t")} == before
    revisions: list[Obj] = await cluster.client.list("apps/v1", "ControllerRevision", "t")
    assert len(revisions) == 1
    assert {labels_of(pod)["controller-revision-hash"] for pod in await cluster.pods("t")} == {name_of(revisions[0])}


async def test_as_many_are_replaced_at_once_as_may_be_away(cluster: Cluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    await made(cluster, replicas=4, podManagementPolicy="Parallel", updateStrategy=strategy)
    cluster.kubelet.healthy = lambda pod: spec_of(pod)["containers"][0]["image"] == "app:1"
    await set_image(cluster, "StatefulSet", "app:2")
    stuck = {"it-0": "app:1", "it-1": "app:1", "it-2": "app:2", "it-3": "app:2"}
    await seen(cluster, stuck)

    async def told() -> bool:
        now = await status(cluster, "StatefulSet")
        return bool(now.get("updatedReplicas") == 2 and now.get("readyReplicas") == 2)

    await eventually(told, seconds=60)
    assert await images(cluster) == stuck
    cluster.kubelet.healthy = lambda pod: True
    cluster.kubelet.recheck()
    await seen(cluster, dict.fromkeys(stuck, "app:2"))

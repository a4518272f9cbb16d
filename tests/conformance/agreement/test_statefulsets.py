"""StatefulSets end as the real controllers leave them."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import is_true, name_of, status_of

from ..stage import Stage
from .plays import ends_as, image_of, set_image, workload

pytestmark = pytest.mark.xdist_group("controllers-agree")


CLAIMS = [
    {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]


async def stateful(stage: Stage, count: int = 2, **spec: Any) -> None:
    await stage.create(workload("StatefulSet", **({"replicas": count, "serviceName": "it"} | spec)))
    await all_ready(stage, count)


async def all_ready(stage: Stage, count: int) -> None:
    async def check() -> bool:
        obj = await stage.get("apps/v1", "StatefulSet", "it")
        status = status_of(obj)
        current = status.get("observedGeneration") == obj["metadata"]["generation"]
        return bool(current and status.get("readyReplicas", 0) == status.get("replicas") == count)

    await stage.until(check, f"{count} ready")


async def images(stage: Stage, wanted: dict[str, str]) -> None:
    async def check() -> bool:
        pods = await stage.pods()
        return {name_of(pod): image_of(pod) for pod in pods if is_true(pod, "Ready")} == wanted

    await stage.until(check, str(wanted))


async def test_a_statefulset_starts_and_is_updated(stage: Stage) -> None:
    await stateful(stage, 2, volumeClaimTemplates=CLAIMS)
    await set_image(stage, "StatefulSet", "app:2")
    await images(stage, {"it-0": "app:2", "it-1": "app:2"})
    await ends_as(stage, "statefulset-updated", events=True)


async def test_a_statefulset_waits_for_its_first_pod(stage: Stage) -> None:
    stage.cast(lambda pod: "running")
    await stage.create(workload("StatefulSet", replicas=3, serviceName="it"))
    await ends_as(stage, "statefulset-waits")


async def test_a_parallel_statefulset_waits_for_nobody(stage: Stage) -> None:
    stage.cast(lambda pod: "running")
    await stage.create(workload("StatefulSet", replicas=3, serviceName="it", podManagementPolicy="Parallel"))
    await ends_as(stage, "statefulset-parallel")


async def test_a_statefulset_with_a_partition(stage: Stage) -> None:
    await stateful(stage, 3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    await set_image(stage, "StatefulSet", "app:2")
    await images(stage, {"it-0": "app:1", "it-1": "app:1", "it-2": "app:2"})
    await stage.client.delete("v1", "Pod", "it-0", stage.namespace)
    await images(stage, {"it-0": "app:1", "it-1": "app:1", "it-2": "app:2"})
    await ends_as(stage, "statefulset-partition")


async def test_a_statefulset_updated_on_delete(stage: Stage) -> None:
    await stateful(stage, 2, updateStrategy={"type": "OnDelete"})
    await set_image(stage, "StatefulSet", "app:2")
    await stage.client.delete("v1", "Pod", "it-0", stage.namespace)
    await images(stage, {"it-0": "app:2", "it-1": "app:1"})
    await ends_as(stage, "statefulset-on-delete")


async def test_a_broken_update_of_a_statefulset_stops_at_the_last_pod(stage: Stage) -> None:
    await stateful(stage, 3)
    stage.cast(lambda pod: "ready" if image_of(pod) == "app:1" else "running")
    await set_image(stage, "StatefulSet", "app:2")
    await ends_as(stage, "statefulset-broken-update")


@pytest.mark.parametrize("deleted", ["Retain", "Delete"])
@pytest.mark.parametrize("scaled", ["Retain", "Delete"])
async def test_the_claims_of_a_statefulset(stage: Stage, deleted: str, scaled: str) -> None:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    await stateful(stage, 2, volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=policy)
    await stage.patch("apps/v1", "StatefulSet", "it", {"spec": {"replicas": 1}})
    await all_ready(stage, 1)
    await ends_as(stage, f"statefulset-claims-{deleted}-{scaled}".lower())


async def test_a_failed_pod_of_a_statefulset_is_made_anew(stage: Stage) -> None:
    await stateful(stage, 1)
    failed = (await stage.pods())[0]["metadata"]["uid"]
    stage.cast(lambda pod: "failed:1" if pod["metadata"]["uid"] == failed else "ready")

    async def another() -> bool:
        pods = await stage.pods()
        return bool(pods and pods[0]["metadata"]["uid"] != failed and is_true(pods[0], "Ready"))

    await stage.until(another)
    await ends_as(stage, "statefulset-failed-pod", events=True)

"""Deployments and ReplicaSets end as the real controllers leave them."""

from __future__ import annotations

import pytest

from regional.kube.objects import Obj, condition_of, name_of, status_of

from ..stage import Stage
from .plays import ends_as, image_of, rolled, set_image, workload

pytestmark = pytest.mark.xdist_group("controllers-agree")


async def test_a_deployment_rolls_out(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=3))
    await rolled(stage)
    await ends_as(stage, "deployment-rolled-out", events=True)


async def test_a_deployment_rolls_on_and_keeps_a_short_history(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=2, revisionHistoryLimit=1))
    await rolled(stage)
    for image in ("app:2", "app:3"):
        await set_image(stage, "Deployment", image)
        await rolled(stage)
    await ends_as(stage, "deployment-history")


async def test_a_deployment_goes_back(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=1))
    await rolled(stage)
    for image in ("app:2", "app:1"):
        await set_image(stage, "Deployment", image)
        await rolled(stage)
    await ends_as(stage, "deployment-back", events=True)


async def test_a_paused_deployment_scales_and_does_not_roll(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=2))
    await rolled(stage)
    await stage.patch("apps/v1", "Deployment", "it", {"spec": {"paused": True}})
    await set_image(stage, "Deployment", "app:2")
    await stage.patch("apps/v1", "Deployment", "it", {"spec": {"replicas": 4}})
    await ends_as(stage, "deployment-paused", events=True)


async def test_a_deployment_paused_from_the_start(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=2, paused=True))
    await ends_as(stage, "deployment-paused-from-the-start")


@pytest.mark.parametrize(
    ("record", "rolling"),
    [
        ("surge", {"maxSurge": 1, "maxUnavailable": 0}),
        ("unavailable", {"maxSurge": 0, "maxUnavailable": "50%"}),
        ("both", {"maxSurge": "25%", "maxUnavailable": "25%"}),
    ],
)
async def test_a_release_that_does_not_work_stops_at_its_bounds(stage: Stage, record: str, rolling: Obj) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    await stage.create(workload("Deployment", replicas=4, strategy=strategy, progressDeadlineSeconds=2))
    await rolled(stage)
    stage.cast(lambda pod: "ready" if image_of(pod) == "app:1" else "running")
    await set_image(stage, "Deployment", "app:2")

    async def given_up() -> bool:
        condition = condition_of(await stage.get("apps/v1", "Deployment", "it"), "Progressing") or {}
        return condition.get("reason") == "ProgressDeadlineExceeded"

    await stage.until(given_up)
    await ends_as(stage, f"deployment-stuck-{record}")


async def test_a_deployment_scaled_in_the_middle_of_a_rollout(stage: Stage) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await stage.create(workload("Deployment", replicas=10, strategy=strategy))
    await rolled(stage)
    stage.cast(lambda pod: "ready" if image_of(pod) == "app:1" else "running")
    await set_image(stage, "Deployment", "app:2")

    async def halfway() -> bool:
        status = status_of(await stage.get("apps/v1", "Deployment", "it"))
        return bool(status.get("updatedReplicas") == 5 and status.get("replicas") == 13)

    await stage.until(halfway)
    await stage.patch("apps/v1", "Deployment", "it", {"spec": {"replicas": 20}})
    await ends_as(stage, "deployment-scaled-halfway")


async def test_a_deployment_is_recreated(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=2, strategy={"type": "Recreate"}))
    await rolled(stage)
    await set_image(stage, "Deployment", "app:2")
    await rolled(stage)
    await ends_as(stage, "deployment-recreated", events=True)


async def test_a_deployment_whose_pods_are_refused(stage: Stage) -> None:
    obj = workload("Deployment", replicas=1)
    obj["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"
    await stage.create(obj)
    await ends_as(stage, "deployment-refused")


async def test_a_finished_rollout_loses_a_pod(stage: Stage) -> None:
    await stage.create(workload("Deployment", replicas=2))
    await rolled(stage)
    victim = name_of((await stage.pods())[0])
    stage.cast(lambda pod: "running" if name_of(pod) == victim else "ready")
    await ends_as(stage, "deployment-less-a-pod")


async def test_a_replicaset_adopts_and_releases(stage: Stage) -> None:
    loose: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "loose", "labels": {"app": "it"}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }
    await stage.create(loose)
    await stage.create(workload("ReplicaSet", replicas=2))

    async def adopted() -> bool:
        status = status_of(await stage.get("apps/v1", "ReplicaSet", "it"))
        return status.get("readyReplicas") == 2

    await stage.until(adopted)
    await stage.patch("v1", "Pod", "loose", {"metadata": {"labels": {"app": "other"}}})
    await ends_as(stage, "replicaset-adopts-and-releases")

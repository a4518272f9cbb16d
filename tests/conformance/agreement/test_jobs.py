"""Jobs end as the real controllers leave them."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import Obj, is_true, name_of

from ..stage import Stage
from .plays import ends_as, pods_ready

pytestmark = pytest.mark.xdist_group("controllers-agree")


def job(**spec: Any) -> Obj:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "it"}, "spec": {"template": template} | spec}


async def job_is(stage: Stage, condition: str) -> None:
    async def check() -> bool:
        return is_true(await stage.get("batch/v1", "Job", "it"), condition)

    await stage.until(check, condition)


async def test_a_job_completes(stage: Stage) -> None:
    stage.cast(lambda pod: "succeeded")
    await stage.create(job(completions=3, parallelism=2))
    await job_is(stage, "Complete")
    await ends_as(stage, "job-complete", events=True)


async def test_a_job_fails(stage: Stage) -> None:
    stage.cast(lambda pod: "failed:1")
    await stage.create(job(backoffLimit=0))
    await job_is(stage, "Failed")
    await ends_as(stage, "job-failed", events=True)


async def test_an_indexed_job_completes(stage: Stage) -> None:
    stage.cast(lambda pod: "succeeded")
    await stage.create(job(completions=3, parallelism=3, completionMode="Indexed"))
    await job_is(stage, "Complete")
    await ends_as(stage, "job-indexed")


async def test_an_indexed_job_in_the_middle(stage: Stage) -> None:
    index = "batch.kubernetes.io/job-completion-index"
    stage.cast(lambda pod: "ready" if pod["metadata"]["labels"][index] == "1" else "succeeded")
    await stage.create(job(completions=5, parallelism=5, completionMode="Indexed"))
    await ends_as(stage, "job-indexed-halfway")


async def test_a_job_without_completions_ends_with_its_last_pod(stage: Stage) -> None:
    await stage.create(job(parallelism=2))
    first = name_of((await pods_ready(stage, 2))[0])
    stage.cast(lambda pod: "succeeded" if name_of(pod) == first else "ready")
    await ends_as(stage, "job-queue-halfway")
    stage.cast(lambda pod: "succeeded")
    await job_is(stage, "Complete")
    await ends_as(stage, "job-queue-done")


async def test_a_job_runs_out_of_time(stage: Stage) -> None:
    await stage.create(job(activeDeadlineSeconds=1))
    await job_is(stage, "Failed")
    await ends_as(stage, "job-out-of-time")


async def test_a_job_is_suspended_and_resumed(stage: Stage) -> None:
    await stage.create(job())
    await pods_ready(stage, 1)
    await stage.patch("batch/v1", "Job", "it", {"spec": {"suspend": True}})
    await job_is(stage, "Suspended")
    await ends_as(stage, "job-suspended", events=True)
    await stage.patch("batch/v1", "Job", "it", {"spec": {"suspend": False}})
    await pods_ready(stage, 1)
    await ends_as(stage, "job-resumed", events=True)


async def test_a_job_made_suspended(stage: Stage) -> None:
    await stage.create(job(suspend=True))
    await ends_as(stage, "job-made-suspended", events=True)


async def test_a_job_whose_failure_is_final(stage: Stage) -> None:
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    stage.cast(lambda pod: "failed:42")
    await stage.create(job(podFailurePolicy={"rules": rules}, backoffLimit=6))
    await job_is(stage, "Failed")
    await ends_as(stage, "job-failure-policy", events=True)


async def test_a_pod_of_a_job_is_taken_away(stage: Stage) -> None:
    await stage.create(job(backoffLimit=0))
    (pod,) = await pods_ready(stage, 1)
    await stage.client.delete("v1", "Pod", name_of(pod), stage.namespace)
    await job_is(stage, "Failed")
    await ends_as(stage, "job-pod-taken")

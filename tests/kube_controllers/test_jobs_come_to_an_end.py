"""A Job ends: with enough successes, too many failures, or too much time; and then it may vanish by itself."""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj, is_true, name_of, status_of
from tests.kube_controllers.harness import Cluster, eventually


def job(name: str = "work", **spec: Any) -> Obj:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"template": template} | spec,
    }


async def ended(cluster: Cluster, condition: str) -> Obj:
    async def check() -> Obj | None:
        obj = await cluster.client.get("batch/v1", "Job", "work", "t")
        return obj if is_true(obj, condition) else None

    found: Obj = await eventually(check, condition)
    return found


async def test_a_job_completes(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.finish = lambda pod: "Succeeded"
    await cluster.client.create(job(completions=3, parallelism=2))
    done = await ended(cluster, "Complete")
    assert status_of(done)["succeeded"] == 3
    assert status_of(done)["completionTime"]
    assert len(await cluster.pods("t")) == 3


async def test_a_job_gives_up(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.finish = lambda pod: "Failed"
    await cluster.client.create(job(backoffLimit=0))
    failed = await ended(cluster, "Failed")
    assert status_of(failed)["failed"] == 1
    reasons = {c["type"]: c["reason"] for c in status_of(failed)["conditions"]}
    assert reasons["Failed"] == "BackoffLimitExceeded"


async def test_a_job_runs_out_of_time(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(job(activeDeadlineSeconds=1))
    await ended(cluster, "Failed")

    async def stopped() -> bool:
        return not await cluster.pods("t")

    await eventually(stopped)


async def test_a_finished_job_expires_with_its_pods(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.finish = lambda pod: "Succeeded"
    await cluster.client.create(job(ttlSecondsAfterFinished=0))

    async def gone() -> bool:
        job_left = await cluster.client.get_or_none("batch/v1", "Job", "work", "t")
        return job_left is None and not await cluster.client.list("v1", "Pod", "t")

    await eventually(gone)


async def test_a_suspended_job_waits(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.finish = lambda pod: "Succeeded"
    await cluster.client.create(job(suspend=True))

    async def told() -> bool:
        return is_true(await cluster.client.get("batch/v1", "Job", "work", "t"), "Suspended")

    await eventually(told)
    assert await cluster.pods("t") == []
    await cluster.client.patch("batch/v1", "Job", "work", "t", {"spec": {"suspend": False}})
    await ended(cluster, "Complete")
    assert all(name_of(pod).startswith("work-") for pod in await cluster.pods("t"))

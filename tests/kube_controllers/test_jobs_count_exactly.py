"""A Job counts each pod once, gives each index one success, and can be told which failures matter."""

from __future__ import annotations

import asyncio

import pytest

from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.kube.controllers.job_rules import parse_indexes, written_indexes
from regional.kube.objects import (
    Obj,
    annotations_of,
    condition_of,
    copied,
    finalizers_of,
    is_true,
    labels_of,
    name_of,
    spec_of,
    status_of,
)
from tests.kube_controllers.harness import Cluster, Faults, end, eventually
from tests.kube_controllers.test_jobs_come_to_an_end import ended, job

INDEX = "batch.kubernetes.io/job-completion-index"


async def set_status(cluster: Cluster, pod: Obj, **status: object) -> None:
    async def written() -> bool:
        changed = copied(await cluster.client.get("v1", "Pod", name_of(pod), "t"))
        changed["status"] = status_of(changed) | status
        await cluster.client.update_status(changed)
        return True

    await eventually(written)


def exited(code: int) -> list[Obj]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    return [{"name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": 0, "state": state}]


async def running(cluster: Cluster, count: int) -> list[Obj]:
    async def check() -> list[Obj] | None:
        pods = await cluster.pods("t")
        up = [pod for pod in pods if is_true(pod, "Ready")]
        return up if len(up) == count else None

    found: list[Obj] = await eventually(check, f"{count} running", seconds=60)
    return found


def test_indexes_are_written_as_runs() -> None:
    assert written_indexes([0, 1, 2, 5, 7, 8]) == "0-2,5,7,8"
    assert parse_indexes("0-2,5,7,8", 8) == {0, 1, 2, 5, 7}
    assert parse_indexes(None, 3) == parse_indexes("junk,-", 3) == set()


async def test_every_index_succeeds_once(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.finish = lambda pod: "Succeeded"
    await cluster.client.create(job(completions=3, parallelism=2, completionMode="Indexed"))
    done = await ended(cluster, "Complete")
    assert status_of(done)["completedIndexes"] == "0-2"
    assert status_of(done)["succeeded"] == 3
    pods = sorted(await cluster.pods("t"), key=lambda pod: labels_of(pod)[INDEX])
    assert [annotations_of(pod)[INDEX] for pod in pods] == ["0", "1", "2"]
    assert [spec_of(pod)["hostname"] for pod in pods] == ["work-0", "work-1", "work-2"]
    assert all(name_of(pod).startswith(f"work-{number}-") for number, pod in enumerate(pods))
    variable = spec_of(pods[0])["containers"][0]["env"][0]
    assert variable["name"] == "JOB_COMPLETION_INDEX"


@pytest.mark.parametrize("seed", range(3))
async def test_no_pod_is_let_go_before_it_is_counted_nor_counted_twice(quiet: Cluster, seed: int) -> None:
    """Answers get lost at every step, API and controllers die together in the middle: six pods, six successes."""
    await quiet.namespace("t")
    faults = Faults(LocalTransport(quiet.api.handle), seed, lost=0.1, cut=0.05)
    quiet.kubelet.finish = lambda pod: "Succeeded"
    task = await quiet.control(Client(faults, user_agent="kube-controller-manager"), resync_seconds=0.5)
    await quiet.furnished("t")
    await quiet.client.create(job(completions=6, parallelism=3))

    async def halfway() -> bool:
        return len(await quiet.client.list("v1", "Pod", "t")) >= 4

    await eventually(halfway, seconds=60)
    await end(task)
    await quiet.api.stop()
    await asyncio.sleep(0.2)  # long enough for a node's report to find nobody
    await quiet.api.start()
    faults.on = False
    await quiet.control(Client(faults, user_agent="kube-controller-manager"), resync_seconds=0.5)
    done = await ended(quiet, "Complete")
    assert status_of(done)["succeeded"] == 6
    assert status_of(done)["uncountedTerminatedPods"] == {}
    pods = await quiet.client.list("v1", "Pod", "t")
    assert len(pods) == 6
    assert not any(map(finalizers_of, pods))


async def test_a_pod_that_was_taken_away_counts_as_failed(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(job(backoffLimit=0))
    (pod,) = await running(cluster, 1)
    await cluster.client.delete("v1", "Pod", name_of(pod), "t")
    failed = await ended(cluster, "Failed")
    assert status_of(failed)["failed"] == 1

    async def gone() -> bool:
        return not await cluster.client.list("v1", "Pod", "t")

    await eventually(gone, seconds=60)


async def test_pods_left_behind_by_a_job_can_go(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(job())
    (pod,) = await running(cluster, 1)
    assert finalizers_of(pod) == ["batch.kubernetes.io/job-tracking"]
    await cluster.client.delete("batch/v1", "Job", "work", "t", propagation="Orphan")

    async def free() -> bool:
        left = await cluster.client.get("v1", "Pod", name_of(pod), "t")
        return not finalizers_of(left)

    await eventually(free, seconds=60)


async def test_a_failure_that_retrying_cannot_mend_ends_the_job(cluster: Cluster) -> None:
    await cluster.namespace("t")
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    await cluster.client.create(job(podFailurePolicy={"rules": rules}, backoffLimit=6))
    (pod,) = await running(cluster, 1)
    await set_status(cluster, pod, phase="Failed", containerStatuses=exited(42))
    failed = await ended(cluster, "Failed")
    condition = condition_of(failed, "Failed") or {}
    assert condition["reason"] == "PodFailurePolicy"
    words = f"Container main for pod t/{name_of(pod)} failed with exit code 42 matching FailJob rule at index 0"
    assert condition["message"] == words


async def test_an_ignored_failure_is_not_counted(cluster: Cluster) -> None:
    await cluster.namespace("t")
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    await cluster.client.create(job(podFailurePolicy={"rules": rules}, backoffLimit=0))
    (pod,) = await running(cluster, 1)
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await set_status(cluster, pod, phase="Failed", containerStatuses=exited(137), conditions=[disrupted])

    async def replaced() -> bool:
        pods = await cluster.pods("t")
        return any(is_true(each, "Ready") and name_of(each) != name_of(pod) for each in pods)

    await eventually(replaced, seconds=60)
    status = status_of(await cluster.client.get("batch/v1", "Job", "work", "t"))
    assert "failed" not in status


async def test_a_running_job_can_be_suspended_and_resumed(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(job())
    await running(cluster, 1)
    await cluster.client.patch("batch/v1", "Job", "work", "t", {"spec": {"suspend": True}})

    async def asleep() -> bool:
        obj = await cluster.client.get("batch/v1", "Job", "work", "t")
        left = await cluster.client.list("v1", "Pod", "t")
        return is_true(obj, "Suspended") and not left

    await eventually(asleep, seconds=60)
    cluster.kubelet.finish = lambda pod: "Succeeded"
    await cluster.client.patch("batch/v1", "Job", "work", "t", {"spec": {"suspend": False}})
    done = await ended(cluster, "Complete")
    assert "failed" not in status_of(done)
    condition = condition_of(done, "Suspended") or {}
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "JobResumed", "Job resumed")

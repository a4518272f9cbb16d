"""Job: runs pods until enough of them succeeded, or too many failed, or time is up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from regional.core.clock import rfc3339
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import PodMaker, given_up_first, is_active, is_ready, phase_of, restarts_of
from regional.kube.objects import (
    Key,
    Obj,
    condition_of,
    copied,
    is_deleting,
    is_true,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    parse_time,
    set_condition,
    spec_of,
    status_of,
    uid_of,
)

COMPONENT = "job-controller"
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 360.0


class JobController(Controller):
    name = "job"
    workers = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.jobs = context.informers.of("batch/v1", "Job")
        self.pods = context.informers.of("v1", "Pod")
        self.maker = PodMaker(context, self.pods, COMPONENT)
        self.jobs.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.pods.add_handler(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.jobs.objects)

    def _pod_changed(self, _kind: str, pod: Obj) -> None:
        owner = owner_of(pod)
        if owner is not None and owner.get("kind") == "Job":
            self.queue.add((namespace_of(pod), owner["name"]))

    async def reconcile(self, key: Key) -> float | None:
        job = self.jobs.get(*key)
        if job is None or is_deleting(job):
            return None
        if is_true(job, "Complete") or is_true(job, "Failed"):
            return await self._expire(job)
        await claim(self.context, job, self.pods)
        pods = self.maker.owned(job)
        now = self.context.clock.now()
        changed = copied(job)
        status = changed.setdefault("status", {})
        suspended = bool(spec_of(job).get("suspend"))
        if suspended:
            status.pop("startTime", None)
        else:
            status.setdefault("startTime", rfc3339(now))
        active = [pod for pod in pods if is_active(pod)]
        succeeded = max(_count(pods, "Succeeded"), int(status.get("succeeded") or 0))
        failed = max(_count(pods, "Failed"), int(status.get("failed") or 0))
        verdict = self._verdict(job, pods, succeeded, failed, now)
        again: float | None = None
        if verdict is not None or suspended:
            for pod in active:
                await self.context.delete_child(self.pods, pod)
            active = []
        else:
            again = await self._keep_running(job, pods, active, succeeded, failed, now)
            active = [pod for pod in self.pods.indexed("owner", uid_of(job)) if is_active(pod)]
        _fill(status, active, succeeded, failed)
        self._conclude(changed, job, verdict, suspended, now)
        if status != status_of(job):
            self.jobs.observe(await self.client.update_status(changed))
        return again

    def _verdict(
        self, job: Obj, pods: list[Obj], succeeded: int, failed: int, now: datetime
    ) -> tuple[str, str, str] | None:
        """(condition, reason, message) once the job is decided."""
        spec = spec_of(job)
        completions = spec.get("completions")
        running = any(is_active(pod) for pod in pods)
        if completions is None:
            # A work queue: one success means that the work is done, once the others have come to their end.
            done = succeeded > 0 and not running
        else:
            done = succeeded >= int(completions)
        if done:
            return ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        limit = spec.get("backoffLimit")
        limit = 6 if limit is None else int(limit)
        in_place = (spec.get("template") or {}).get("spec", {}).get("restartPolicy") == "OnFailure"
        retries = sum(restarts_of(pod) for pod in pods) if in_place else 0
        if failed > limit or (in_place and retries > limit):
            return ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        left = _time_left(job, now)
        if left is not None and left <= 0:
            return ("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        return None

    async def _keep_running(
        self, job: Obj, pods: list[Obj], active: list[Obj], succeeded: int, failed: int, now: datetime
    ) -> float | None:
        spec = spec_of(job)
        parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
        completions = spec.get("completions")
        wanted = parallelism if completions is None else min(parallelism, int(completions) - succeeded)
        if completions is None and succeeded:
            wanted = len(active)
        left = _time_left(job, now)
        for pod in given_up_first(active)[: max(0, len(active) - wanted)]:
            await self.context.delete_child(self.pods, pod)
        missing = wanted - len(active)
        if missing > 0:
            pause = _pause_after_failures(pods, failed, now)
            if pause > 0:
                return pause if left is None else min(pause, left)
            await self.maker.make_many(job, _labelled(job), missing)
        return left

    def _conclude(
        self, changed: Obj, job: Obj, verdict: tuple[str, str, str] | None, suspended: bool, now: datetime
    ) -> None:
        recorder = self.context.recorder
        if suspended or condition_of(job, "Suspended") is not None:
            reason = "JobSuspended" if suspended else "JobResumed"
            if set_condition(changed, "Suspended", suspended, reason, reason.removeprefix("Job"), now=now):
                recorder.normal(COMPONENT, job, reason.removeprefix("Job"), f"Job {reason.removeprefix('Job').lower()}")
        if verdict is None:
            return
        kind, reason, message = verdict
        # Clients of 1.31 and later look for the decision first and the end of all pods second.
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        set_condition(changed, first, True, reason, message, now=now)
        set_condition(changed, kind, True, reason, message, now=now)
        if kind == "Complete":
            changed["status"]["completionTime"] = rfc3339(now)
            recorder.normal(COMPONENT, job, "Completed", "Job completed")
        else:
            recorder.warning(COMPONENT, job, reason, message)

    async def _expire(self, job: Obj) -> float | None:
        ttl = spec_of(job).get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        ended = condition_of(job, "Complete") or condition_of(job, "Failed") or {}
        finished = parse_time(status_of(job).get("completionTime") or ended.get("lastTransitionTime"))
        if finished is None:
            return None
        left = (finished + timedelta(seconds=int(ttl)) - self.context.clock.now()).total_seconds()
        if left > 0:
            return left
        await self.context.delete_child(self.jobs, job)
        return None


def _count(pods: list[Obj], phase: str) -> int:
    return sum(1 for pod in pods if phase_of(pod) == phase)


def _fill(status: Obj, active: list[Obj], succeeded: int, failed: int) -> None:
    numbers = {"active": len(active), "succeeded": succeeded, "failed": failed}
    for name, number in numbers.items():
        if number:
            status[name] = number
        else:
            status.pop(name, None)
    status["ready"] = sum(1 for pod in active if is_ready(pod))
    status.setdefault("uncountedTerminatedPods", {})


def _labelled(job: Obj) -> Obj:
    template = copied(spec_of(job).get("template") or {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels.setdefault("batch.kubernetes.io/job-name", name_of(job))
    labels.setdefault("job-name", name_of(job))
    labels.setdefault("batch.kubernetes.io/controller-uid", uid_of(job))
    labels.setdefault("controller-uid", uid_of(job))
    return template


def _time_left(job: Obj, now: datetime) -> float | None:
    deadline = spec_of(job).get("activeDeadlineSeconds")
    started = parse_time(status_of(job).get("startTime"))
    if deadline is None:
        return None
    return ((started or now) + timedelta(seconds=int(deadline)) - now).total_seconds()


def _pause_after_failures(pods: list[Obj], failed: int, now: datetime) -> float:
    """Each failure doubles the wait for the next try, counted from the last failed pod's end."""
    if not failed:
        return 0.0
    ends = [end for pod in pods if phase_of(pod) == "Failed" and (end := _ended_at(pod)) is not None]
    if not ends:
        return 0.0
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(failed, 16) - 1))
    return max(0.0, (max(ends) + timedelta(seconds=pause) - now).total_seconds())


def _ended_at(pod: Obj) -> datetime | None:
    for container in status_of(pod).get("containerStatuses") or []:
        terminated = (container.get("state") or {}).get("terminated") or {}
        if moment := parse_time(terminated.get("finishedAt")):
            return moment
    ready = condition_of(pod, "Ready") or {}
    return parse_time(ready.get("lastTransitionTime"))

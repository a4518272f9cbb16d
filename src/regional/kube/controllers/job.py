"""Job: runs pods until enough of them succeeded, or too many failed, or time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from regional.core.clock import rfc3339
from regional.kube.client import ApiError
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.job_rules import (
    INDEX,
    Verdict,
    has_failed,
    index_of,
    is_indexed,
    judged,
    pause_after_failures,
    replaces_only_ended,
    retries,
    time_left,
    too_many_restarts,
)
from regional.kube.controllers.job_tracking import TRACKED, Releaser, Tally, is_tracked
from regional.kube.controllers.pods import CONCURRENT, PodMaker, given_up_first, is_active, is_finished, is_ready
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
POD_KEY = "pods/"
"""Keys are jobs (namespace, name), and pods without a job (namespace, "pods/" + name)."""


class JobController(Controller):
    name = "job"
    workers = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.jobs = context.informers.of("batch/v1", "Job")
        self.pods = context.informers.of("v1", "Pod")
        self.maker = PodMaker(context, self.pods, COMPONENT)
        self.releaser = Releaser(context, self.pods)
        self.jobs.add_handler(self._job_changed)
        self.pods.add_handler(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        stray = [(namespace_of(pod), POD_KEY + name_of(pod)) for pod in self.pods if self._is_stray(pod)]
        return [*self.jobs.objects, *stray]

    def _job_changed(self, kind: str, job: Obj) -> None:
        self.queue.add(key_of(job))
        if kind == "DELETED":
            self.maker.forget(uid_of(job))
            for pod in self.pods.indexed("owner", uid_of(job)):
                self._pod_changed("MODIFIED", pod)

    def _pod_changed(self, kind: str, pod: Obj) -> None:
        owner = owner_of(pod)
        if owner is not None and owner.get("kind") == "Job":
            self.queue.add((namespace_of(pod), owner["name"]))
        if kind != "DELETED" and self._is_stray(pod):
            self.queue.add((namespace_of(pod), POD_KEY + name_of(pod)))

    def _is_stray(self, pod: Obj) -> bool:
        """Marked as a job's, and no job will ever count it."""
        if not is_tracked(pod):
            return False
        owner = owner_of(pod)
        job = self.jobs.get(namespace_of(pod), owner["name"]) if owner is not None else None
        return owner is None or job is None or uid_of(job) != owner["uid"]

    async def reconcile(self, key: Key) -> float | None:
        if key[1].startswith(POD_KEY):
            return await self._let_go(key[0], key[1].removeprefix(POD_KEY))
        job = self.jobs.get(*key)
        if job is None:
            return None
        if is_true(job, "Complete") or is_true(job, "Failed"):
            await self.releaser.release([pod for pod in self.maker.owned(job) if is_tracked(pod)])
            return None if is_deleting(job) else await self._expire(job)
        await claim(self.context, job, self.pods)
        return await self._advance(job, self.maker.owned(job))

    async def _let_go(self, namespace: str, name: str) -> float | None:
        pod = self.pods.get(namespace, name)
        if pod is None or not self._is_stray(pod):
            return None
        owner = owner_of(pod)
        if owner is not None and owner.get("kind") == "Job":
            # The cache must not decide: a job made a moment ago may not be in it yet.
            live = await self.client.get_or_none("batch/v1", "Job", owner["name"], namespace)
            if live is not None and uid_of(live) == owner["uid"]:
                return None
        await self.releaser.release([pod])
        return None

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def _advance(self, job: Obj, pods: list[Obj]) -> float | None:
        now = self.context.clock.now()
        changed = copied(job)
        status = changed.setdefault("status", {})
        suspended = bool(spec_of(job).get("suspend"))
        if not suspended and ("startTime" not in status or is_true(job, "Suspended")):
            # Time spent suspended does not count towards the deadline: the clock starts again.
            status["startTime"] = rfc3339(now)
        tally = Tally(job, pods)
        verdict = self._verdict(changed, pods, tally, now)
        again: float | None = None
        refusal: ApiError | None = None
        if not is_deleting(job):
            if verdict is not None or suspended:
                active = [pod for pod in pods if is_active(pod)]
                lost = verdict is not None and verdict.condition == "Failed"
                await self._stop(job, active, counted=lost)
            else:
                try:
                    again = await self._keep_running(changed, pods, tally, now)
                except ApiError as error:
                    refusal = error  # of a new pod, perhaps for good (its namespace ends): the old ones count anyway
        pods = self.pods.indexed("owner", uid_of(job))
        _fill(status, pods)
        tally.write(status)
        self._mark(changed, job, verdict, suspended, now)
        ended = verdict is not None and tally.is_settled and not _terminating(pods)
        if ended and verdict is not None:
            self._conclude(changed, job, verdict, now)
        await self._write(job, changed)
        # Only now may they go: the status that counts them is safe.
        await self.releaser.release(tally.released)
        if tally.released or not tally.is_settled:
            self.queue.add(key_of(job))
        if refusal is not None:
            raise refusal
        return again

    async def _write(self, job: Obj, changed: Obj) -> None:
        if status_of(changed) != status_of(job):
            self.jobs.observe(await self.client.update_status(changed))

    def _verdict(self, job: Obj, pods: list[Obj], tally: Tally, now: datetime) -> Verdict | None:
        """Once given it stands, whatever happens while the pods end."""
        for first, last in (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")):
            given = condition_of(job, first)
            if given is not None and given.get("status") == "True":
                return Verdict(last, given.get("reason", ""), given.get("message", ""))
        for pod in pods:
            action, message = judged(job, pod) if has_failed(job, pod) else ("", "")
            if action == "FailJob":
                return Verdict("Failed", "PodFailurePolicy", message)
        if tally.failed > retries(job) or too_many_restarts(job, pods):
            return Verdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        left = time_left(job, now)
        if left is not None and left <= 0 and not spec_of(job).get("suspend"):
            return Verdict("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        completions = spec_of(job).get("completions")
        if completions is None:
            # A work queue: one success means that the work is done, once the others have come to their end.
            done = tally.succeeded > 0 and not any(is_active(pod) for pod in pods)
        else:
            done = tally.succeeded >= int(completions)
        if done:
            return Verdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        return None

    # -- pods --------------------------------------------------------------------------------------------------------

    async def _keep_running(self, job: Obj, pods: list[Obj], tally: Tally, now: datetime) -> float | None:
        spec = spec_of(job)
        active = [pod for pod in pods if is_active(pod)]
        if is_indexed(job):
            doubled = _doubled(active, tally.completed, int(spec.get("completions") or 0))
            await self._stop(job, doubled)
            active = [pod for pod in active if pod not in doubled]
        parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
        completions = spec.get("completions")
        wanted = parallelism if completions is None else min(parallelism, int(completions) - tally.succeeded)
        if completions is None and tally.succeeded:
            wanted = min(parallelism, len(active))
        await self._stop(job, given_up_first(active)[: max(0, len(active) - wanted)])
        leaving = _terminating(pods) if replaces_only_ended(job) else []
        missing = wanted - len(active) - len(leaving)
        left = time_left(job, now)
        if missing <= 0:
            return left
        pause = pause_after_failures(pods, now)
        if pause > 0:
            return pause if left is None else min(pause, left)
        await self._make(job, active + leaving, tally, missing)
        return left

    async def _make(self, job: Obj, holders: list[Obj], tally: Tally, missing: int) -> None:
        if not is_indexed(job):
            await self.maker.make_many(job, _template(job), missing, adjust=_track)
            return
        taken = {index_of(pod) for pod in holders} | tally.completed
        free = [index for index in range(int(spec_of(job).get("completions") or 0)) if index not in taken][:missing]
        for start in range(0, len(free), CONCURRENT):
            await asyncio.gather(*(self._make_index(job, index) for index in free[start : start + CONCURRENT]))

    async def _make_index(self, job: Obj, index: int) -> None:
        def adjust(pod: Obj) -> None:
            _track(pod)
            pod["metadata"].setdefault("annotations", {})[INDEX] = str(index)
            pod["metadata"]["labels"][INDEX] = str(index)
            pod["spec"].setdefault("hostname", f"{name_of(job)}-{index}")
            _tell_index(pod)

        await self.maker.make(job, _template(job), prefix=f"{name_of(job)[:50]}-{index}-", adjust=adjust)

    async def _stop(self, job: Obj, victims: list[Obj], *, counted: bool = False) -> None:
        """Those that were not lost but sent away are not counted, so free of their finalizer first."""
        if not counted:
            await self.releaser.release(victims)
        for start in range(0, len(victims), CONCURRENT):
            await asyncio.gather(*(self._delete(job, pod) for pod in victims[start : start + CONCURRENT]))

    async def _delete(self, job: Obj, pod: Obj) -> None:
        await self.context.delete_child(self.pods, pod)
        self.context.recorder.normal(COMPONENT, job, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    # -- what it says of itself --------------------------------------------------------------------------------------

    def _mark(self, changed: Obj, job: Obj, verdict: Verdict | None, suspended: bool, now: datetime) -> None:
        recorder = self.context.recorder
        if verdict is not None:
            # Clients of 1.31 and later look for the decision first and the end of all pods second.
            first = "SuccessCriteriaMet" if verdict.condition == "Complete" else "FailureTarget"
            _set(changed, first, True, verdict.reason, verdict.message, now)
        elif suspended or condition_of(job, "Suspended") is not None:
            word = "suspended" if suspended else "resumed"
            if _set(changed, "Suspended", suspended, f"Job{word.title()}", f"Job {word}", now):
                recorder.normal(COMPONENT, job, word.title(), f"Job {word}")

    def _conclude(self, changed: Obj, job: Obj, verdict: Verdict, now: datetime) -> None:
        _set(changed, verdict.condition, True, verdict.reason, verdict.message, now)
        if verdict.condition == "Complete":
            changed["status"]["completionTime"] = rfc3339(now)
            self.context.recorder.normal(COMPONENT, job, "Completed", "Job completed")
        else:
            self.context.recorder.warning(COMPONENT, job, verdict.reason, verdict.message)

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


def _set(obj: Obj, kind: str, value: bool, reason: str, message: str, now: datetime) -> bool:
    """Job conditions also tell when they were last probed."""
    changed = set_condition(obj, kind, value, reason, message, now=now)
    condition = condition_of(obj, kind)
    if changed and condition is not None:
        condition["lastProbeTime"] = rfc3339(now)
    return changed


def _fill(status: Obj, pods: list[Obj]) -> None:
    active = [pod for pod in pods if is_active(pod)]
    if active:
        status["active"] = len(active)
    else:
        status.pop("active", None)
    status["ready"] = sum(1 for pod in active if is_ready(pod))
    status["terminating"] = len(_terminating(pods))


def _terminating(pods: list[Obj]) -> list[Obj]:
    return [pod for pod in pods if is_deleting(pod) and not is_finished(pod)]


def _doubled(active: list[Obj], completed: set[int], completions: int) -> list[Obj]:
    """Pods of an index that is done, does not exist, or has another pod already."""
    surplus: list[Obj] = []
    kept: set[int] = set()
    for pod in reversed(given_up_first(active)):
        index = index_of(pod)
        if index is None or index >= completions or index in completed or index in kept:
            surplus.append(pod)
        else:
            kept.add(index)
    return surplus


def _track(pod: Obj) -> None:
    pod["metadata"]["finalizers"] = [*(pod["metadata"].get("finalizers") or []), TRACKED]


def _tell_index(pod: Obj) -> None:
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        env = container.setdefault("env", [])
        if not any(each.get("name") == variable["name"] for each in env):
            env.append(copied(variable))


def _template(job: Obj) -> Obj:
    template = copied(spec_of(job).get("template") or {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels.setdefault("batch.kubernetes.io/job-name", name_of(job))
    labels.setdefault("job-name", name_of(job))
    labels.setdefault("batch.kubernetes.io/controller-uid", uid_of(job))
    labels.setdefault("controller-uid", uid_of(job))
    return template

"""Counting a Job's pods exactly once, however often they are looked at and whenever they vanish.

Every pod of a job carries a finalizer, so none can go before it is counted. Counting takes three writes that may each
be the last before a crash: the pod's uid into `uncountedTerminatedPods`, the finalizer off the pod, the uid out of the
list and into the number. At each point the next look knows what is counted and what is not. A success of an indexed
job needs no such list: an index is complete or it is not.
"""

from __future__ import annotations

import asyncio

from regional.kube.client import ApiError, Informer
from regional.kube.controllers.context import Context
from regional.kube.controllers.job_rules import has_failed, index_of, is_indexed, judged, parse_indexes, written_indexes
from regional.kube.controllers.pods import CONCURRENT, phase_of
from regional.kube.objects import Obj, finalizers_of, name_of, namespace_of, spec_of, status_of, uid_of, version_of

TRACKED = "batch.kubernetes.io/job-tracking"


def is_tracked(pod: Obj) -> bool:
    return TRACKED in finalizers_of(pod)


class Tally:
    """The numbers of one job, as one pass sees them; `write` puts them into a status."""

    def __init__(self, job: Obj, pods: list[Obj]) -> None:
        self._job, self._pods = job, pods
        status = status_of(job)
        uncounted = status.get("uncountedTerminatedPods") or {}
        self._succeeded, self._failed = int(status.get("succeeded") or 0), int(status.get("failed") or 0)
        self._waiting = {kind: set(uncounted.get(kind) or ()) for kind in ("succeeded", "failed")}
        self.completed: set[int] = set()
        if is_indexed(job):
            self.completed = parse_indexes(status.get("completedIndexes"), int(spec_of(job).get("completions") or 0))
        self.released: list[Obj] = []
        """Pods whose finalizer may come off once the status is written."""
        self._fold()
        self._take_in()

    @property
    def succeeded(self) -> int:
        return len(self.completed) if is_indexed(self._job) else self._succeeded + len(self._waiting["succeeded"])

    @property
    def failed(self) -> int:
        return self._failed + len(self._waiting["failed"])

    @property
    def is_settled(self) -> bool:
        """Every pod that ended is in the numbers and free to go."""
        return not self.released and not self._waiting["succeeded"] and not self._waiting["failed"]

    def _fold(self) -> None:
        """Those whose finalizer is off are done with: from the list into the number."""
        held = {uid_of(pod) for pod in self._pods if is_tracked(pod)}
        gone = self._waiting["succeeded"] - held
        self._succeeded += len(gone)
        self._waiting["succeeded"] -= gone
        gone = self._waiting["failed"] - held
        self._failed += len(gone)
        self._waiting["failed"] -= gone

    def _take_in(self) -> None:
        for pod in self._pods:
            if not is_tracked(pod):
                continue
            if phase_of(pod) == "Succeeded":
                self._succeed(pod)
            elif has_failed(self._job, pod):
                if judged(self._job, pod)[0] != "Ignore":
                    self._waiting["failed"].add(uid_of(pod))
                self.released.append(pod)

    def _succeed(self, pod: Obj) -> None:
        self.released.append(pod)
        if not is_indexed(self._job):
            self._waiting["succeeded"].add(uid_of(pod))
            return
        index = index_of(pod)
        if index is not None and index < int(spec_of(self._job).get("completions") or 0):
            self.completed.add(index)

    def write(self, status: Obj) -> None:
        succeeded = len(self.completed) if is_indexed(self._job) else self._succeeded
        for name, number in (("succeeded", succeeded), ("failed", self._failed)):
            if number:
                status[name] = number
            else:
                status.pop(name, None)
        if self.completed:
            status["completedIndexes"] = written_indexes(self.completed)
        else:
            status.pop("completedIndexes", None)
        status["uncountedTerminatedPods"] = {kind: sorted(uids) for kind, uids in self._waiting.items() if uids}


class Releaser:
    """Takes the finalizer off pods, many at a time."""

    def __init__(self, context: Context, pods: Informer) -> None:
        self._context, self._pods = context, pods

    async def release(self, pods: list[Obj]) -> None:
        for start in range(0, len(pods), CONCURRENT):
            await asyncio.gather(*(self._release(pod) for pod in pods[start : start + CONCURRENT]))

    async def _release(self, pod: Obj) -> None:
        pod = self._pods.get(namespace_of(pod), name_of(pod)) or pod
        if not is_tracked(pod):
            return
        left = [finalizer for finalizer in finalizers_of(pod) if finalizer != TRACKED]
        metadata = {"uid": uid_of(pod), "resourceVersion": version_of(pod), "finalizers": left or None}
        try:
            changed = await self._context.client.patch(
                "v1", "Pod", name_of(pod), namespace_of(pod), {"metadata": metadata}
            )
        except ApiError as error:
            if not error.not_found:
                raise
            self._pods.observe_deleted(pod)
            return
        self._pods.observe(changed)

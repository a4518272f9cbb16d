"""One pod: from what its manifest says and what its processes do to the next step, again and again until it is gone.

Level-triggered: whatever happens (the object changed, a process ended, a probe changed its mind, a Secret it mounts was
updated, time passed) only wakes the worker, which looks at everything anew. It therefore also continues whatever a
predecessor left half done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from regional.core.clock import rfc3339
from regional.kube.client import ApiError
from regional.kube.node.containers import Container, Launch, Waiting
from regional.kube.node.context import NodeContext
from regional.kube.node.environment import ConfigProblem, Lookup
from regional.kube.node.images import ImageProblem
from regional.kube.node.launching import facts, prepare
from regional.kube.node.layout import write_whole
from regional.kube.node.pod_addresses import NoAddressLeft
from regional.kube.node.probing import Prober
from regional.kube.node.references import references
from regional.kube.node.starting import Starter
from regional.kube.node.status import Verdict, build_status, initialized, phase_of, status_patch
from regional.kube.node.stopping import Stopper
from regional.kube.node.volumes import PodVolumes, VolumeProblem
from regional.kube.objects import (
    Obj,
    is_deleting,
    metadata_of,
    name_of,
    namespace_of,
    parse_time,
    spec_of,
    status_of,
    uid_of,
)

log = logging.getLogger(__name__)
_FORCED_GRACE = 2.0
_TERMINAL = ("Succeeded", "Failed")
_TOO_LONG = "Pod was active on the node longer than the specified deadline"


class PodWorker:
    def __init__(self, node: NodeContext, pod: Obj) -> None:
        self.pod = pod
        self.uid = uid_of(pod)
        self.references = references(pod)
        self.over = False
        self.init: list[Container] = []
        self.main: list[Container] = []
        self._node = node
        self._directory = node.directory.pod(self.uid)
        self._volumes = PodVolumes(self._directory, node.tokens, node.store, node.clock, node.claims)
        self._wake = asyncio.Event()
        self._prober = Prober(node, self.wake, self._end)
        self._starter = Starter(node, self._directory, self._prober, self.wake)
        self._stopper = Stopper(node, self.launch_of)
        self.address = ""
        self._gone = False  # the object was removed without waiting for us
        self._ending_at: float | None = None
        self._loaded = False
        self._hosts = ""
        self._failures = self._mount_failures = 0
        self._problem: Waiting | None = None
        self._verdict: Verdict | None = None
        self._started_at = status_of(pod).get("startTime") or rfc3339(node.clock.now())

    @property
    def name(self) -> str:
        return f"{namespace_of(self.pod)}/{name_of(self.pod)}"

    def container(self, name: str) -> Container | None:
        return next((each for each in (*self.main, *self.init) if each.name == name), None)

    async def launch_of(self, container: Container) -> Launch | None:
        """What its commands run with: its own environment and directory."""
        return container.launch or await self._relaunch(container)

    # -- what others tell it -----------------------------------------------------------------------------------------

    def update(self, pod: Obj) -> None:
        self.pod = pod
        self.references = references(pod)
        self._wake.set()

    def removed(self) -> None:
        self._gone = True
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def write_hosts(self, text: str) -> None:
        if text != self._hosts and self._directory.path.exists():
            write_whole(self._directory.hosts, text.encode(), 0o644)
            self._hosts = text

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            while not self.over:
                self._wake.clear()
                await self._nap(await self._look())
        finally:
            self._prober.stop_all()
            self._starter.stop_all()
            for container in (*self.init, *self.main):
                container.forget()

    async def _look(self) -> float | None:
        try:
            pause = await self._reconcile()
            self._failures = 0
            return pause
        except ApiError as error:
            log.info("pod waits for the API", extra={"pod": self.name, "reason": str(error)})
        except Exception:
            log.exception("pod worker stumbled", extra={"pod": self.name})
        self._failures += 1
        return float(min(5.0, 0.1 * 2 ** min(self._failures, 8)))

    async def _nap(self, seconds: float | None) -> None:
        if self.over or self._wake.is_set():
            return
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._wake.wait())]
        if seconds is not None:
            waits.append(asyncio.create_task(self._node.clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _reconcile(self) -> float | None:
        if not self._loaded:
            self._load()
        if self._gone or is_deleting(self.pod):
            await self._terminate()
            return None
        if status_of(self.pod).get("phase") in _TERMINAL:
            await self._end_after_verdict()
            return None
        pauses: list[float | None] = [self._until_deadline()]
        lookup = await self._prepare(pauses) if self._verdict is None else None
        if lookup is not None:
            await self._advance(lookup, pauses)
        if self._verdict or self._phase() in _TERMINAL:
            await self._end_all()  # sidecars; or, if time is up, everybody
        await self._publish()
        known = [pause for pause in pauses if pause is not None]
        return min(known) if known else None

    def _phase(self) -> str:
        return phase_of(self.pod, self.init, self.main)

    async def _end_after_verdict(self) -> None:
        """Somebody may have failed the pod over our heads (eviction); then its processes must not go on."""
        if any(c.running for c in (*self.main, *self.init)):
            status = status_of(self.pod)
            self._verdict = Verdict(status["phase"], status.get("reason") or "", status.get("message") or "")
            await self._end_all()
            await self._publish()

    def _until_deadline(self) -> float | None:
        """The pod's own limit on its life; once it is passed, the verdict stands."""
        limit, began = spec_of(self.pod).get("activeDeadlineSeconds"), parse_time(self._started_at)
        if limit is None or began is None or self._verdict is not None:
            return None
        left = float(limit) - (self._node.clock.now() - began).total_seconds()
        if left > 0:
            return left
        self._verdict = Verdict("Failed", "DeadlineExceeded", _TOO_LONG)
        self._node.tell(self.pod, "DeadlineExceeded", _TOO_LONG)
        return None

    def _load(self) -> None:
        spec = spec_of(self.pod)

        def container(entry: Obj, init: bool) -> Container:
            directory = self._directory.container(entry["name"])
            return Container(entry, directory, self._node.spawner, self._node.clock, self.wake, init=init)

        self.init = [container(entry, True) for entry in spec.get("initContainers") or []]
        self.main = [container(entry, False) for entry in spec.get("containers") or []]
        record = self._directory.load()
        if record is not None:
            self.address = record.address
            for each in (*self.init, *self.main):
                each.recover()
                if each.adopted:
                    log.info("adopted", extra={"pod": self.name, "container": each.name, "process": each.identity})
                    self._prober.resume(self.pod, each, self.address)
        self._loaded = True

    async def _prepare(self, pauses: list[float | None]) -> Lookup | None:
        """Address, names and mounted files. None if something is still missing; the reason is in the status."""
        started = any(c.record is not None for c in self.main)
        lookup: Lookup | None = None
        try:
            if spec_of(self.pod).get("hostNetwork"):
                self._node.addresses.hold(self.uid, namespace_of(self.pod), name_of(self.pod))
                self.address = self._node.settings.address
            else:
                self.address = self._node.addresses.hold(self.uid, namespace_of(self.pod), name_of(self.pod))
            for each in (*self.init, *self.main):
                each.directory.path.mkdir(parents=True, exist_ok=True)
            self.write_hosts(self._node.hosts_for(self.pod, self.address))
            lookup = await self._node.cluster.lookup_for(namespace_of(self.pod), self.references)
            known = facts(self.address, self._node.settings.address)
            pauses.append(await self._volumes.sync(self.pod, lookup, known))
        except (VolumeProblem, NoAddressLeft) as problem:
            reason = "FailedMount" if isinstance(problem, VolumeProblem) else "FailedCreatePodSandBox"
            self._node.warn(self.pod, reason, str(problem))
            self._mount_failures += 1
            pauses.append(min(10.0, 0.2 * 2 ** min(self._mount_failures, 8)))
            self._problem = Waiting("ContainerCreating", str(problem))
            # What runs goes on with what it has: a refresh that fails is no reason to stop it.
            return lookup if started else None
        self._problem, self._mount_failures = None, 0
        return lookup

    # -- starting ----------------------------------------------------------------------------------------------------

    async def _advance(self, lookup: Lookup, pauses: list[float | None]) -> None:
        if self._phase() in _TERMINAL:
            return
        current = {entry["name"]: entry for entry in spec_of(self.pod).get("containers") or []}
        for container in self.main:
            container.spec = current.get(container.name, container.spec)
        mains_started = any(c.record is not None for c in self.main)
        for container in self.init:
            if container.sidecar or not (mains_started or (container.ended and container.ended.code == 0)):
                pauses.append(await self._ensure(container, lookup))
                if not initialized([container]) and not mains_started:
                    return
        for container in self.main:
            pauses.append(await self._ensure(container, lookup))
            if self._starter.hooked(container):
                return  # the next container starts when this one's postStart hook is done

    async def _ensure(self, container: Container, lookup: Lookup) -> float | None:
        if container.running and container.launch is None:  # adopted; its exec probes need it
            await self._relaunch(container)
        return await self._starter.ensure(self.pod, container, self.address, lookup)

    # -- ending ------------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        """On the monotonic clock. A second delete may shorten it while we wait."""
        now = self._node.clock.monotonic()
        if is_deleting(self.pod) and not self._gone:
            due = parse_time(metadata_of(self.pod).get("deletionTimestamp"))
            return now + ((due - self._node.clock.now()).total_seconds() if due else 0.0)
        grace = _FORCED_GRACE if self._gone else self._grace()
        if self._ending_at is None or self._ending_at > now + grace:
            self._ending_at = now + grace
        return self._ending_at

    def _grace(self) -> float:
        return float(spec_of(self.pod).get("terminationGracePeriodSeconds", 30))

    async def _end(self, container: Container, why: str, grace: float | None) -> None:
        """One container, while the pod lives on."""
        until = self._node.clock.monotonic() + (self._grace() if grace is None else float(grace))

        def deadline() -> float:
            return min(until, self._deadline()) if self._gone or is_deleting(self.pod) else until

        await self._stopper.stop(self.pod, container, self.address, deadline, why)

    async def _end_all(self) -> None:
        """The containers together, then the sidecars, the last one first: others may need them to the end."""
        self._prober.stop_all()
        self._starter.stop_all()
        await asyncio.gather(*(self._stop(c) for c in self.main if c.running))
        for container in reversed(self.init):
            if container.running:
                await self._stop(container)

    async def _stop(self, container: Container) -> None:
        await self._stopper.stop(self.pod, container, self.address, self._deadline)

    async def _terminate(self) -> None:
        await self._end_all()
        await self._node.sweeper.sweep(str(self._directory.path))
        if not self._gone:
            with contextlib.suppress(ApiError):
                await self._publish(stopping=True)
        self._directory.remove()
        self._node.addresses.release(self.uid)
        if not self._gone:
            await self._delete()
        self.over = True

    async def _delete(self) -> None:
        try:
            await self._node.client.delete(
                "v1", "Pod", name_of(self.pod), namespace_of(self.pod), grace=0, uid=self.uid, missing_ok=True
            )
        except ApiError as error:
            if not error.conflict:  # another pod has the name by now
                raise

    async def _relaunch(self, container: Container) -> Launch | None:
        """An adopted container's launch is not on disk (it holds secrets): build it again for its hook."""
        with contextlib.suppress(ApiError, ConfigProblem, ImageProblem):
            lookup = await self._node.cluster.lookup_for(namespace_of(self.pod), self.references)
            container.launch = prepare(self._node, self.pod, container, self._directory, self.address, lookup)
        return container.launch

    # -- telling -----------------------------------------------------------------------------------------------------

    async def _publish(self, *, stopping: bool = False) -> None:
        if not stopping and (self._verdict or self._phase() in _TERMINAL):
            for container in (*self.init, *self.main):
                container.waiting = None
        wanted = build_status(
            self.pod,
            self.init,
            self.main,
            pod_address=self.address,
            host_address=self._node.settings.address,
            now=self._node.clock.now(),
            started_at=self._started_at,
            problem=self._problem,
            stopping=stopping,
            verdict=self._verdict,
        )
        changed = status_patch(wanted, status_of(self.pod))
        if not changed:
            return
        patch = {"metadata": {"uid": self.uid}, "status": changed}
        answer = await self._node.client.patch(
            "v1", "Pod", name_of(self.pod), namespace_of(self.pod), patch, type="strategic", subresource="status"
        )
        self._node.cluster.pods.observe(answer)

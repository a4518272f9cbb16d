"""One pod: from what its manifest says and what its processes do to the next step, again and again until it is gone.

Level-triggered: whatever happens (the object changed, a process ended, a probe changed its mind, a Secret it mounts was
updated, time passed) only wakes the worker, which looks at everything anew. It therefore also continues whatever a
predecessor left half done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import Any

from regional.core.clock import rfc3339
from regional.core.spawn import SpawnError
from regional.kube.client import ApiError
from regional.kube.node.containers import Container, Launch, Waiting, digest_of
from regional.kube.node.context import NodeContext
from regional.kube.node.environment import ConfigProblem, Lookup
from regional.kube.node.hooks import run_prestop
from regional.kube.node.images import ImageProblem
from regional.kube.node.launching import facts, prepare
from regional.kube.node.layout import write_whole
from regional.kube.node.pod_addresses import NoAddressLeft
from regional.kube.node.probing import Prober
from regional.kube.node.references import references
from regional.kube.node.status import build_status, initialized, phase_of, restarts
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
_SPAWN_RETRY, _REFUSED_RETRY = 0.2, 10.0


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
        self._prober = Prober(node, self.wake)
        self._wake = asyncio.Event()
        self.address = ""
        self._gone = False  # the object was removed without waiting for us
        self._ending_at: float | None = None
        self._loaded = False
        self._hosts = ""
        self._failures = self._mount_failures = 0
        self._problem: Waiting | None = None
        self._started_at = status_of(pod).get("startTime") or rfc3339(node.clock.now())

    @property
    def name(self) -> str:
        return f"{namespace_of(self.pod)}/{name_of(self.pod)}"

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
        if status_of(self.pod).get("phase") in ("Succeeded", "Failed"):
            # Somebody may have failed the pod over our heads (eviction); then its processes must not go on.
            await asyncio.gather(*(self._stop(c) for c in (*self.main, *self.init) if c.running))
            return None
        pauses: list[float | None] = []
        lookup = await self._prepare(pauses)
        if lookup is not None:
            await self._advance(lookup, pauses)
        await self._publish()
        known = [pause for pause in pauses if pause is not None]
        return min(known) if known else None

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
        current = {entry["name"]: entry for entry in spec_of(self.pod).get("containers") or []}
        for container in self.main:
            container.spec = current.get(container.name, container.spec)
        mains_started = any(c.record is not None for c in self.main)
        for container in self.init:
            if container.sidecar or not (mains_started or (container.ended and container.ended.code == 0)):
                pauses.append(await self._ensure(container, lookup))
                if not initialized([container]) and not mains_started:
                    return
        pauses += [await self._ensure(container, lookup) for container in self.main]

    async def _ensure(self, container: Container, lookup: Lookup) -> float | None:
        record = container.record
        if container.running:
            if record is not None and record.digest != digest_of(container.spec):
                self._prober.kill(self.pod, container, f"Container {container.name} definition changed")
            if container.launch is None:  # adopted; its exec probes need it
                await self._relaunch(container)
            return None
        self._prober.stop(container)
        if container.ended is not None:
            if not restarts(spec_of(self.pod).get("restartPolicy") or "Always", container):
                return None
            if record is not None and record.digest == digest_of(container.spec):
                delay = self._backoff(container)
                if delay > 0:
                    return delay
        return await self._start(container, lookup)

    def _backoff(self, container: Container) -> float:
        """Seconds until the next attempt; the first restart is immediate."""
        settings, record = self._node.settings, container.record
        if record is None or record.ended is None or record.restarts_in_a_row == 0:
            return 0.0
        growth = float(2 ** min(record.restarts_in_a_row - 1, 20))
        delay = min(settings.restart_backoff_cap, settings.restart_backoff * growth)
        finished = parse_time(record.ended.finished) or self._node.clock.now()
        left = delay - (self._node.clock.now() - finished).total_seconds()
        if left > 0:
            text = f"back-off {delay:g}s restarting failed container={container.name} pod={self.name}"
            if container.waiting is None:
                self._node.warn(self.pod, "BackOff", text)
            container.waiting = Waiting("CrashLoopBackOff", text)
        return left

    async def _start(self, container: Container, lookup: Lookup) -> float | None:
        try:
            launch = prepare(self._node, self.pod, container, self._directory, self.address, lookup)
            await container.start(launch, title=name_of(self.pod))
        except ImageProblem as problem:
            if container.waiting is None:
                self._node.warn(self.pod, "Failed", str(problem))
            container.waiting = Waiting("ImagePullBackOff", str(problem))
            return None
        except ConfigProblem as problem:
            self._node.warn(self.pod, "Failed", f"Error: {problem}")
            container.waiting = Waiting("CreateContainerConfigError", str(problem))
            return _REFUSED_RETRY
        except SpawnError as problem:
            self._node.warn(self.pod, "Failed", f"Error: {problem}")
            container.waiting = Waiting("RunContainerError", str(problem))
            return _REFUSED_RETRY
        except OSError as problem:
            log.info("no warm parent", extra={"pod": self.name, "reason": str(problem)})
            container.waiting = Waiting("ContainerCreating", "waiting for the warm parent")
            return _SPAWN_RETRY
        image = container.spec.get("image")
        self._node.tell(self.pod, "Pulled", f'Container image "{image}" already present on machine')
        self._node.tell(self.pod, "Started", f"Started container {container.name}")
        log.info("started", extra={"pod": self.name, "container": container.name, "process": container.identity})
        self._prober.begin(self.pod, container, self.address)
        return None

    # -- ending ------------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        """On the monotonic clock. A second delete may shorten it while we wait."""
        now = self._node.clock.monotonic()
        if self._gone or not is_deleting(self.pod):
            if self._ending_at is None or self._ending_at > now + _FORCED_GRACE:
                self._ending_at = now + _FORCED_GRACE
            return self._ending_at
        due = parse_time(metadata_of(self.pod).get("deletionTimestamp"))
        return now + ((due - self._node.clock.now()).total_seconds() if due else 0.0)

    async def _terminate(self) -> None:
        self._prober.stop_all()
        await asyncio.gather(*(self._stop(c) for c in self.main if c.running))
        for container in reversed(self.init):
            if container.running:
                await self._stop(container)
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

    async def _stop(self, container: Container) -> None:
        self._node.tell(self.pod, "Killing", f"Stopping container {container.name}")
        hook = (container.spec.get("lifecycle") or {}).get("preStop")
        left = self._deadline() - self._node.clock.monotonic()
        if hook and left > 0:
            launch = container.launch or await self._relaunch(container)
            problem = await run_prestop(container, hook, launch, self._node.spawner, self.address, left)
            if problem:
                self._node.warn(self.pod, "FailedPreStopHook", problem)
        container.signal(signal.SIGTERM)
        while container.running:
            left = self._deadline() - self._node.clock.monotonic()
            if left <= 0:
                container.signal(signal.SIGKILL)
            await container.ended_within(min(0.5, left) if left > 0 else 0.5)

    async def _relaunch(self, container: Container) -> Launch | None:
        """An adopted container's launch is not on disk (it holds secrets): build it again for its hook."""
        with contextlib.suppress(ApiError, ConfigProblem, ImageProblem):
            lookup = await self._node.cluster.lookup_for(namespace_of(self.pod), self.references)
            container.launch = prepare(self._node, self.pod, container, self._directory, self.address, lookup)
        return container.launch

    # -- telling -----------------------------------------------------------------------------------------------------

    async def _publish(self, *, stopping: bool = False) -> None:
        if not stopping and phase_of(self.pod, self.init, self.main) in ("Succeeded", "Failed"):
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
        )
        current = status_of(self.pod)
        changed = {key: value for key, value in wanted.items() if current.get(key) != value}
        if not changed:
            return
        patch = {"metadata": {"uid": self.uid}, "status": changed}
        answer = await self._node.client.patch(
            "v1", "Pod", name_of(self.pod), namespace_of(self.pod), patch, subresource="status"
        )
        self._node.cluster.pods.observe(answer)

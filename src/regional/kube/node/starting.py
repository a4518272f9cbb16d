"""Starting a pod's containers, and starting them again: images, back-off, what is told of each attempt, postStart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from regional.core.spawn import SpawnError
from regional.kube.node.containers import Container, Waiting, digest_of
from regional.kube.node.context import NodeContext, container_field
from regional.kube.node.environment import ConfigProblem, Lookup
from regional.kube.node.hooks import run_hook
from regional.kube.node.images import ImageProblem
from regional.kube.node.launching import prepare
from regional.kube.node.layout import PodDirectory
from regional.kube.node.probing import Prober
from regional.kube.node.quantities import go_duration
from regional.kube.node.status import restarts
from regional.kube.objects import Obj, name_of, namespace_of, parse_time, spec_of, uid_of

log = logging.getLogger(__name__)
_SPAWN_RETRY, _REFUSED_RETRY, _PULL_RETRY = 0.2, 10.0, 1.0


def pod_format(pod: Obj) -> str:
    """How kubelet names pods in its messages."""
    return f"{name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"


class Starter:
    def __init__(
        self, node: NodeContext, directory: PodDirectory, prober: Prober, on_change: Callable[[], None]
    ) -> None:
        self._node = node
        self._directory = directory
        self._prober = prober
        self._on_change = on_change
        self._hooks: dict[str, asyncio.Task[None]] = {}

    def stop_all(self) -> None:
        for task in self._hooks.values():
            task.cancel()
        self._hooks.clear()

    def hooked(self, container: Container) -> bool:
        """Whether its postStart hook is still running: what comes after it in the pod waits."""
        return container.name in self._hooks

    async def ensure(self, pod: Obj, container: Container, address: str, lookup: Lookup) -> float | None:
        """Start what should run and does not. Seconds until there is something to do, or None."""
        record = container.record
        if container.running:
            if record is not None and record.digest != digest_of(container.spec):
                kind = "Init container" if container.init else "Container"
                self._prober.kill(container, f"{kind} {container.name} definition changed, will be restarted")
            return None
        self._prober.stop(container)
        if container.ended is not None:
            if not restarts(spec_of(pod).get("restartPolicy") or "Always", container):
                return None
            if record is not None and record.digest == digest_of(container.spec):
                delay = self._backoff(pod, container)
                if delay > 0:
                    return delay
        return await self._start(pod, container, address, lookup)

    def _backoff(self, pod: Obj, container: Container) -> float:
        """Seconds until the next attempt; the first restart is immediate."""
        settings, record = self._node.settings, container.record
        if record is None or record.ended is None or record.restarts_in_a_row == 0:
            return 0.0
        growth = float(2 ** min(record.restarts_in_a_row - 1, 20))
        delay = min(settings.restart_backoff_cap, settings.restart_backoff * growth)
        finished = parse_time(record.ended.finished) or self._node.clock.now()
        left = delay - (self._node.clock.now() - finished).total_seconds()
        if left > 0:
            named = f"container={container.name} pod={pod_format(pod)}"
            if container.waiting is None or container.waiting.reason != "CrashLoopBackOff":
                text = f"Back-off restarting failed container {container.name} in pod {pod_format(pod)}"
                self._node.warn(pod, "BackOff", text, container_field(container))
            text = f"back-off {go_duration(delay)} restarting failed {named}"
            container.waiting = Waiting("CrashLoopBackOff", text)
        return left

    async def _start(self, pod: Obj, container: Container, address: str, lookup: Lookup) -> float | None:
        field = container_field(container)
        try:
            launch = prepare(self._node, pod, container, self._directory, address, lookup)
            await container.start(launch, title=name_of(pod))
        except ImageProblem as problem:
            return self._no_image(pod, container, problem)
        except ConfigProblem as problem:
            self._node.warn(pod, "Failed", f"Error: {problem}", field)
            container.waiting = Waiting("CreateContainerConfigError", str(problem))
            return _REFUSED_RETRY
        except SpawnError as problem:
            self._node.warn(pod, "Failed", f"Error: {problem}", field)
            container.waiting = Waiting("RunContainerError", str(problem))
            return _REFUSED_RETRY
        except OSError as problem:
            log.info("no warm parent", extra={"pod": name_of(pod), "reason": str(problem)})
            container.waiting = Waiting("ContainerCreating", "waiting for the warm parent")
            return _SPAWN_RETRY
        image = container.spec.get("image")
        self._node.tell(pod, "Pulled", f'Container image "{image}" already present on machine', field)
        self._node.tell(pod, "Created", "Container created", field)
        self._node.tell(pod, "Started", "Container started", field)
        log.info("started", extra={"pod": name_of(pod), "container": container.name, "process": container.identity})
        if hook := (container.spec.get("lifecycle") or {}).get("postStart"):
            self._hook(pod, container, address, hook)
        else:
            self._prober.begin(pod, container, address)
        return None

    def _no_image(self, pod: Obj, container: Container, problem: ImageProblem) -> float | None:
        """First the failure itself, then the back-off that quotes it; only a new image ends that."""
        field, image, waiting = container_field(container), container.spec.get("image"), container.waiting
        if container.spec.get("imagePullPolicy") == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            if waiting is None or waiting.message != text:
                self._node.warn(pod, "ErrImageNeverPull", text, field)
                self._node.warn(pod, "Failed", "Error: ErrImageNeverPull", field)
            container.waiting = Waiting("ErrImageNeverPull", text)
            return None
        tried = f"ErrImagePull: {problem}"
        backed_off = f'Back-off pulling image "{image}": {tried}'
        if waiting is not None and waiting.message == backed_off:
            return None
        if waiting is None or waiting != Waiting("ErrImagePull", str(problem)):
            self._node.tell(pod, "Pulling", f'Pulling image "{image}"', field)
            self._node.warn(pod, "Failed", f'Failed to pull image "{image}": {problem}', field)
            self._node.warn(pod, "Failed", "Error: ErrImagePull", field)
            container.waiting = Waiting("ErrImagePull", str(problem))
            return _PULL_RETRY
        self._node.tell(pod, "BackOff", f'Back-off pulling image "{image}"', field)
        self._node.warn(pod, "Failed", "Error: ImagePullBackOff", field)
        container.waiting = Waiting("ImagePullBackOff", backed_off)
        return None

    # -- postStart ---------------------------------------------------------------------------------------------------

    def _hook(self, pod: Obj, container: Container, address: str, hook: Obj) -> None:
        """In a task of its own: a hook has no limit, and a pod may be deleted meanwhile."""
        task = asyncio.create_task(self._run_hook(pod, container, address, hook), name=f"postStart {container.name}")
        self._hooks[container.name] = task
        task.add_done_callback(lambda done: self._hook_done(container.name, done))

    def _hook_done(self, name: str, task: asyncio.Task[None]) -> None:
        if self._hooks.get(name) is task:
            del self._hooks[name]
        self._on_change()

    async def _run_hook(self, pod: Obj, container: Container, address: str, hook: Obj) -> None:
        problem = await self._while_running(
            container, run_hook(container, hook, container.launch, self._node.spawner, address, None)
        )
        if not container.running:
            return
        if problem:
            self._node.warn(pod, "FailedPostStartHook", "PostStartHook failed", container_field(container))
            self._prober.kill(container, "FailedPostStartHook")
        else:
            self._prober.begin(pod, container, address)

    @staticmethod
    async def _while_running(container: Container, hook: Coroutine[Any, Any, str]) -> str:
        """A hook ends with its container."""
        ending = asyncio.create_task(container.ended_within(None))
        running = asyncio.create_task(hook)
        try:
            await asyncio.wait([ending, running], return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else ""
        finally:
            for task in (ending, running):
                task.cancel()
            await asyncio.gather(ending, running, return_exceptions=True)

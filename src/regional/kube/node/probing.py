"""The probes of a pod's containers: started with the container, stopped with it, and what follows from their word."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from regional.kube.node.containers import Container
from regional.kube.node.context import NodeContext
from regional.kube.node.hooks import run_beside
from regional.kube.node.probes import Kind, Probe, keep_looking, probe_of
from regional.kube.objects import Obj, spec_of, status_of


class Prober:
    def __init__(self, node: NodeContext, on_change: Callable[[], None]) -> None:
        self._node = node
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._kills: dict[str, asyncio.Task[None]] = {}

    def begin(self, pod: Obj, container: Container, address: str) -> None:
        self.stop(container)
        task = asyncio.create_task(self._run(pod, container, address), name=f"probes {container.name}")
        self._tasks[container.name] = task

    def resume(self, pod: Obj, container: Container, address: str) -> None:
        """An adopted container goes on being what it was last said to be, until a probe says otherwise."""
        known = [*(status_of(pod).get("containerStatuses") or []), *(status_of(pod).get("initContainerStatuses") or [])]
        told: Obj = next((s for s in known if s["name"] == container.name), {})
        if told.get("restartCount") == container.attempts:
            container.started, container.ready = bool(told.get("started")), bool(told.get("ready"))
        self.begin(pod, container, address)

    def stop(self, container: Container) -> None:
        if task := self._tasks.pop(container.name, None):
            task.cancel()

    def stop_all(self) -> None:
        for task in (*self._tasks.values(), *self._kills.values()):
            task.cancel()
        self._tasks.clear()
        self._kills.clear()

    def kill(self, pod: Obj, container: Container, why: str) -> None:
        """End a container that shall be started anew, with its grace."""
        if container.name in self._kills or not container.running:
            return
        self._node.tell(pod, "Killing", f"{why}, will be restarted")
        task = asyncio.create_task(self._kill(pod, container))
        self._kills[container.name] = task
        task.add_done_callback(lambda _: self._kills.pop(container.name, None))

    async def _kill(self, pod: Obj, container: Container) -> None:
        grace = spec_of(pod).get("terminationGracePeriodSeconds", 30)
        container.signal(signal.SIGTERM)
        if not await container.ended_within(float(grace)):
            container.signal(signal.SIGKILL)
            await container.ended_within(5.0)

    async def _run(self, pod: Obj, container: Container, address: str) -> None:
        startup = self._probe("Startup", pod, container, address)
        if startup is not None and not container.started:
            await keep_looking(startup, self._node.clock, self._verdict("Startup", pod, container))
        container.started = True
        probes = []
        for kind in ("Readiness", "Liveness"):
            probe = self._probe(kind, pod, container, address)
            if probe is not None:
                passed = container.ready if kind == "Readiness" else False
                probes.append(keep_looking(probe, self._node.clock, self._verdict(kind, pod, container), passed=passed))
            elif kind == "Readiness":
                container.ready = True
        self._on_change()
        await asyncio.gather(*probes)

    def _probe(self, kind: Kind, pod: Obj, container: Container, address: str) -> Probe | None:
        async def run(argv: list[str], seconds: float) -> tuple[int, str]:
            if container.launch is None:
                return -1, "the container's environment is not known yet"
            return await run_beside(container, container.launch, self._node.spawner, argv, seconds)

        probe = probe_of(kind, container.spec, address, run)
        if probe is not None and not probe.supported:
            self._node.warn(
                pod, "ProbeWarning", f"{kind} probe of {container.name} is skipped: only http, tcp and exec"
            )
            return None
        return probe

    def _verdict(self, kind: Kind, pod: Obj, container: Container) -> Callable[[bool, str], None]:
        def verdict(ok: bool, message: str) -> None:
            if not ok:
                self._node.warn(pod, "Unhealthy", f"{kind} probe failed: {message}")
            if kind == "Readiness":
                container.ready = ok
            elif not ok:
                self.kill(pod, container, f"Container {container.name} failed {kind.lower()} probe")
            self._on_change()

        return verdict

"""The probes of a pod's containers: started with the container, stopped with it, and what follows from their word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from regional.kube.node.containers import Container
from regional.kube.node.context import NodeContext, container_field
from regional.kube.node.environment import expand
from regional.kube.node.hooks import run_beside
from regional.kube.node.probes import Kind, Probe, keep_looking, probe_of
from regional.kube.objects import Obj, spec_of, status_of

End = Callable[[Container, str, float | None], Coroutine[Any, Any, None]]


class Prober:
    def __init__(self, node: NodeContext, on_change: Callable[[], None], end: End) -> None:
        """`end` stops a container in order, with its hook and its grace (or this many seconds)."""
        self._node = node
        self._on_change = on_change
        self._end = end
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

    def kill(self, container: Container, why: str, grace: float | None = None) -> None:
        """End a container that is not to go on; what becomes of it then, the pod's worker decides."""
        if container.name in self._kills or not container.running:
            return
        task = asyncio.create_task(self._end(container, why, grace), name=f"end {container.name}")
        self._kills[container.name] = task
        task.add_done_callback(lambda _: self._kills.pop(container.name, None))

    async def _run(self, pod: Obj, container: Container, address: str) -> None:
        startup = self._probe("Startup", container, address)
        if startup is not None and not container.started:
            verdict, complain = self._verdict("Startup", pod, container), self._complaint("Startup", pod, container)
            await keep_looking(startup, self._node.clock, verdict, complain)
        container.started = True
        probes = []
        for kind in ("Readiness", "Liveness"):
            probe = self._probe(kind, container, address)
            if probe is not None:
                passed = container.ready if kind == "Readiness" else False
                verdict, complain = self._verdict(kind, pod, container), self._complaint(kind, pod, container)
                probes.append(keep_looking(probe, self._node.clock, verdict, complain, passed=passed))
            elif kind == "Readiness":
                container.ready = True
        self._on_change()
        await asyncio.gather(*probes)

    def _probe(self, kind: Kind, container: Container, address: str) -> Probe | None:
        async def run(argv: list[str], seconds: float) -> tuple[int, str]:
            if container.launch is None:
                return -1, "the container's environment is not known yet"
            command = [expand(word, container.launch.env) for word in argv]
            return await run_beside(container, container.launch, self._node.spawner, command, seconds)

        return probe_of(kind, container.spec, address, run)

    def _verdict(self, kind: Kind, pod: Obj, container: Container) -> Callable[[bool], None]:
        """What follows once the probe's thresholds are passed."""
        probe = container.spec.get(f"{kind.lower()}Probe") or {}
        what = f"{'Init container' if container.init else 'Container'} {container.name} failed {kind.lower()} probe"
        if container.sidecar or spec_of(pod).get("restartPolicy") != "Never":
            what += ", will be restarted"

        def verdict(ok: bool) -> None:
            if kind == "Readiness":
                container.ready = ok
            elif not ok:
                self.kill(container, what, probe.get("terminationGracePeriodSeconds"))
            self._on_change()

        return verdict

    def _complaint(self, kind: Kind, pod: Obj, container: Container) -> Callable[[str], None]:
        field = container_field(container)
        return lambda message: self._node.warn(pod, "Unhealthy", f"{kind} probe failed: {message}", field)

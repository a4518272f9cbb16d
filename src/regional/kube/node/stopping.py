"""Ending a container: its preStop hook, SIGTERM, its grace, SIGKILL."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from regional.kube.node.containers import Container, Launch
from regional.kube.node.context import NodeContext, container_field
from regional.kube.node.hooks import run_hook
from regional.kube.objects import Obj

_LOOK_SECONDS = 0.5  # how soon a deadline that others have moved is seen


class Stopper:
    def __init__(self, node: NodeContext, launch_of: Callable[[Container], Awaitable[Launch | None]]) -> None:
        self._node = node
        self._launch_of = launch_of

    async def stop(
        self, pod: Obj, container: Container, address: str, deadline: Callable[[], float], message: str = ""
    ) -> None:
        """`deadline` is asked again and again, on the monotonic clock: a second delete may shorten it meanwhile."""
        field = container_field(container)
        self._node.tell(pod, "Killing", message or f"Stopping container {container.name}", field)
        hook = (container.spec.get("lifecycle") or {}).get("preStop")
        left = deadline() - self._node.clock.monotonic()
        if hook and left > 0:
            launch = await self._launch_of(container)
            if await run_hook(container, hook, launch, self._node.spawner, address, left):
                # What a hook says may be secret: it is not repeated in an event.
                self._node.warn(pod, "FailedPreStopHook", "PreStopHook failed", field)
        container.signal(signal.SIGTERM)
        while container.running:
            left = deadline() - self._node.clock.monotonic()
            if left <= 0:
                container.signal(signal.SIGKILL)
            await container.ended_within(min(_LOOK_SECONDS, left) if left > 0 else _LOOK_SECONDS)

"""The life of a role in a pod: its dependencies, its health door, its doors to others, and an orderly end.

A role never dies because something it needs is away: it says so on /readyz and in one log line, and keeps trying.
It does die, loudly, when its own code fails: Kubernetes restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import aiohttp
import msgspec
import prometheus_client

from regional.core.web import Check, health_app, serving, stop_event

log = logging.getLogger(__name__)

_up = prometheus_client.Gauge("regional_dependency_up", "1 while the dependency answers", ["dependency"])


class RoleSettings(msgspec.Struct, kw_only=True, frozen=True):
    pod_ip: str = "127.0.0.1"
    pod_name: str = ""
    health_port: int = 8083
    log_level: str = "info"


class Dependency:
    """Something a role needs. Changes of its state are logged once, however often they are reported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason = "not connected yet"
        self.detail = ""
        self.on_change: Callable[[], None] = lambda: None
        _up.labels(name).set(0)

    def up(self, detail: str) -> None:
        changed = bool(self.reason) or detail != self.detail
        self.reason, self.detail = "", detail
        _up.labels(self.name).set(1)
        if changed:
            log.info("connected", extra={"dependency": self.name, "detail": detail})
            self.on_change()

    def down(self, reason: str) -> None:
        if reason != self.reason:
            log.warning("not connected", extra={"dependency": self.name, "reason": reason})
        self.reason = reason or "unknown"
        _up.labels(self.name).set(0)

    async def check(self) -> str:
        return self.reason


class Backoff:
    """Pauses between attempts: short at first, because most outages here are restarts of a second."""

    def __init__(self, first: float = 0.1, last: float = 2.0) -> None:
        self._first, self._last = first, last
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    async def pause(self) -> None:
        await asyncio.sleep(self._next * random.uniform(0.7, 1.0))
        self._next = min(self._last, self._next * 2)


class Door(msgspec.Struct, frozen=True):
    """An ASGI application on a port of the pod."""

    app: Any
    port: int


async def run_role(
    settings: RoleSettings,
    dependencies: Sequence[Dependency],
    tasks: Sequence[Coroutine[Any, Any, None]],
    *,
    doors: Sequence[Door] = (),
    says: str,
) -> None:
    """Until SIGTERM. `says` (what the role now does) is logged each time that everything has come to be connected."""
    stop = stop_event()
    checks: dict[str, Check] = {dependency.name: dependency.check for dependency in dependencies}
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(serving(health_app(checks), settings.pod_ip, settings.health_port))
        for door in doors:
            await stack.enter_async_context(serving(door.app, settings.pod_ip, door.port))
        for dependency in dependencies:
            dependency.on_change = lambda: _announce(dependencies, says)
        running = [asyncio.create_task(task) for task in tasks]
        ending = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([ending, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                task.result()
            log.info("stopping")
        finally:
            for task in (ending, *running):
                task.cancel()
            await asyncio.gather(ending, *running, return_exceptions=True)


def _announce(dependencies: Sequence[Dependency], says: str) -> None:
    if not any(dependency.reason for dependency in dependencies):
        connected = ", ".join(dependency.detail for dependency in dependencies)
        log.info("ready: connected to %s; %s", connected, says)


async def keep_asking(dependency: Dependency, ask: Callable[[], Awaitable[str]], every: float = 5.0) -> None:
    """While the role lives: `ask` says what it is connected to, or raises OSError or TimeoutError with the reason."""
    backoff = Backoff()
    while True:
        try:
            dependency.up(await ask())
            backoff.reset()
            await asyncio.sleep(every)
        except (OSError, TimeoutError) as error:
            dependency.down(str(error) or type(error).__name__)
            await backoff.pause()


async def keep_reaching(url: str, dependency: Dependency) -> None:
    """An HTTP service of ours, by name."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:

        async def ask() -> str:
            try:
                async with session.get(url) as answer:
                    if answer.status >= 400:
                        raise ConnectionError(f"{url} answers {answer.status}")
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ConnectionError(f"{url}: {error or type(error).__name__}") from None
            return url

        await keep_asking(dependency, ask)

"""Time as something that is handed in, so that timing logic runs in virtual time under test."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Stands still until `advance` is called; sleepers wake in order of their deadline."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence = itertools.count()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._start.timestamp() + self._elapsed, UTC)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + max(0.0, seconds), next(self._sequence), future))
        await future

    async def advance(self, seconds: float) -> None:
        target = self._elapsed + seconds
        for _ in range(10):
            await asyncio.sleep(0)
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, deadline)
            if not future.done():
                future.set_result(None)
            for _ in range(10):
                await asyncio.sleep(0)
        self._elapsed = target
        for _ in range(10):
            await asyncio.sleep(0)


def rfc3339(moment: datetime) -> str:
    """Kubernetes' form: UTC, whole seconds, `Z`."""
    return moment.astimezone(UTC).isoformat()[:19] + "Z"  # strftime is ten times slower

"""The reconcile loop: a queue of keys that coalesces, retries with backoff, and never runs one key twice at once.

Level, not edge: `add(key)` only says "look". A periodic scan behind every notification is the caller's duty
(`resync` adds all keys at an interval).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from regional.core.clock import Clock, SystemClock
from regional.core.queue_metrics import QueueStats, show

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)
SCAN_STEP = 500
"""So many keys of a scan are added before others have their turn."""


class WorkQueue(Generic[K]):
    def __init__(
        self,
        clock: Clock | None = None,
        base: float = 0.05,
        cap: float = 30.0,
        aside: Callable[[K], bool] = lambda _: False,
    ) -> None:
        """Keys of which `aside` is true when they are added wait in a line of their own, and the two lines take turns:
        many of one kind do not hold up one of the other."""
        self._clock: Clock = clock or SystemClock()
        self._base, self._cap, self._is_aside = base, cap, aside
        self._waiting: dict[K, float] = {}  # since when
        self._aside: dict[K, float] = {}
        self._turn = False
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, tuple[float, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()
        self.stats = QueueStats()

    def add(self, key: K) -> None:
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting and key not in self._aside:
            line = self._aside if self._is_aside(key) else self._waiting
            line[key] = self._clock.monotonic()
            self.stats.added += 1
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """The earlier of two moments for one key wins: the pass at that moment says when to look again after it.

        A pass that begins takes the key's pending moment with it; one that is set during the pass stands.
        """
        deadline = self._clock.monotonic() + seconds
        if (pending := self._timers.get(key)) is not None:
            if pending[0] <= deadline:
                return
            pending[1].cancel()
        self._timers[key] = deadline, asyncio.create_task(self._later(key, seconds))

    async def _later(self, key: K, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timers.pop(key, None)
        self.add(key)

    async def take(self) -> K:
        while not len(self):
            self._wake.clear()
            await self._wake.wait()
        self._turn = not self._turn
        line = self._aside if self._aside and (self._turn or not self._waiting) else self._waiting
        key = next(iter(line))
        self._running[key] = now = self._clock.monotonic()
        self.stats.waited_seconds += now - line.pop(key)
        if (pending := self._timers.pop(key, None)) is not None:
            pending[1].cancel()
        return key

    def done(self, key: K, *, failed: bool = False) -> None:
        self.stats.passes += 1
        now = self._clock.monotonic()
        self.stats.worked_seconds += now - self._running.pop(key, now)
        if failed:
            self.stats.failed += 1
            count = self._failures[key] = self._failures.get(key, 0) + 1
            self.add_after(key, min(self._cap, self._base * 2 ** min(count, 16)))
        else:
            self._failures.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._aside)


async def run_workers(
    name: str,
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[float | None]],
    *,
    workers: int = 1,
    resync: Callable[[], Iterable[K]] | None = None,
    resync_seconds: float = 60.0,
    clock: Clock | None = None,
) -> None:
    """Run until cancelled. `reconcile(key)` returns seconds after which to look again, or None."""
    clock = clock or SystemClock()

    async def work() -> None:
        while True:
            key = await queue.take()
            try:
                again = await reconcile(key)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.warning("reconcile failed", extra={"controller": name, "key": str(key), "reason": str(error)})
                log.debug("reconcile traceback", exc_info=True)
                queue.done(key, failed=True)
            else:
                queue.done(key)
                if again is not None:
                    queue.add_after(key, again)
            # A pass that finds nothing to do never waits: ten thousand of them in a row must not hold up the loop.
            await asyncio.sleep(0)

    async def scan() -> None:
        while resync is not None:
            await clock.sleep(resync_seconds)
            for count, key in enumerate(list(resync()), start=1):
                queue.add(key)
                if count % SCAN_STEP == 0:
                    await asyncio.sleep(0)

    unshow = show(name, queue.stats, queue.__len__)
    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    if resync is not None:
        tasks.append(asyncio.create_task(scan()))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        queue.close()
        unshow()

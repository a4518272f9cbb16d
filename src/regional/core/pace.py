"""How fast a connection may send, where whoever is at its other end discards what comes faster."""

from __future__ import annotations

import asyncio
from collections import deque

from regional.core.clock import Clock, SystemClock

WINDOW_SECONDS = 1.05
"""A second, and a little for what the network pushes together."""


class Pace:
    """In no second more messages or more bytes than so many; whoever comes first goes first."""

    def __init__(self, messages: int, size: int, clock: Clock | None = None) -> None:
        self._messages, self._size = messages, size
        self._clock: Clock = clock or SystemClock()
        self._sent: deque[tuple[float, int]] = deque()
        self._bytes = 0
        self._turn = asyncio.Lock()

    async def turn(self, size: int) -> None:
        """Wait until a message of so many bytes may go. One that is larger than all of a second goes alone."""
        async with self._turn:
            while not self._fits(size):
                await self._clock.sleep(self._sent[0][0] + WINDOW_SECONDS - self._clock.monotonic())
            self._sent.append((self._clock.monotonic(), size))
            self._bytes += size

    def _fits(self, size: int) -> bool:
        now = self._clock.monotonic()
        while self._sent and self._sent[0][0] + WINDOW_SECONDS <= now:
            self._bytes -= self._sent.popleft()[1]
        return not self._sent or (len(self._sent) < self._messages and self._bytes + size <= self._size)

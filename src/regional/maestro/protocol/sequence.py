"""Sequence ids of statuses: snowflakes of node 1, so that a server can tell which of two statuses is newer.

They follow the agent's clock but never go back in one process, and never behind what the server has (`above`): a
status with an old id would be ignored for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

EPOCH_MS = 1288834974657
NODE = 1  # Go servers refuse to compare ids of different nodes
_STEPS = 1 << 12
FURTHEST_MS = 366 * 24 * 3600 * 1000
_EPOCH = datetime.fromtimestamp(EPOCH_MS // 1000, UTC) + timedelta(milliseconds=EPOCH_MS % 1000)


class SequenceIds:
    def __init__(self, milliseconds: Callable[[], int] | None = None, floor: int = 0) -> None:
        self._now = milliseconds or (lambda: time.time_ns() // 1_000_000)
        self._last = max(self._now() - EPOCH_MS - 1, floor >> 22)
        self._step = 0

    def next(self) -> int:
        tick = self._now() - EPOCH_MS
        if tick > self._last:
            self._last, self._step = tick, 0
        else:
            self._step += 1
            if self._step == _STEPS:
                self._last, self._step = self._last + 1, 0
        return (self._last << 22) | (NODE << 12) | self._step

    def above(self, sequence: int) -> None:
        """From now on only newer ones than this. One from the far future is taken for what it is, a mistake."""
        tick = sequence >> 22
        if self._last < tick < self._now() - EPOCH_MS + FURTHEST_MS:
            self._last, self._step = tick, _STEPS - 1


def parts(sequence: int) -> tuple[datetime, int, int]:
    """(moment, node, step)."""
    return _EPOCH + timedelta(milliseconds=sequence >> 22), (sequence >> 12) & 0x3FF, sequence & 0xFFF

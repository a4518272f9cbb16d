"""Streams that are pushed to their clients, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

TURNS = 64  # watches served in one turn of the event loop


@runtime_checkable
class Pushed(Protocol):
    """A stream that says when to look, instead of being waited for."""

    @property
    def idle(self) -> bool:
        """Whether another pull, now, would bring nothing."""

    def pull(self) -> bytes | None:
        """What there is by now (empty: nothing yet); None at its end."""

    def notify(self, wake: Callable[[], None]) -> None:
        """`wake` is called whenever a pull may bring something."""

    def close(self) -> None: ...


class Turns:
    """Who has something to push: some of them in each turn of the loop, so that an event which a thousand watch holds
    nobody else up; and each event is framed once, since all get the same bytes one after another."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._ordered = False
        self._chunk = self._framed = b""

    def add(self, work: Callable[[], None]) -> None:
        self._due.append(work)
        if not self._ordered:
            self._ordered = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        for _ in range(min(TURNS, len(self._due))):
            self._due.popleft()()
        if self._due:
            asyncio.get_running_loop().call_soon(self._take)
        else:
            self._ordered = False
            self._chunk = self._framed = b""

    def framed(self, chunk: bytes) -> bytes:
        if chunk is not self._chunk:
            self._chunk, self._framed = chunk, framed(chunk)
        return self._framed


def framed(chunk: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)

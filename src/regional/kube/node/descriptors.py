"""Pipes and terminals of processes beside a container, read and written without blocking the loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Any

_BLOCK = 1 << 16


class Descriptor:
    """One end of a pipe, or a terminal's master."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        self._reading: asyncio.Future[None] | None = None
        self._finished = False

    async def read(self) -> bytes:
        """What is there next; b"" at the end."""
        while self.number >= 0:
            try:
                return os.read(self.number, _BLOCK)
            except BlockingIOError:
                if self._finished:
                    break
                await self._readable()
            except OSError:  # EIO: a terminal without anybody at it
                break
        return b""

    async def write(self, data: bytes) -> None:
        """Raises OSError when nobody will ever read it."""
        loop, view = asyncio.get_running_loop(), memoryview(data)
        while view:
            if self.number < 0:
                raise BrokenPipeError
            try:
                view = view[os.write(self.number, view) :]
            except BlockingIOError:
                await _ready(loop.add_writer, loop.remove_writer, self.number)

    def finish(self) -> None:
        """The writer has ended, so what cannot be read now will never come (from it: its children may live on)."""
        self._finished = True
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    def resize(self, width: int, height: int) -> None:
        if self.number >= 0:
            fcntl.ioctl(self.number, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def close(self) -> None:
        if self.number >= 0:
            loop, number, self.number = asyncio.get_running_loop(), self.number, -1
            loop.remove_reader(number)
            loop.remove_writer(number)
            os.close(number)

    async def _readable(self) -> None:
        loop, number = asyncio.get_running_loop(), self.number
        self._reading = loop.create_future()
        loop.add_reader(number, _wake, self._reading)
        try:
            await self._reading
        finally:
            if self.number == number:
                loop.remove_reader(number)


async def _ready(add: Callable[..., Any], remove: Callable[[int], Any], number: int) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(number, _wake, future)
    try:
        await future
    finally:
        remove(number)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""A line to the server that breaks: bytes pass until somebody cuts, and nobody gets through while it is down."""

from __future__ import annotations

import asyncio
import contextlib
import random

PORT = 7443


class CuttingProxy:
    """On the server's own address, so that its certificate holds there too."""

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address, self._chance = address, chance
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.down = False
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"https://{self._address}:{PORT}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._address, PORT)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut(1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, share: float) -> None:
        """Break some of the lines, in the middle of whatever they carry."""
        for writer in list(self._lines):
            if self._chance.random() < share:
                self.cuts += 1
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(writer)
        try:
            if not self.down:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._lines.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._address, 6443)
        self._lines.add(far_writer)
        ways = [asyncio.create_task(_pass(reader, far_writer)), asyncio.create_task(_pass(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._lines.discard(far_writer)
            far_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

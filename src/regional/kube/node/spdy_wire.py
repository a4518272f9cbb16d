"""An exec session's channels as SPDY streams, which the client opens one by one, each with its kind in a header."""

from __future__ import annotations

import asyncio
import contextlib

from regional.kube.node.exec_sessions import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, Wanted
from regional.kube.node.spdy import Carrier, SpdyConnection, SpdyStream

OPEN_SECONDS = 30.0
_KINDS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
_QUEUED = 64


class SpdyWire:
    def __init__(self, carrier: Carrier, wanted: Wanted) -> None:
        self._spdy = SpdyConnection(carrier, self._welcome, self._deliver)
        self._streams: dict[int, SpdyStream] = {}
        self._received: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(_QUEUED)
        asked = {STDIN: wanted.stdin, STDOUT: wanted.stdout, STDERR: wanted.stderr, RESIZE: wanted.tty, ERROR: True}
        if wanted.tty:
            asked[STDERR] = False  # a terminal has one output
        self._missing = {channel for channel, needed in asked.items() if needed}
        self._complete = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="spdy")

    async def opened(self) -> bool:
        """Whether the client has opened all the streams that it asked for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_SECONDS):
                await self._complete.wait()
        return not self._missing

    async def _run(self) -> None:
        try:
            await self._spdy.run()
        finally:
            self._complete.set()
        await self._received.put(None)  # unless it is we who leave: then nobody takes it, and there may be no room

    def _welcome(self, stream: SpdyStream) -> bool:
        channel = _KINDS.get(stream.headers.get("streamtype", ""))
        if channel is None or channel in self._streams:
            return False
        self._streams[channel] = stream
        self._missing.discard(channel)
        if not self._missing:
            self._complete.set()
        return True

    async def _deliver(self, stream: SpdyStream, data: bytes) -> None:
        channel = _KINDS[stream.headers["streamtype"]]
        await self._received.put((channel, data) if data else (CLOSE, bytes([channel])))

    async def receive(self) -> tuple[int, bytes] | None:
        return await self._received.get()

    async def send(self, channel: int, data: bytes) -> None:
        if channel in self._streams:
            await self._streams[channel].write(data)

    async def look(self) -> None:
        await self._spdy.ping()

    async def close(self) -> None:
        with contextlib.suppress(OSError):
            for channel in (STDOUT, STDERR, ERROR):
                if channel in self._streams:
                    await self._streams[channel].close()
        await self._spdy.leave()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

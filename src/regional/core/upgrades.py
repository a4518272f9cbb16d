"""HTTP connections that become something else: a request with `Upgrade:` is handed over with its raw streams.

uvicorn knows one sort of upgrade and wants a library for it. What passes here is either handed on unread (an API
server between a client and a node) or spoken by us, so plain streams are all that is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)
LINGER_SECONDS = 5.0
_KINDS = (b"websocket", b"spdy/3.1")


class Upgrade:
    """One such request. Whoever takes it answers it, with a status line of its own."""

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        state: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        path, _, query = target.decode("latin-1").partition("?")
        self.method = method
        self.path = unquote(path)
        self.query: list[tuple[str, str]] = parse_qsl(query, keep_blank_values=True)
        self.headers: dict[str, str] = {}
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}\n{value}" if name in self.headers else value
        self.state = state
        self.reader = reader
        self.writer = writer

    @property
    def kind(self) -> str:
        return self.headers.get("upgrade", "").lower()

    def refuse(self, status: int, reason: str, headers: dict[str, str], body: bytes) -> None:
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "connection: close", "", ""])
        self.writer.write(head.encode("latin-1") + body)


class Upgrades:
    """All connections of one server that were handed over, each in a task of its own."""

    def __init__(self, wanted: Callable[[bytes], bool], handle: Callable[[Upgrade], Awaitable[None]]) -> None:
        self._wanted = wanted
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def protocol(self, base: type[HttpToolsProtocol] = HttpToolsProtocol) -> type[HttpToolsProtocol]:
        """`wanted` is asked with the request's target; what it does not want stays an ordinary request."""
        upgrades = self

        class UpgradingProtocol(base):  # type: ignore[misc, valid-type]
            def _should_upgrade(self) -> bool:
                # A connection on which something is still to be answered cannot be given away.
                free = self.cycle is None or self.cycle.response_complete
                return free and self._get_upgrade() in _KINDS and upgrades._wanted(self.url)

            def data_received(self, data: bytes) -> None:
                try:
                    super().data_received(data)
                except _HandOver as over:
                    # llhttp stops after the head; a client that does not wait for its answer has sent more.
                    assert isinstance(over.__context__, httptools.HttpParserUpgrade)
                    upgrades._take(self, data[over.__context__.args[0] :])

            def handle_websocket_upgrade(self) -> None:
                raise _HandOver

        return UpgradingProtocol

    def _take(self, protocol: Any, rest: bytes) -> None:
        loop = asyncio.get_running_loop()
        transport: asyncio.Transport = protocol.transport
        protocol.connections.discard(protocol)
        reader = asyncio.StreamReader(loop=loop)
        streams = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(streams)
        streams.connection_made(transport)
        if rest:
            reader.feed_data(rest)
        writer = asyncio.StreamWriter(transport, streams, reader, loop)
        scope = protocol.scope
        upgrade = Upgrade(scope["method"], protocol.url, scope["headers"], scope["state"], reader, writer)
        task = asyncio.create_task(self._run(upgrade), name=f"upgrade {upgrade.path}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, upgrade: Upgrade) -> None:
        try:
            await self._handle(upgrade)
        except (ConnectionError, httptools.HttpParserError, EOFError, TimeoutError):
            pass  # the peer went away
        except Exception:
            log.exception("an upgraded connection failed", extra={"path": upgrade.path})
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                upgrade.writer.close()


class _HandOver(Exception):
    """Leaves uvicorn's own parsing at the end of the head; its context is the parser's word, which knows where."""


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All of it, then say that there is no more."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def join(one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[Any, Any]) -> None:
    """Hand bytes both ways until either side is done: upgraded protocols say good-bye inside the stream."""
    ways = [asyncio.create_task(copy(one[0], other[1])), asyncio.create_task(copy(other[0], one[1]))]
    writers = (one[1], other[1])
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for writer in writers:
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()
    await asyncio.gather(*map(_see_off, writers))


async def _see_off(writer: asyncio.StreamWriter) -> None:
    """What is on its way to one who does not read is not waited for as long as TLS would (half a minute)."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            await writer.wait_closed()
    writer.transport.abort()

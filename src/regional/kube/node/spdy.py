"""The server's side of SPDY/3.1, as far as Kubernetes speaks it: many streams in both directions on one connection.

kube-apiserver talks to kubelets with it, and `kubectl port-forward` does inside a WebSocket. Nobody there uses flow
control or priorities, so there is none here: a stream whose reader is slow holds up its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from regional.kube.node.spdy_dictionary import DICTIONARY

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 0x01
_VERSION = 0x8003
_REFUSED, _CANCEL = 3, 5
_BLOCK = 1 << 15
_HEADERS_LIMIT = 1 << 16
STREAMS_LIMIT = 1000


class Carrier(Protocol):
    """What the frames travel on: a connection itself, or the messages of a WebSocket."""

    async def read(self, size: int) -> bytes:
        """Exactly as many bytes. Raises EOFError or OSError at the end."""

    async def write(self, data: bytes) -> None: ...


class SpdyStream:
    def __init__(self, connection: SpdyConnection, number: int, headers: dict[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._closed = False

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _BLOCK):
            if self._closed:
                raise BrokenPipeError("the stream is closed")
            await self._connection.send_data(self.number, 0, data[start : start + _BLOCK])

    async def close(self) -> None:
        """There is nothing more to say; what the peer says may still come."""
        if not self._closed:
            self._closed = True
            await self._connection.send_data(self.number, _FIN, b"")

    async def reset(self) -> None:
        self._closed = True
        self._connection.forget(self.number)
        await self._connection.send_control(_RST_STREAM, 0, struct.pack("!II", self.number, _CANCEL))

    def was_reset(self) -> None:
        self._closed = True


class SpdyConnection:
    def __init__(
        self,
        carrier: Carrier,
        on_stream: Callable[[SpdyStream], bool],
        on_data: Callable[[SpdyStream, bytes], Awaitable[None]],
    ) -> None:
        """`on_stream` says whether a stream is welcome; `on_data` hears b"" when the peer is done with one."""
        self._carrier = carrier
        self._on_stream = on_stream
        self._on_data = on_data
        self._streams: dict[int, SpdyStream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._last = 0

    async def run(self) -> None:
        """Until the peer leaves, or says what is no SPDY."""
        with contextlib.suppress(EOFError, OSError, zlib.error):
            while True:
                first, second = struct.unpack("!II", await self._carrier.read(8))
                flags, payload = second >> 24, await self._carrier.read(second & 0xFFFFFF)
                if not first & 0x80000000:
                    await self._data(first, flags, payload)
                elif first >> 16 != _VERSION or not await self._control(first & 0xFFFF, flags, payload):
                    return

    async def _data(self, number: int, flags: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return  # it was closed meanwhile
        if payload:
            await self._on_data(stream, payload)
        if flags & _FIN:
            await self._on_data(stream, b"")

    async def _control(self, kind: int, flags: int, payload: bytes) -> bool:
        """False when the connection is over."""
        if kind == _SYN_STREAM and len(payload) >= 10:
            await self._opened(int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, flags, payload[10:])
        elif kind == _RST_STREAM and len(payload) >= 4:
            stream = self._streams.pop(int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, None)
            if stream is not None:
                stream.was_reset()
                await self._on_data(stream, b"")
        elif kind == _PING and len(payload) == 4 and payload[3] & 1:  # odd: the client's own, to be sent back
            await self.send_control(_PING, 0, payload)
        return kind != _GOAWAY

    async def _opened(self, number: int, flags: int, block: bytes) -> None:
        headers = _parse_headers(self._inflate.decompress(block, _HEADERS_LIMIT))
        stream = SpdyStream(self, number, headers)
        self._last = number
        if len(self._streams) >= STREAMS_LIMIT or not self._on_stream(stream):
            await self.send_control(_RST_STREAM, 0, struct.pack("!II", number, _REFUSED))
            return
        self._streams[number] = stream
        none = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send_control(_SYN_REPLY, 0, struct.pack("!I", number) + none)
        if flags & _FIN:
            await self._on_data(stream, b"")

    def forget(self, number: int) -> None:
        self._streams.pop(number, None)

    async def send_data(self, number: int, flags: int, payload: bytes) -> None:
        await self._carrier.write(struct.pack("!II", number, flags << 24 | len(payload)) + payload)

    async def send_control(self, kind: int, flags: int, payload: bytes) -> None:
        await self._carrier.write(struct.pack("!HHI", _VERSION, kind, flags << 24 | len(payload)) + payload)

    async def ping(self) -> None:
        await self.send_control(_PING, 0, struct.pack("!I", 2))  # even: the server's own

    async def leave(self) -> None:
        with contextlib.suppress(OSError):
            await self.send_control(_GOAWAY, 0, struct.pack("!II", self._last, 0))


class PlainCarrier:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, size: int) -> bytes:
        return await self._reader.readexactly(size)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _parse_headers(block: bytes) -> dict[str, str]:
    """Length, name, length, value; of several values of one name, the first."""

    def text(at: int) -> tuple[str, int]:
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        return block[at + 4 : end].decode("latin-1"), end

    headers: dict[str, str] = {}
    position = 4
    for _ in range(min(int.from_bytes(block[:4], "big"), 100)):
        name, position = text(position)
        value, position = text(position)
        headers[name.lower()] = value.partition("\0")[0]
    return headers

"""Whoever may run a command may send any bytes after that: they end their own connection, and nothing else."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from regional.kube.node.spdy import SpdyConnection, SpdyStream
from regional.kube.node.websocket import WebSocket


class Canned:
    """Bytes that were sent, then the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.written = b""

    async def read(self, size: int) -> bytes:
        if len(self._data) < size:
            raise EOFError
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    async def write(self, data: bytes) -> None:
        self.written += data


class Sink:
    """As much of a StreamWriter as is needed to be written to."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        return


async def heard(data: bytes) -> list[tuple[int, bytes]]:
    got: list[tuple[int, bytes]] = []

    async def on_data(stream: SpdyStream, data: bytes) -> None:
        got.append((stream.number, data))

    await SpdyConnection(Canned(data), lambda _: True, on_data).run()
    return got


@pytest.mark.parametrize("seed", range(50))
async def test_spdy(seed: int) -> None:
    dice = random.Random(seed)
    frames = b""
    for _ in range(20):
        payload = dice.randbytes(dice.randrange(40))
        kind = dice.choice([1, 2, 3, 4, 6, 7, 8, 9, dice.randrange(1 << 16)])
        head = struct.pack("!HH", dice.choice([0x8003, 0x8003, 0x8002]), kind)
        frames += (head if dice.random() < 0.8 else dice.randbytes(4)) + struct.pack("!I", len(payload)) + payload
    await heard(frames)
    await heard(dice.randbytes(2000))


@pytest.mark.parametrize("seed", range(50))
async def test_websocket(seed: int) -> None:
    dice = random.Random(seed)
    reader = asyncio.StreamReader()
    for _ in range(20):
        payload = dice.randbytes(dice.randrange(100))
        opcode = dice.choice([0x82, 0x02, 0x80, 0x89, 0x8A, dice.randrange(256)])
        reader.feed_data(bytes([opcode, 0x80 | len(payload)]) + b"mask" + payload)
    reader.feed_data(dice.randbytes(200))
    reader.feed_eof()
    socket = WebSocket(reader, Sink())  # type: ignore[arg-type]
    for _ in range(100):
        if await socket.receive() is None:
            return
    raise AssertionError("more messages than frames")


async def test_a_masked_message_in_pieces_is_read_whole() -> None:
    reader, sink = asyncio.StreamReader(), Sink()
    mask = b"\x01\x02\x03\x04"

    def frame(first: int, text: bytes) -> bytes:
        hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
        return bytes([first, 0x80 | len(text)]) + mask + hidden

    reader.feed_data(frame(0x02, b"one ") + frame(0x89, b"ping") + frame(0x80, b"message") + frame(0x88, b""))
    socket = WebSocket(reader, sink)  # type: ignore[arg-type]
    assert await socket.receive() == b"one message"
    assert sink.written == b"\x8a\x04ping"
    assert await socket.receive() is None

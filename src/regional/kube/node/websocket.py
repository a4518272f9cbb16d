"""The server's side of a WebSocket (RFC 6455) on plain streams: binary messages in, binary messages out.

Also works as the bare carrier of another protocol's bytes. No extensions are offered, so none is spoken.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import struct

from regional.core.upgrades import Upgrade

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # the RFC's own constant
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_MESSAGE_LIMIT = 32 << 20
NORMAL, PROTOCOL_ERROR, TOO_BIG = 1000, 1002, 1009


class WebSocketError(ConnectionError):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._closed = False

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has closed or is gone."""
        message = bytearray()
        try:
            while True:
                final, opcode, payload = await self._frame()
                if opcode == _CLOSE:
                    await self.close()
                    return None
                if opcode == _PING:
                    self._send(_PONG, payload)
                    await self._writer.drain()
                elif opcode != _PONG:
                    message += payload
                    if len(message) > _MESSAGE_LIMIT:
                        raise WebSocketError(TOO_BIG, "the message is too long")
                    if final:
                        return bytes(message)
        except WebSocketError as error:
            await self.close(error.code, str(error))
        except (OSError, EOFError):
            pass
        return None

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        final, opcode, masked, length = bool(first & 0x80), first & 0x0F, second & 0x80, second & 0x7F
        if first & 0x70 or opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG) or not masked:
            raise WebSocketError(PROTOCOL_ERROR, "not a frame of a client without extensions")
        if length == 126:
            (length,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if length > _MESSAGE_LIMIT or (opcode >= _CLOSE and length > 125):
            raise WebSocketError(TOO_BIG, "the frame is too long")
        mask = await self._reader.readexactly(4)
        return final, opcode, _unmasked(await self._reader.readexactly(length), mask)

    async def send(self, message: bytes) -> None:
        self._send(_BINARY, message)
        await self._writer.drain()

    async def ping(self) -> None:
        self._send(_PING, b"")
        await self._writer.drain()

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
        self._writer.write(head + payload)

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._send(_CLOSE, struct.pack("!H", code) + reason.encode()[:120])
            await self._writer.drain()


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    if not size:
        return b""
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def offered(upgrade: Upgrade) -> list[str]:
    joined = upgrade.headers.get("sec-websocket-protocol", "").replace("\n", ",")
    return [name.strip() for name in joined.split(",") if name.strip()]


def accept(upgrade: Upgrade, protocol: str) -> WebSocket:
    key = upgrade.headers.get("sec-websocket-key", "")
    digest = base64.b64encode(hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()
    upgrade.writer.write(
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {digest}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        ).encode()
    )
    return WebSocket(upgrade.reader, upgrade.writer)

"""One call of gRPC's health service (grpc.health.v1.Health/Check), for probes: one connection, one request, one answer.

HTTP/2 as far as one request needs it. The request's headers are written as literals, so no compression state is kept;
the answer's are skipped, since the message itself says how it is. A server that sends no message has refused.
"""

from __future__ import annotations

import asyncio
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_ACK, _END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_FRAME_LIMIT = 1 << 20
_STATUS = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


class HealthProblem(Exception):
    pass


async def check_health(host: str, port: int, service: str) -> str:
    """The service's status by its name in the protocol. Raises OSError if nobody answers."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        name = service.encode()
        message = b"\x0a" + _varint(len(name)) + name if name else b""
        writer.write(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, _headers(f"{host}:{port}"))
            + _frame(_DATA, _END_STREAM, 1, struct.pack("!BI", 0, len(message)) + message)
        )
        return _status(await _answer(reader, writer))
    except asyncio.IncompleteReadError:
        raise HealthProblem("the connection was closed before there was an answer") from None
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The body of the one stream."""
    body = b""
    while True:
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        if size > _FRAME_LIMIT:
            raise HealthProblem("what answers does not speak HTTP/2")
        payload = await reader.readexactly(size)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY or (kind == _RESET and stream == 1):
            raise HealthProblem("the server refused the call")
        elif kind == _DATA and stream == 1:
            body += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        if stream == 1 and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return body


def _status(body: bytes) -> str:
    if len(body) < 5:
        raise HealthProblem("the server has no such service, or does not implement grpc.health.v1.Health")
    message = body[5 : 5 + int.from_bytes(body[1:5], "big")]
    number = message[1] if len(message) > 1 and message[0] == 0x08 else 0  # field 1, a varint; absent means 0
    return _STATUS[number] if number < len(_STATUS) else str(number)


def _headers(authority: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "kube-probe/1.35",
    }
    # HPACK: literal without indexing, a new name, no Huffman. All lengths are below 127, so one byte says them.
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])

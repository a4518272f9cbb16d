"""Clients that are slow, endless, or speak a HTTP that two servers could read differently: over bare connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from regional.core import pki
from regional.gateway.connections import HEAD_BYTES
from tests.cloud.conftest import Host

from .conftest import Door, Identities, running_edge
from .signing import by_hand, signed

LIMITS = "regional.gateway.connections."


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answers(self) -> bytes:
        """Everything until the edge closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(-1), 60)
        return b""

    async def answer(self) -> tuple[int, bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await self.reader.readexactly(int(length.partition(b":")[2]))
        return int(head.split()[1]), body


@contextlib.asynccontextmanager
async def wire(door: Door) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(door.address, 8443, ssl=door.ca)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


def head(door: Door, identities: Identities, method: str, path: str, body: bytes = b"", *more: bytes) -> bytes:
    """A signed request's head, with further lines that no signature covers."""
    lines = [f"{method} {path} HTTP/1.1".encode()]
    lines += [
        f"{name}: {value}".encode()
        for name, value in by_hand(identities.user, method, door.host, path, body=body).items()
    ]
    return b"\r\n".join([*lines, *more, b"", b""])


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Amz-Account-Id: 111111111111\r\n\r\n"
AMBIGUOUS = {
    "length and chunks": (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunks and length": (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "two lengths": (b"Content-Length: 5", b"Content-Length: 6"),
    "the same length twice": (b"Content-Length: 5", b"Content-Length: 5"),
    "a list of lengths": (b"Content-Length: 5, 5",),
    "a signed length": (b"Content-Length: +5",),
    "a length in hex": (b"Content-Length: 0x5",),
    "chunks that are not last": (b"Transfer-Encoding: chunked, identity",),
    "chunks by another name": (b"Transfer-Encoding: xchunked",),
    "a space before the colon": (b"Transfer-Encoding : chunked",),
    "a folded line": (b"Transfer-Encoding:", b" chunked", b"Content-Length: 5"),
    "a name that is none": (b"Transfer-\x00Encoding: chunked",),
    "a NUL in a value": (b"X-A: \x00",),
    "a bare return": (b"X-A: b\rTransfer-Encoding: chunked",),
    "a bare newline": (b"X-A: b\nX-Amz-Account-Id: 111111111111",),
    "a line without a name": (b": chunked",),
}


@pytest.mark.parametrize("lines", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_what_two_servers_could_read_differently_is_read_by_none(
    door: Door, identities: Identities, lines: tuple[bytes, ...]
) -> None:
    body = b"0\r\n\r\n"
    async with wire(door) as raw:
        raw.send(head(door, identities, "POST", "/a", body, *lines) + body + SMUGGLED)
        said = await raw.answers()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert json.loads(said.rpartition(b"\r\n\r\n")[2]) == {"message": "Bad Request"}
    assert door.received == []


@pytest.mark.parametrize(
    "line",
    [b"GET /a HTTP/9.9", b"BREW /a HTTP/1.1", b"\x16\x03\x01", b"GET a HTTP/1.1"],
)
async def test_what_is_not_http_is_told_so(door: Door, line: bytes) -> None:
    async with wire(door) as raw:
        raw.send(line + b"\r\nHost: a\r\n\r\n")
        said = await raw.answers()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"x-amzn-errortype: BadRequestException" in said


@pytest.mark.parametrize("target", ["*", "example.com:443", "http://elsewhere.example/a", "//elsewhere.example/a", "a"])
async def test_targets_that_are_no_path_of_ours(door: Door, target: str) -> None:
    method = {"*": "OPTIONS", "example.com:443": "CONNECT"}.get(target, "GET")
    async with wire(door) as raw:
        raw.send(f"{method} {target} HTTP/1.1\r\nHost: {door.host}\r\nConnection: close\r\n\r\n".encode())
        said = await raw.answers()
    assert int(said.split()[1]) in (400, 403)
    assert door.received == []


async def test_each_request_of_a_connection_is_proven_anew(door: Door, identities: Identities) -> None:
    async with wire(door) as raw:
        # In one write: what follows a request that passed is a stranger's.
        raw.send(head(door, identities, "GET", "/a") + SMUGGLED.replace(b"Host: a", f"Host: {door.host}".encode()))
        assert (await raw.answer())[0] == 200
        status, said = await raw.answer()
        assert (status, json.loads(said)) == (403, {"message": "Missing Authentication Token"})
        raw.send(head(door, identities, "GET", "/b"))
        assert (await raw.answer())[0] == 200
    assert [seen["path"] for seen in door.received] == ["/a", "/b"]


async def test_a_refused_request_leaves_its_connection_usable(door: Door, identities: Identities) -> None:
    body = b"x" * 300_000
    async with wire(door) as raw:
        raw.send(f"POST /a HTTP/1.1\r\nHost: {door.host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert (await raw.answer())[0] == 403
        raw.send(head(door, identities, "GET", "/b"))
        assert (await raw.answer())[0] == 200


async def test_an_expected_body_is_asked_for_only_from_those_who_may_send_it(
    door: Door, identities: Identities
) -> None:
    more = (b"Expect: 100-continue", b"Content-Length: 2")
    async with wire(door) as raw:
        raw.send(head(door, identities, "POST", "/a", b"{}", *more))
        assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        raw.send(b"{}")
        assert (await raw.answer())[0] == 200
    async with wire(door) as raw:
        lines = (b"POST /a HTTP/1.1", f"Host: {door.host}".encode(), *more)
        raw.send(b"\r\n".join([*lines, b"", b""]))
        assert (await raw.answer())[0] == 403


async def test_a_websocket_is_not_offered(door: Door, identities: Identities) -> None:
    more = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: AAAA")
    async with wire(door) as raw:
        raw.send(head(door, identities, "GET", "/a", b"", *more))
        status, said = await raw.answer()
    assert status == 200
    assert "upgrade" not in dict(json.loads(said)["headers"])


@pytest.mark.parametrize("sent", [b"", b"GET /a HTTP/1.1\r\nX-A: b\r\n", b"\r\n\r\n\r\n"])
async def test_a_head_that_does_not_come_ends_the_connection(
    door: Door, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(LIMITS + "HEAD_SECONDS", 0.2)
    async with wire(door) as raw:
        raw.send(sent)
        assert await raw.answers() == b""


async def test_a_second_head_has_a_time_too(
    door: Door, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wire(door) as raw:
        raw.send(head(door, identities, "GET", "/a"))
        assert (await raw.answer())[0] == 200
        monkeypatch.setattr(LIMITS + "HEAD_SECONDS", 0.2)
        raw.send(b"GET /b HTTP/1.1\r\n")
        assert await raw.answers() == b""


@pytest.mark.parametrize("piece", [b"X-A: b\r\n", b"x" * 1000])
async def test_a_head_without_end_is_cut(door: Door, piece: bytes) -> None:
    async with wire(door) as raw:
        raw.send(b"GET /a HTTP/1.1\r\nX-B: ")
        for _ in range(HEAD_BYTES // len(piece) + 2):
            raw.send(piece)
        said = await raw.answers()
    assert said.startswith(b"HTTP/1.1 431 ")


async def test_the_rest_of_a_refused_body_has_a_time(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    async with wire(door) as raw:
        raw.send(f"POST /a HTTP/1.1\r\nHost: {door.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert (await raw.answer())[0] == 403
        monkeypatch.setattr(LIMITS + "HEAD_SECONDS", 0.3)
        # The end comes as a reset if the edge has not read all of it by then, and a reset is no end of file.
        while not raw.reader.at_eof() and raw.reader.exception() is None:
            raw.send(b"1\r\na\r\n")
            await asyncio.sleep(0.05)
        assert await raw.answers() == b""


async def test_a_body_that_does_not_come_is_not_waited_for(
    door: Door, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.gateway.app.BODY_SECONDS", 0.2)
    async with wire(door) as raw:
        raw.send(head(door, identities, "POST", "/a", b"{}", b"Content-Length: 2") + b"{")
        said = await raw.answers()
    assert said.startswith(b"HTTP/1.1 408 ")
    assert door.received == []


async def test_an_answer_that_nobody_takes_ends_the_connection(
    aws_host: Host, identities: Identities, tmp_path: Path, authority: pki.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * (1 << 16)
                await asyncio.sleep(0)
        finally:
            left.set()

    async def answer(_: Request) -> Response:
        return StreamingResponse(endless())

    monkeypatch.setattr(LIMITS + "TAKE_SECONDS", 0.2)
    app = Starlette(routes=[Route("/a", answer)])
    async with running_edge(aws_host.url, tmp_path, authority, app) as door, wire(door) as raw:
        raw.send(head(door, identities, "GET", "/a"))
        await asyncio.wait_for(left.wait(), 60)  # the upstream was let go, because the client was


async def test_there_is_a_limit_of_connections_and_of_requests(
    door: Door, identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wire(door) as first:
        first.send(head(door, identities, "GET", "/a"))
        assert (await first.answer())[0] == 200
        monkeypatch.setattr(LIMITS + "CONNECTIONS", 1)
        async with wire(door) as second:
            assert await second.answers() == b""
        monkeypatch.setattr("regional.gateway.app.IN_FLIGHT", 0)
        first.send(head(door, identities, "GET", "/a"))
        status, said = await first.answer()
        assert (status, json.loads(said)) == (429, {"message": "Too Many Requests"})
        monkeypatch.undo()
        assert (await door.send_prepared(signed(identities.user, "GET", f"{door.url}/a")))[0] == 200

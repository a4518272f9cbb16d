"""HTTP/1.1 as clients and proxies really speak it: pipelines, chunks, old versions, readers that are slow or leave."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from regional.kube.apiserver.front import listening
from regional.kube.messages import Request, Response

from .harness import Api, config_map, make_pki, start_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PATIENCE = 60.0


class Wire:
    """One connection, spoken to in bytes."""

    def __init__(self, api: Api, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.api, self.reader, self.writer = api, reader, writer

    def send(self, *parts: str | bytes) -> None:
        for part in parts:
            self.writer.write(part.encode() if isinstance(part, str) else part)

    async def answer(self, *, bodiless: bool = False) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            status = int(head[0].split()[1])
            body = b""
            if not bodiless and "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            return status, headers, body

    async def chunk(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            return data

    async def end(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    number = os.getpid()
    address = f"127.{200 + number % 7}.{number // 7 % 250}.{1 + number // 1750 % 250}"
    pki = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", pki, address=address, port=6443)
    tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    async with listening(server, pki):
        reader, writer = await asyncio.open_connection(address, 6443, ssl=tls, limit=1 << 24)
        yield Wire(Api(server), reader, writer)
        writer.transport.abort()
        server.store.close_watches()
    await server.stop()


def head(method: str, path: str, *headers: str) -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: kubernetes", *headers, "", ""])


def create(name: str) -> bytes:
    body = msgspec.json.encode(config_map(name))
    return head("POST", CONFIG_MAPS, f"Content-Length: {len(body)}").encode() + body


async def test_pipelined_requests_are_answered_in_their_order(wire: Wire) -> None:
    wire.send(create("a"), head("GET", f"{CONFIG_MAPS}/a"), create("b"), head("GET", f"{CONFIG_MAPS}/nobody"))
    answers = [await wire.answer() for _ in range(4)]
    assert [status for status, _, _ in answers] == [201, 200, 201, 404]
    assert [msgspec.json.decode(body)["metadata"].get("name") for _, _, body in answers] == ["a", "a", "b", None]


async def test_a_request_may_come_byte_by_byte_and_in_chunks(wire: Wire) -> None:
    body = msgspec.json.encode(config_map("a"))
    parts = [head("POST", CONFIG_MAPS, "Transfer-Encoding: chunked").encode()]
    parts += [b"%x\r\n%b\r\n" % (len(body[at : at + 7]), body[at : at + 7]) for at in range(0, len(body), 7)]
    for byte in b"".join([*parts, b"0\r\n\r\n"]):
        wire.send(bytes([byte]))
        await wire.writer.drain()
    assert (await wire.answer())[0] == 201


async def test_a_client_that_asks_first_is_told_to_go_on(wire: Wire) -> None:
    body = msgspec.json.encode(config_map("a"))
    wire.send(head("POST", CONFIG_MAPS, f"Content-Length: {len(body)}", "Expect: 100-continue"))
    assert (await wire.answer(bodiless=True))[0] == 100
    wire.send(body)
    assert (await wire.answer())[0] == 201
    wire.send(head("POST", CONFIG_MAPS, "Content-Length: 99999999", "Expect: 100-continue"))
    assert (await wire.answer())[0] == 413


async def test_after_a_body_that_is_too_large_the_connection_goes_on(wire: Wire) -> None:
    size = 3 * 1024 * 1024 + 1
    wire.send(head("POST", CONFIG_MAPS, f"Content-Length: {size}"), b"x" * size, head("GET", "/version"))
    assert (await wire.answer())[0] == 413
    assert (await wire.answer())[0] == 200
    chunk = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))
    wire.send(head("POST", CONFIG_MAPS, "Transfer-Encoding: chunked"), chunk * 4, b"0\r\n\r\n", head("GET", "/version"))
    assert (await wire.answer())[0] == 413
    assert (await wire.answer())[0] == 200


async def test_head_has_no_body_and_old_clients_are_left_after_one_answer(wire: Wire) -> None:
    wire.send(head("HEAD", "/version"), head("GET", "/version"))
    status, headers, _ = await wire.answer(bodiless=True)
    assert status == 200 and int(headers["content-length"]) > 0
    assert (await wire.answer())[2].startswith(b"{")
    wire.send("GET https://kubernetes/version?timeout=32s HTTP/1.0\r\n\r\n")
    status, headers, body = await wire.answer()
    assert (status, headers["connection"]) == (200, "close") and body.startswith(b"{")
    assert await wire.end() == b""


async def test_a_slow_reader_gets_every_event_once_it_reads(wire: Wire) -> None:
    revision = wire.api.server.store.revision
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    wire.send(head("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={revision}"))
    shelf = wire.api.server.store.shelf("configmaps")
    async with asyncio.timeout(PATIENCE):
        while not shelf._mailboxes:
            await asyncio.sleep(0.01)
    big = "x" * 500_000
    names = [f"big-{number}" for number in range(20)]
    for name in names:
        await wire.api.post(CONFIG_MAPS, config_map(name, {"data": big}))
    wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await wire.answer(bodiless=True)
    seen: list[str] = []
    while len(seen) < len(names):
        seen += [msgspec.json.decode(line)["object"]["metadata"]["name"] for line in (await wire.chunk()).splitlines()]
    assert seen == names


async def test_a_watch_ends_in_order_and_its_connection_lives_on(wire: Wire) -> None:
    wire.send(head("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion=1"), head("GET", "/version"))
    _, headers, _ = await wire.answer(bodiless=True)
    assert headers["transfer-encoding"] == "chunked"
    async with asyncio.timeout(PATIENCE):
        while await wire.chunk():
            pass
    assert (await wire.answer())[0] == 200


async def test_one_who_asks_and_does_not_read_is_not_answered_into_memory(wire: Wire) -> None:
    await wire.api.post(CONFIG_MAPS, config_map("large", {"text": "x" * 500_000}))
    asked, begun, handle = 200, 0, wire.api.server.handle

    async def counted(request: Request) -> Response:
        nonlocal begun
        begun += 1
        return await handle(request)

    wire.api.server.handle = counted  # type: ignore[method-assign]
    wire.send(head("GET", f"{CONFIG_MAPS}/large") * asked)
    before = -1
    while before != begun or not begun:
        before = begun
        await asyncio.sleep(1)
    assert begun < asked * 3 / 4  # what fits into this side's buffers and the kernel's, which are far smaller
    for _ in range(asked):
        status, _, body = await wire.answer()
        assert (status, len(body) > 500_000) == (200, True)

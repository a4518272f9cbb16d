"""Connections that break the rules of HTTP or TLS: refused in one way only, without harm to others, and forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import uvicorn

from regional.kube.apiserver.connections import HEAD_LIMIT
from regional.kube.apiserver.front import OneCluster, answering, tls_context

from .harness import Api, config_map, make_pki, start_server
from .test_connections import CONFIG_MAPS, PATIENCE, Wire, create, head

BAD_CONNECTIONS = int(os.environ.get("BAD_CONNECTIONS", "1000"))
VERSION = head("GET", "/version")
WATCH = head("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion=1")
BODY = msgspec.json.encode(config_map("smuggled"))


class Door:
    """A server whose connections can be counted, and as many clients of it as a test wants."""

    def __init__(self, api: Api, pki: Path, running: uvicorn.Server) -> None:
        self.api, self.address, self.running = api, api.server.address, running
        self.authority = str(pki / "ca.crt")
        self.tls = ssl.create_default_context(cafile=self.authority)
        self.tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    @contextlib.asynccontextmanager
    async def wire(self, *, anonymous: bool = False) -> AsyncIterator[Wire]:
        tls = ssl.create_default_context(cafile=self.authority) if anonymous else self.tls
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(self.address, 6443, ssl=tls, limit=1 << 24)
        try:
            yield Wire(self.api, reader, writer)
        finally:
            writer.transport.abort()

    async def says(self, *parts: str | bytes) -> bytes:
        """All that is answered, up to the end of the connection."""
        async with self.wire() as wire:
            # In one piece: what comes after the end of a connection may take its last words along.
            wire.send(b"".join(part.encode() if isinstance(part, str) else part for part in parts))
            return await wire.end()

    async def works(self) -> None:
        async with self.wire() as wire:
            wire.send(VERSION)
            assert (await wire.answer())[0] == 200


@contextlib.asynccontextmanager
async def opened(folder: Path, patience: float = PATIENCE) -> AsyncIterator[Door]:
    number = os.getpid()
    address = f"127.{207 + number % 7}.{number // 7 % 250}.{1 + number // 1750 % 250}"
    pki = make_pki(folder / "pki", address)
    server = await start_server(folder / "data", pki, address=address, port=6443)
    async with answering(OneCluster(server), tls_context(pki), address, 6443, patience) as running:
        yield Door(Api(server), pki, running)
        server.store.close_watches()
    await server.stop()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with opened(tmp_path) as made:
        yield made


def post(*headers: str, body: bytes = BODY) -> bytes:
    return head("POST", CONFIG_MAPS, *headers).encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = ("Connection: Upgrade", "Upgrade: h2c")
UNCLEAR = {
    "length and chunks": post(LENGTH, CHUNKED, body=chunk(BODY) + b"0\r\n\r\n"),
    "chunks and length": post(CHUNKED, LENGTH, body=chunk(BODY) + b"0\r\n\r\n"),
    "two lengths": post(LENGTH, "Content-Length: 1"),
    "a list of lengths": post(f"Content-Length: {len(BODY)}, {len(BODY)}"),
    "a negative length": post("Content-Length: -1"),
    "a signed length": post(f"Content-Length: +{len(BODY)}"),
    "a length beyond all numbers": post(f"Content-Length: {'9' * 5000}"),
    "a coding after chunked": post("Transfer-Encoding: chunked, identity", body=chunk(BODY) + b"0\r\n\r\n"),
    "chunked, spelled wrong": post("Transfer-Encoding: xchunked", body=chunk(BODY) + b"0\r\n\r\n"),
    "a space before the colon": post(f"Content-Length : {len(BODY)}"),
    "a folded header": post(LENGTH, "X-Folded: a\r\n b"),
    "a header without a name": post(LENGTH, ": nothing"),
    "a header without a colon": post(LENGTH, "nothing"),
    "a NUL in a header": post(LENGTH, "X-Nul: a\0b"),
    "bare line feeds": post(LENGTH).replace(b"\r\n", b"\n"),
    "bare carriage returns": post(LENGTH).replace(b"\r\n", b"\r"),
    "no host": post(LENGTH).replace(b"Host: kubernetes\r\n", b""),
    "two hosts": post(LENGTH, "Host: other"),
    "a size that is no number": post(CHUNKED, body=b"zz\r\n" + BODY),
    "a size beyond all numbers": post(CHUNKED, body=b"f" * 40 + b"\r\n" + BODY),
    "a chunk longer than its size": post(CHUNKED, body=b"2\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a request in the body of an upgrade": post(f"Content-Length: {len(VERSION)}", *UPGRADE, body=VERSION.encode()),
    "a request in the chunks of an upgrade": post(CHUNKED, *UPGRADE, body=VERSION.encode()),
    "no such version": b"GET /version HTTP/9.9\r\nHost: kubernetes\r\n\r\n",
    "a version before HTTP/1": b"GET /version\r\n\r\n",
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a target with spaces": b"GET /version and more HTTP/1.1\r\nHost: kubernetes\r\n\r\n",
    "noise": b"\x00\x01\x02\xff" * 64,
}


@pytest.mark.parametrize("name", UNCLEAR)
async def test_what_can_be_read_in_two_ways_is_not_read_at_all(door: Door, name: str) -> None:
    answer = await door.says(UNCLEAR[name], VERSION)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n") and answer.endswith(b"400 Bad Request"), answer
    assert answer.count(b"HTTP/1.1 ") == 1, "what followed was taken for a request"
    assert (await door.api.get(f"{CONFIG_MAPS}/smuggled")).status == 404
    await door.works()


async def test_a_stranger_is_told_so_before_the_body_is_read(door: Door) -> None:
    size = 2 << 20
    named, bad_token = "X-Padding: 1", "Authorization: Bearer nobody.knows.it"
    for header, status in ((named, 403), (bad_token, 401)):
        for length in (f"Content-Length: {size}", CHUNKED):
            async with door.wire(anonymous=True) as wire:
                wire.send(post(header, length, body=b"x" * (size // 2) if length != CHUNKED else chunk(b"x" * size)))
                assert (await wire.answer())[0] == status, "half of the body is still to come"
                wire.send(b"x" * (size // 2) if length != CHUNKED else b"0\r\n\r\n", VERSION)
                assert (await wire.answer())[0] == 200, "the rest was read and forgotten"
    async with door.wire() as wire:
        wire.send(post(f"Content-Length: {size}", body=b" " * (size - len(BODY)) + BODY))
        assert (await wire.answer())[0] == 201


async def test_whole_requests_before_nonsense_get_their_answers_first(door: Door) -> None:
    answer = await door.says(create("a"), head("GET", f"{CONFIG_MAPS}/a"), "nonsense\r\n\r\n")
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"201", b"200", b"400"]


async def test_nothing_is_done_for_a_client_that_said_it_was_the_last_request(door: Door) -> None:
    async with door.wire() as wire:
        wire.send(head("GET", "/version", "Connection: close"), create("late"))
        assert (await wire.answer())[0] == 200
        with contextlib.suppress(OSError):
            wire.send(create("later"))
            assert await wire.end() == b""
    await door.works()
    for name in ("late", "later"):
        assert (await door.api.get(f"{CONFIG_MAPS}/{name}")).status == 404


@pytest.mark.parametrize("shape", ["one header", "many headers", "target", "trailers", "chunk extension"])
async def test_heads_without_end_are_refused_before_they_are_kept(door: Door, shape: str) -> None:
    start = {
        "one header": head("GET", "/version").removesuffix("\r\n") + "X-Long: ",
        "many headers": head("GET", "/version").removesuffix("\r\n"),
        "target": "GET /version?a=",
        "trailers": head("POST", CONFIG_MAPS, CHUNKED) + "2\r\n{}\r\n0\r\n",
        "chunk extension": head("POST", CONFIG_MAPS, CHUNKED) + "2;",
    }[shape]
    more = b"X-More: " + b"x" * 1000 + b"\r\n" if shape in ("many headers", "trailers") else b"x" * 1000
    async with door.wire() as wire:
        wire.send(start)

        async def pour() -> None:
            with contextlib.suppress(OSError):
                while True:
                    wire.send(more)
                    await wire.writer.drain()

        pouring = asyncio.create_task(pour())
        try:
            assert (await wire.answer())[0] == 431
        except (OSError, EOFError):
            pass  # closed in our face, before we could read why
        finally:
            pouring.cancel()
            await asyncio.gather(pouring, return_exceptions=True)
        await nothing_open(door)
    await door.works()


async def test_a_large_head_within_the_limit_is_served(door: Door) -> None:
    async with door.wire() as wire:
        wire.send(head("GET", "/version?a=" + "x" * (HEAD_LIMIT // 4), "X-Long: " + "y" * (HEAD_LIMIT // 2)))
        assert (await wire.answer())[0] == 200


async def test_trailers_are_no_headers(door: Door) -> None:
    async with door.wire() as wire:
        body = chunk(b"{}") + b"0\r\nImpersonate-User: joe\r\nAuthorization: Bearer x\r\n\r\n"
        wire.send(head("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", CHUNKED), body, VERSION)
        status, _, content = await wire.answer()
        assert (status, msgspec.json.decode(content)["status"]["userInfo"]["username"]) == (201, "admin")
        assert (await wire.answer())[0] == 200


@pytest.mark.parametrize("kind", ["h2c", "websocket", "spdy/3.1", "nonsense"])
async def test_upgrades_that_nobody_offers_are_ordinary_requests(door: Door, kind: str) -> None:
    upgrade = ("Connection: Upgrade", f"Upgrade: {kind}")
    async with door.wire() as wire:
        wire.send(head("GET", "/version", *upgrade), VERSION, create("a"))
        assert [(await wire.answer())[0] for _ in range(3)] == [200, 200, 201]
        wire.send(head("POST", CONFIG_MAPS, *upgrade, "Content-Length: 0"), VERSION)
        assert [(await wire.answer())[0] for _ in range(2)] == [400, 200]


async def test_a_connection_with_an_open_answer_is_not_given_away(door: Door) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket")
    async with door.wire() as wire:
        wire.send(VERSION, head("GET", "/api/v1/namespaces/default/pods/none/exec?command=a", *upgrade), VERSION)
        statuses = [(await wire.answer())[0] for _ in range(3)]
        assert statuses[0] == statuses[2] == 200 and 400 <= statuses[1] < 500
        wire.send(head("GET", "/api/v1/namespaces/default/pods/none/exec?command=a", *upgrade))
        status, headers, _ = await wire.answer()
        assert (status, headers["connection"]) == (404, "close")
        assert await wire.end() == b""


async def test_old_clients_get_streams_without_chunks(door: Door) -> None:
    revision = door.api.server.store.revision
    await door.api.post(CONFIG_MAPS, config_map("a"))
    answer = await door.says(f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=3&resourceVersion={revision} HTTP/1.0\r\n\r\n")
    top, _, lines = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in top.lower()
    assert [msgspec.json.decode(line)["type"] for line in lines.splitlines()] == ["ADDED"]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
async def test_unusual_methods_leave_the_connection_in_order(door: Door, method: str) -> None:
    async with door.wire() as wire:
        for path in (CONFIG_MAPS, f"{CONFIG_MAPS}?watch=1", f"{CONFIG_MAPS}/none", "/version", "/nowhere"):
            wire.send(head(method, "kubernetes:443" if method == "CONNECT" else path))
            assert (await wire.answer(bodiless=method == "HEAD"))[0] < 500
        wire.send(VERSION)
        status, _, content = await wire.answer()
        assert status == 200 and content.startswith(b"{")


@pytest.mark.parametrize(
    "target",
    [
        "//api/v1/namespaces",
        "/api//v1/namespaces",
        "/api/v1/namespaces/..",
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/%2e%2e/secrets",
        "/api/v1/namespaces/default%2fsecrets",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/%ff%fe",
        "/%",
        "/?%=%",
        "*",
        "https://elsewhere/version",
        "http://[/",
        "/" + "a/" * 5000,
    ],
)
async def test_strange_targets_are_somebodys_fault_but_not_ours(door: Door, target: str) -> None:
    async with door.wire() as wire:
        wire.send(head("GET", target))
        assert (await wire.answer())[0] < 500
    await door.works()


async def test_clients_that_do_not_go_on_are_left(tmp_path: Path) -> None:
    async with opened(tmp_path, patience=2.0) as door, contextlib.AsyncExitStack() as stack:

        async def arrived() -> Wire:
            while True:
                with contextlib.suppress(OSError):  # on a busy machine the handshake alone can take too long
                    return await stack.enter_async_context(door.wire())

        async with asyncio.timeout(PATIENCE):
            silent, slow, halfway = await arrived(), await arrived(), await arrived()
        halfway.send(head("POST", CONFIG_MAPS, "Content-Length: 100"), b"{")

        async def drip() -> None:
            with contextlib.suppress(OSError):
                slow.send("GET /version HTTP/1.1\r\n")
                while not slow.writer.is_closing():
                    slow.send("X-Drip: x\r\n")
                    await slow.writer.drain()
                    await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        for wire in (silent, halfway, slow):
            with contextlib.suppress(OSError):
                assert await wire.end() == b""
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        await nothing_open(door)


async def nothing_open(door: Door) -> None:
    async with asyncio.timeout(PATIENCE):
        while door.running.server_state.connections or door.running.server_state.tasks:
            await asyncio.sleep(0.02)


def reset(writer: asyncio.StreamWriter) -> None:
    """End it so that the other side gets RST, not FIN."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def misbehave(door: Door, number: int) -> None:
    way = number % 6
    if way < 2:  # no TLS: half a handshake, or plain HTTP
        _, writer = await asyncio.open_connection(door.address, 6443)
        writer.write(b"\x16\x03\x01\x02\x00\x01" if way else b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        reset(writer)
        return
    async with door.wire() as wire:
        if way == 2:
            wire.send(WATCH)
            await wire.answer(bodiless=True)
        elif way == 3:
            wire.send(WATCH, VERSION)
            await wire.answer(bodiless=True)
        elif way == 4:
            wire.send(VERSION)
            await wire.answer()
        else:
            wire.send(head("POST", CONFIG_MAPS, "Content-Length: 1000"), b"{")
        reset(wire.writer)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nothing_is_left_of_many_bad_connections(door: Door) -> None:
    shelf = door.api.server.store.shelf("configmaps")

    async def round_of(count: int) -> tuple[int, int, int]:
        lane = asyncio.Semaphore(16)

        async def one(number: int) -> None:
            async with lane:
                with contextlib.suppress(OSError):
                    await misbehave(door, number)

        await asyncio.gather(*(one(number) for number in range(count)))
        # Whose request is behind a watch is not listened to; what happens to the watch shows that it has gone.
        async with asyncio.timeout(PATIENCE):
            number = 0
            while shelf._mailboxes or door.running.server_state.connections:
                number += 1
                await door.api.post(CONFIG_MAPS, config_map(f"event-{count}-{number}"))
                await asyncio.sleep(0.05)
        await nothing_open(door)
        gc.collect()
        protocols = sum(type(thing).__name__ == "UpgradingProtocol" for thing in gc.get_objects())
        return open_files(), len(asyncio.all_tasks()), protocols

    files, tasks, protocols = await round_of(60)
    files_after, tasks_after, protocols_after = await round_of(BAD_CONNECTIONS)
    assert files_after <= files + 20
    assert tasks_after <= tasks + 20
    assert protocols_after <= protocols + 20
    await door.works()

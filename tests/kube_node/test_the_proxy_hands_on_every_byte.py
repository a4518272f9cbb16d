"""Connections through a Service: nothing is lost, whoever speaks first and however much."""

from __future__ import annotations

import asyncio
import hashlib

from regional.core.loop import run
from regional.kube.node.endpoints import Listener
from regional.kube.node.proxy import _Entrance, _Front
from tests.kube_clients.harness import own_address

HOST = own_address()  # where no client's port can be the one that was free a moment ago
MUCH = bytes(range(256)) * 8192  # 2 MiB: far more than one read or one socket buffer


async def serve(answer: object) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(answer, HOST, 0)  # type: ignore[arg-type]
    return server, server.sockets[0].getsockname()[1]


async def free_port() -> int:
    server, port = await serve(lambda reader, writer: None)
    server.close()
    await server.wait_closed()
    return port


async def digest_everything(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(hashlib.sha256(await reader.read()).hexdigest().encode())
    writer.close()
    await writer.wait_closed()


async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(MUCH)
    await writer.drain()
    writer.write_eof()
    await reader.read()
    writer.close()


async def say(port: int, what: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(what)
        writer.write_eof()  # at once: before the proxy can have reached a pod
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def entrance(*backends: int) -> tuple[_Entrance, int]:
    connections: set[_Front] = set()
    door = _Entrance(tuple((HOST, port) for port in backends), connections)
    port = await free_port()
    await door.open(Listener(HOST, port))
    return door, port


def test_what_a_client_says_before_a_pod_has_taken_the_connection_arrives() -> None:
    async def scene() -> None:
        server, backend = await serve(digest_everything)
        door, port = await entrance(backend)
        said = [bytes([n]) * (n * 4096 + 1) for n in range(20)] + [MUCH, b""]
        heard = await asyncio.gather(*(say(port, what) for what in said))
        assert heard == [hashlib.sha256(what).hexdigest().encode() for what in said]
        door.close()
        server.close()

    run(scene())


def test_a_server_may_speak_first() -> None:
    async def scene() -> None:
        server, backend = await serve(speak_first)
        door, port = await entrance(backend)
        assert await say(port, b"") == MUCH
        door.close()
        server.close()

    run(scene())


def test_a_pod_that_is_gone_costs_no_byte() -> None:
    async def scene() -> None:
        server, backend = await serve(digest_everything)
        door, port = await entrance(await free_port(), backend)
        expected = hashlib.sha256(MUCH).hexdigest().encode()
        assert [await say(port, MUCH) for _ in range(4)] == [expected] * 4
        door.close()
        server.close()

    run(scene())


def test_no_pod_at_all_ends_the_connection() -> None:
    async def scene() -> None:
        door, port = await entrance(await free_port())
        try:
            answer = await say(port, b"anybody?")
        except ConnectionError:
            answer = b""
        assert answer == b""
        door.close()

    run(scene())

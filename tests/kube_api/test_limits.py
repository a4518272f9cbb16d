"""One client, one user or one cluster that asks too much is told to wait; the others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.kube.apiserver.front import OneCluster, answering, listening, tls_context
from regional.kube.apiserver.limits import Limits, Shares, Turnstile
from regional.kube.apiserver.server import ApiServer
from regional.kube.messages import ANONYMOUS, LOCAL, Request, User

from .harness import make_pki, start_server
from .test_https_front import own_address

JOE, ANN = User("joe", ("devs",)), User("ann", ("devs",))


def get(path: str = "/api/v1/pods", *query: tuple[str, str]) -> Request:
    return Request("GET", path, list(query))


def test_reads_writes_and_watches_are_counted_apart_and_by_user() -> None:
    turnstile = Turnstile(Limits(reads=4, writes=2, streams=2))
    reads = [turnstile.enter(get(), JOE) for _ in range(2)]
    assert all(reads)
    assert turnstile.enter(get(), JOE) is None, "joe has his half"
    assert turnstile.enter(get(), ANN) and turnstile.enter(get(), ANN)
    assert turnstile.enter(get(), LOCAL) is None, "the cluster is full, for everybody"
    assert turnstile.enter(get("/readyz"), ANONYMOUS), "probes are answered in any case"
    assert turnstile.enter(get("/api/v1/pods", ("watch", "true")), JOE)
    assert turnstile.enter(Request("POST", "/api/v1/pods"), JOE)
    assert reads[0] is not None
    reads[0].leave()
    assert turnstile.enter(get(), JOE)


async def test_share_of_a_cluster_shrinks_while_others_work_and_grows_again() -> None:
    turns = Shares(seats=8, least=2)
    waiting = [asyncio.ensure_future(turns.take("flooded")) for _ in range(20)]
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 8
    await asyncio.wait_for(turns.take("quiet"), 60)  # at once, although all seats are taken
    for _ in range(5):
        turns.give_back("flooded")
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 8 + 1, "only down to its half are others called"
    turns.give_back("quiet")
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 8 + 5
    waiting[-1].cancel()
    for _ in range(8):
        turns.give_back("flooded")
    await asyncio.sleep(0)
    assert all(task.done() for task in waiting)


@contextlib.asynccontextmanager
async def served(tmp_path: Path, limits: Limits, patience: float = 60.0) -> AsyncIterator[tuple[ApiServer, str, Path]]:
    address = own_address()
    keys = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", keys, address=address, port=6443)
    async with answering(OneCluster(server, limits), tls_context(keys), address, 6443, patience):
        yield server, address, keys
        server.store.close_watches()
    await server.stop()


async def connect(address: str, keys: Path, name: str = "admin") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(keys / f"{name}.crt", keys / f"{name}.key")
    return await asyncio.open_connection(address, 6443, ssl=context)


async def arrived(address: str, keys: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """At a server of little patience: on a busy machine the handshake alone can take too long."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                return await connect(address, keys)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> tuple[int, bytes]:
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    return int(head.split(b" ", 2)[1]), head


async def test_over_the_limit_the_answer_is_429_with_a_time_to_wait(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/configmaps?watch=true"
    async with served(tmp_path, Limits(streams=2)) as (_, address, keys):
        first, second, third = [await connect(address, keys) for _ in range(3)]
        assert (await ask(*first, path))[0] == 200
        assert (await ask(*second, path))[0] == 200
        status, head = await ask(*third, path)
        assert status == 429 and b"retry-after: 1" in head
        first[1].close()
        async with asyncio.timeout(60):
            while status != 200:  # the server hears of the end in its own time
                third[1].close()
                third = await connect(address, keys)
                status, _ = await ask(*third, path)
        for _, writer in (second, third):
            writer.close()


async def test_clients_that_do_not_go_on_are_disconnected(tmp_path: Path) -> None:
    async with served(tmp_path, Limits(), patience=0.2) as (_, address, keys):
        silent, halting = await arrived(address, keys), await arrived(address, keys)
        halting[1].write(
            b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
        )
        for reader, writer in (silent, halting):
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


async def test_watcher_that_does_not_read_is_disconnected_and_one_that_only_waits_is_not(tmp_path: Path) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    async with served(tmp_path, Limits(), patience=3.0) as (server, address, keys):
        idle = await arrived(address, keys)
        assert (await ask(*idle, "/api/v1/namespaces/default/secrets?watch=true"))[0] == 200
        deaf = await arrived(address, keys)
        deaf[1].write(f"GET {maps}?watch=true HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        deaf[1].transport.pause_reading()  # type: ignore[attr-defined]
        body = b'{"metadata":{"generateName":"big-"},"data":{"x":"' + b"x" * 500_000 + b'"}}'
        headers = {"content-type": "application/json"}

        def watched() -> int:
            return len(server.store.shelf("configmaps")._mailboxes)

        async with asyncio.timeout(60):
            while not watched():
                await asyncio.sleep(0.01)
            while watched():
                answer = await server.handle(Request("POST", maps, [], headers, body))
                assert answer.status == 201
                await asyncio.sleep(0.05)
        assert len(server.store.shelf("secrets")._mailboxes) == 1
        for _, writer in (idle, deaf):
            writer.transport.abort()


async def test_connections_beyond_the_descriptors_are_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regional.kube.apiserver.clients import ClientConnection

    address = own_address()
    keys = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", keys, address=address, port=6443)
    monkeypatch.setattr(ClientConnection, "limit", staticmethod(lambda: 2))
    async with listening(server, keys):
        kept = [await connect(address, keys) for _ in range(2)]
        for reader, writer in kept:
            assert (await ask(reader, writer, "/readyz"))[0] == 200
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            surplus = await connect(address, keys)
            surplus[1].write(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await asyncio.wait_for(surplus[0].read(), 60) == b""
        for _, writer in kept:
            writer.close()
    await server.stop()

"""The bench's own client of Maestro: HTTP/1.1 over bare sockets, so that it costs next to nothing; and what it sends.

What is measured ends when a status is stored. Of many bundles the database itself is asked for that, seldom; of a
single one the server's watch tells it, as it tells every client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

BASE = "/api/maestro/v1"
SPEC_BYTES = 742
SOURCE = "bench"


def request(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else msgspec.json.encode(body)
    head = f"{method} {BASE}{path} HTTP/1.1\r\nHost: maestro\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


def manifest(name: str, text: str = "", size: int = SPEC_BYTES) -> dict[str, Any]:
    """A ConfigMap that makes a spec of about so many bytes."""
    metadata = {"name": name, "namespace": "default", "labels": {"app": "bench"}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"text": text.ljust(max(0, size - 170), ".")},
    }


def create(consumer: str, name: str) -> bytes:
    config = {
        "resourceIdentifier": {"group": "", "resource": "configmaps", "name": name, "namespace": "default"},
        "updateStrategy": {"type": "ServerSideApply"},
    }
    body = {
        "consumer_name": consumer,
        "id": name,
        "source": SOURCE,
        "manifests": [manifest(name, size=SPEC_BYTES - 150)],
        "manifest_configs": [config],
    }
    return request("POST", "/resource-bundles", body)


def update(name: str, number: int) -> bytes:
    return request("PATCH", f"/resource-bundles/{name}", {"manifests": [manifest(name, f"version {number}")]})


def delete(name: str) -> bytes:
    return request("DELETE", f"/resource-bundles/{name}")


class Connection:
    def __init__(self, address: str, port: int) -> None:
        self._place = (address, port)

    @classmethod
    async def to(cls, address: str, port: int) -> Connection:
        made = cls(address, port)
        await made._connect()
        return made

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._place, limit=1 << 24)

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        if self._reader.at_eof():  # a server closes what is idle for long
            await self._connect()
        self._writer.write(data)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if status == 204:
            return status, b""
        place = head.find(b"\r\ncontent-length:")
        if place >= 0:
            return status, await self._reader.readexactly(int(head[place + 17 :].split(b"\r\n", 1)[0]))
        return status, await self._chunked()

    async def _chunked(self) -> bytes:
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return b"".join(parts)

    async def must(self, data: bytes) -> bytes:
        status, body = await self.ask(data)
        if status >= 300:
            raise SystemExit(f"{data.split(b' HTTP', 1)[0].decode()}: {status} {body[:500].decode(errors='replace')}")
        return body

    def close(self) -> None:
        self._writer.close()


class Client:
    """Several connections; requests go out as soon as one of them is free."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    @classmethod
    async def to(cls, address: str, port: int, connections: int) -> Client:
        return cls([await Connection.to(address, port) for _ in range(connections)])

    async def all(self, requests: Iterable[bytes]) -> list[float]:
        """When each of them was sent."""
        waiting, sent = iter(requests), []

        async def work(connection: Connection) -> None:
            for data in waiting:
                sent.append(time.perf_counter())
                await connection.must(data)

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return sent

    async def one(self, data: bytes) -> bytes:
        return await self._connections[0].must(data)

    async def tried(self, data: bytes) -> bool:
        """Whether the server could do it, or said at least why not."""
        return (await self._connections[0].ask(data))[0] < 500

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Watch:
    """The server's stream of changes: when each version of each bundle was first seen applied, or gone."""

    def __init__(self, address: str, port: int) -> None:
        self._place = (address, port)
        self.applied: dict[tuple[str, int], float] = {}
        self.gone: dict[str, float] = {}
        self._news = asyncio.Event()

    async def __aenter__(self) -> Watch:
        self._reader, self._writer = await asyncio.open_connection(*self._place, limit=1 << 24)
        self._writer.write(request("GET", f"/resource-bundles/watch?source={SOURCE}"))
        await self._reader.readuntil(b"\r\n\r\n")
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._writer.close()

    async def _follow(self) -> None:
        left = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            *lines, left = (left + (await self._reader.readexactly(size + 2))[:-2]).split(b"\n")
            now = time.perf_counter()
            for line in lines:
                self._take(msgspec.json.decode(line).get("bundle"), now)

    def _take(self, bundle: dict[str, Any] | None, now: float) -> None:
        if bundle is None or "status" not in bundle:
            return
        status = bundle["status"]
        true = {found["type"] for found in status.get("conditions") or () if found["status"] == "True"}
        if "Deleted" in true:
            self.gone.setdefault(bundle["id"], now)
        elif "Applied" in true:
            self.applied.setdefault((bundle["id"], status["ObservedVersion"]), now)
        self._news.set()

    async def until_applied(self, wanted: Iterable[tuple[str, int]]) -> None:
        left = set(wanted)
        async with asyncio.timeout(120):
            while left := {one for one in left if one not in self.applied}:
                self._news.clear()
                await self._news.wait()

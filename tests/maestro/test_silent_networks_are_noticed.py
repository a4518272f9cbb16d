"""A network that swallows every word ends no connection: whoever waits for an answer has to notice by himself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from regional.core import database as core_database
from regional.maestro.server import leases
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, Mosquitto, applied, config_map, connect, eventually, free_address

PORT = 15432


class Relay:
    """Between a server and its database. What is silent stays open on both sides and carries nothing any more."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.address = free_address(PORT)
        self._carried: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Relay]:
        server = await asyncio.start_server(self._take, self.address, PORT)
        try:
            yield self
        finally:
            server.close()
            self.silence()
            await asyncio.gather(*self._carried, return_exceptions=True)
            for writer in self._writers:
                writer.close()
            for writer in self._writers:
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    def silence(self) -> None:
        """All connections that there are. New ones are not."""
        for task in self._carried:
            task.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, here]
        for source, target in ((reader, here), (there, writer)):
            task = asyncio.create_task(self._carry(source, target))
            self._carried.add(task)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while text := await source.read(65536):
                target.write(text)
                await target.drain()
        target.close()


async def test_a_server_goes_on_with_new_sessions_while_the_old_ones_seem_to_live(
    tmp_path: Path, database: dict[str, str], broker: Mosquitto, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_database, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(leases, "TURN_SECONDS", 2.0)
    async with Relay(database["db.host"], int(database["db.port"])).open() as relay:
        maestro = Maestro(tmp_path, database | {"db.host": relay.address, "db.port": str(PORT)}, broker)
        async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await client.create_consumer("mc01")
            first = await client.create_bundle("mc01", [config_map("a")])
            await applied(client, first["id"])
            before = await sessions(database, maestro.servers[-1].leases.id)
            relay.silence()

            async def accepted() -> Any:
                return await client.create_bundle("mc01", [config_map("b")], id="b")

            await eventually(accepted)
            await applied(client, "b")

            async def listens_again() -> bool:
                return bool(await sessions(database, maestro.servers[-1].leases.id) - before)

            await eventually(listens_again)


async def sessions(database: dict[str, str], replica: str) -> set[int]:
    """Those that hold the replica's lock."""
    connection = await connect(database)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND objid = (hashtext($1)::bigint & 4294967295)::oid",
            replica,
        )
    finally:
        await connection.close()
    return {row["pid"] for row in rows}

"""Several servers lose their database, its tables, their sessions or the broker: they say so, live on, and go on by
themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from regional.maestro.client import MaestroClient, MaestroError
from regional.maestro.protocol.bundles import status_event
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import (
    Maestro,
    Mosquitto,
    Postgres,
    Process,
    applied,
    config_map,
    connect,
    eventually,
    gone,
)

MOUNT = "/mnt/secrets-store"
NAMES = ["mc01", "mc02", "mc03", "mc04"]
REACHED = ["mc01", "mc04"]  # one of each server's


@contextlib.asynccontextmanager
async def two_servers(maestro: Maestro, cluster: Cluster) -> AsyncIterator[list[MaestroClient]]:
    """Consumers that they share, and agents of some of them."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(maestro.server()) for _ in range(2)]
        for name in REACHED:
            await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), name))
        for name in NAMES:
            await clients[0].create_consumer(name)
        await shared(maestro)
        yield clients


async def shared(maestro: Maestro) -> None:
    async def each_by_one() -> bool:
        held = [server.leases.held for server in maestro.servers]
        return set().union(*held) == set(NAMES) and [len(some) for some in held] == [2, 2]

    await eventually(each_by_one)


async def made(client: MaestroClient, consumer: str, name: str) -> str:
    """As soon as the server can."""

    async def accepted() -> Any:
        return await client.create_bundle(consumer, [config_map(name)], id=name)

    bundle = await eventually(accepted)
    return str(bundle["id"])


async def everywhere(clients: list[MaestroClient], name: str) -> list[str]:
    """A bundle for each consumer that has an agent, by each server."""
    return [
        await made(client, consumer, f"{name}-{consumer}-{number}")
        for consumer in REACHED
        for number, client in enumerate(clients)
    ]


@pytest.mark.parametrize("away", ["database", "broker"])
async def test_all_servers_go_on_when_what_they_lost_comes_back(
    away: str, tmp_path: Path, own_postgres: Postgres, broker: Mosquitto, cluster: Cluster
) -> None:
    maestro = Maestro(tmp_path, await own_postgres.database(), broker)
    service = {"database": own_postgres, "broker": broker}[away]
    async with two_servers(maestro, cluster) as clients:
        bundles = await everywhere(clients, "before")
        for bundle in bundles:
            await applied(clients[0], bundle)
        service.kill()
        for server in maestro.servers:

            async def says_so(lost: Any = {"database": server.database, "broker": server.source.broker}[away]) -> bool:
                return bool(lost.dependency.reason)

            await eventually(says_so)
        if away == "broker":
            bundles += await everywhere(clients, "meanwhile")
        service.start()
        bundles += await everywhere(clients, "after")
        for bundle in bundles:
            await applied(clients[1], bundle)
        await shared(maestro)
        for number, bundle in enumerate(bundles):
            await clients[number % 2].delete_bundle(bundle)
        for bundle in bundles:
            await gone(clients[0], bundle)


async def test_tables_that_are_dropped_are_made_anew_without_a_restart(maestro: Maestro, cluster: Cluster) -> None:
    async with two_servers(maestro, cluster) as clients:
        await applied(clients[1], await made(clients[0], "mc01", "a"))
        before = await cluster.client.get("v1", "ConfigMap", "a", "default")
        connection = await connect(maestro.database)
        try:
            await dropped(connection)
        finally:
            await connection.close()

        for name in NAMES:

            async def there(name: str = name) -> bool:
                try:
                    await clients[1].create_consumer(name)
                except MaestroError as error:
                    return error.conflict  # of an attempt before, whose answer was lost
                return True

            await eventually(there)
        await shared(maestro)
        for bundle in [await made(clients[0], "mc01", "a"), *await everywhere(clients, "new")]:
            await applied(clients[1], bundle)
        now = await cluster.client.get("v1", "ConfigMap", "a", "default")
        assert now["metadata"]["uid"] == before["metadata"]["uid"]


async def dropped(connection: asyncpg.Connection) -> None:
    while True:
        with contextlib.suppress(asyncpg.DeadlockDetectedError):  # the servers are at work
            await connection.execute("DROP OWNED BY CURRENT_USER")
            return


async def test_what_was_accepted_elsewhere_while_a_server_could_not_listen_is_delivered_when_it_can(
    maestro: Maestro, cluster: Cluster
) -> None:
    async with two_servers(maestro, cluster) as clients:
        deaf = next(index for index, server in enumerate(maestro.servers) if "mc01" in server.leases.held)
        other = 1 - deaf
        maestro.servers[other].leases._patient_until = float("inf")  # or it would take over
        port = Path(maestro.servers[deaf].database._directory) / "db.port"
        right = port.read_text()
        port.write_text("1")
        connection = await connect(maestro.database)
        try:
            mine = "objid = (hashtext($1)::bigint & 4294967295)::oid AND locktype = 'advisory'"
            who = maestro.servers[deaf].leases.id
            await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {mine}", who)

            async def ended() -> bool:
                return not await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM pg_locks WHERE {mine})", who)

            await eventually(ended)
            bundle = await made(clients[other], "mc01", "a")
            # Not by the scan, which would find it in a few seconds.
            await connection.execute("UPDATE resources SET due_at = now() + interval '1 hour' WHERE attempts = 0")
        finally:
            await connection.close()
        port.write_text(right)
        await applied(clients[other], bundle)


async def test_a_server_without_database_or_broker_lives_and_is_not_ready(
    tmp_path: Path, own_postgres: Postgres, broker: Mosquitto
) -> None:
    """A liveness probe that asked the database would restart every server when the database restarts."""
    root = tmp_path / "server"
    root.mkdir()
    files = broker.files("maestro-server", MOUNT) | await own_postgres.database()
    flags = ("--db-sslmode=disable", "--grpc-port=0", "--metrics-port=8081")
    server = Process("maestro-server", root, files, *flags)
    try:
        server.start()
        async with aiohttp.ClientSession() as session:

            async def said(path: str, status: int, text: str, port: int = 8083) -> bool:
                try:
                    async with session.get(f"http://{server.address}:{port}{path}") as answer:
                        return answer.status == status and text in await answer.text()
                except (aiohttp.ClientError, TimeoutError):
                    return False

            async def ready() -> bool:
                return await said("/healthcheck", 200, '"ok"') and await said("/readyz", 200, "true")

            async def not_ready() -> bool:
                return await said("/healthcheck", 503, '"not ready"') and await said("/livez", 200, "ok")

            await eventually(ready)
            for port in (8081, 8083):
                assert await said("/metrics", 200, "maestro_server_", port)
            for service in (broker, own_postgres):
                service.kill()
                await eventually(not_ready)
                service.start()
                await eventually(ready)
    finally:
        server.kill()


async def test_a_database_that_takes_no_writes_for_a_while_ends_no_server(
    maestro: Maestro, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one whose disk is full, or that has just handed over to another."""
    connection = await connect(maestro.database)
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        await client.create_bundle("mc01", [config_map("one")], id="one")
        await agent.next(action="create_request")
        pool = maestro.servers[-1].database.pool
        assert pool is not None
        try:
            await connection.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
            await pool.expire_connections()

            async def refused() -> bool:
                with pytest.raises(MaestroError) as caught:
                    await client.create_bundle("mc01", [config_map("two")], id="two")
                return caught.value.status == 503

            assert await refused()
            await agent.send(_applied("one"))

            async def waits() -> bool:
                return "statuses wait for the database" in caplog.messages

            await eventually(waits)
        finally:
            await connection.execute("ALTER ROLE CURRENT_USER RESET default_transaction_read_only")
            await connection.close()
        await pool.expire_connections()
        await applied(client, "one")
        await made(client, "mc01", "two")


def _applied(bundle: str) -> Any:
    return status_event(
        source="mc01-agent",
        consumer="mc01",
        original_source="maestro",
        resource_id=bundle,
        version=1,
        sequence=1,
        hash="h",
        conditions=[{"type": "Applied", "status": "True", "reason": "A", "message": ""}],
        resource_status=[],
        metadata="{}",
    )

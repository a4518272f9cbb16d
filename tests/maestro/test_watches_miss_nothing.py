"""The stream of changes: resumed by its cursor, it loses none, whatever commits late or breaks in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from regional.maestro import client as maestro_client
from regional.maestro.client import Change, MaestroClient, MaestroError
from regional.maestro.server.rest import bundles as routes
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import (
    HTTP,
    PATIENCE,
    Document,
    Maestro,
    applied,
    condition,
    config_map,
    connect,
    eventually,
    free_address,
    gone,
    running,
)


class Reader:
    """A client that watches and remembers the last of each bundle, as an adapter does."""

    def __init__(self, client: MaestroClient, source: str = "") -> None:
        self._client, self._source = client, source
        self.bundles: dict[str, Document] = {}
        self.seen: list[tuple[str, int]] = []
        self.cursor = ""

    async def follow(self, after: str = "") -> None:
        async with contextlib.aclosing(self._client.watch(self._source, after)) as changes:
            async for change in changes:
                self.take(change)

    def take(self, change: Change) -> None:
        self.bundles[change.bundle["id"]] = change.bundle
        self.seen.append((change.bundle["id"], change.bundle["version"]))
        self.cursor = change.cursor or self.cursor

    async def sees(self, check: Any) -> None:
        async def looks() -> bool:
            return bool(check(self.bundles))

        await eventually(looks, 60)


async def test_a_watch_shows_what_is_there_then_each_change_to_the_very_end(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        before = await client.create_bundle("mc01", [config_map("before")], source="mine")
        await client.create_bundle("mc01", [config_map("foreign")], source="theirs")
        reader = Reader(client, "mine")
        async with running(reader.follow()):
            await reader.sees(lambda bundles: before["id"] in bundles)
            made = await client.create_bundle("mc01", [config_map("after")], source="mine")
            await reader.sees(lambda bundles: condition(bundles.get(made["id"], {}), "Applied") == "True")
            await client.delete_bundle(made["id"])
            await reader.sees(lambda bundles: condition(bundles[made["id"]], "Deleted") == "True")
            last = reader.bundles[made["id"]]
            assert (last["name"], last["consumer_name"]) == (made["name"], "mc01") and last["deleted_at"]
        assert set(reader.bundles) == {before["id"], made["id"]}


async def test_a_reader_goes_on_behind_its_cursor(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        reader = Reader(client)
        async with running(reader.follow()):
            made = [await client.create_bundle("mc01", [config_map("a")])]
            await reader.sees(lambda bundles: len(bundles) == 1)
            # What is there at first has no cursor; what comes afterwards has.
            made += [await client.create_bundle("mc01", [config_map(f"a{number}")]) for number in range(4)]
            await reader.sees(lambda bundles: len(bundles) == 5)
            assert reader.cursor
        cursor, reader.seen = reader.cursor, []
        await client.patch_bundle(made[0]["id"], manifests=[config_map("changed")])
        later = await client.create_bundle("mc01", [config_map("later")])
        async with running(reader.follow(cursor)):
            await reader.sees(lambda bundles: later["id"] in bundles and bundles[made[0]["id"]]["version"] == 2)
        assert set(reader.seen) == {(made[0]["id"], 2), (later["id"], 1)}


async def test_a_change_that_commits_late_is_not_passed_by(maestro: Maestro) -> None:
    """Ids are given out when a change is written, not when it is committed: a reader must wait for the slow one."""
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        slow = await client.create_bundle("mc01", [config_map("slow")])
        connection = await connect(maestro.database)
        reader = Reader(client)
        try:
            async with running(reader.follow()):
                await reader.sees(lambda bundles: slow["id"] in bundles)
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(
                    "WITH made AS (UPDATE resources SET version = version + 1 WHERE id = $1 RETURNING *)"
                    " INSERT INTO events (resource_id, source, kind) SELECT id, source, 'spec' FROM made",
                    slow["id"],
                )
                quick = await client.create_bundle("mc01", [config_map("quick")])
                await asyncio.sleep(0.2)
                await transaction.commit()
                await reader.sees(lambda bundles: quick["id"] in bundles and bundles[slow["id"]]["version"] == 2)
        finally:
            await connection.close()


async def test_writers_in_parallel_and_readers_that_break_off_end_with_the_same_state(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        reader = Reader(client)
        done = asyncio.Event()

        async def write(number: int) -> None:
            made = await client.create_bundle("mc01", [config_map(f"w{number}")])
            for version in range(3):
                await client.patch_bundle(made["id"], manifests=[config_map(f"w{number}", {"v": str(version)})])

        async def read() -> None:
            """Ever longer: on a machine that is busy enough nobody would read anything in less."""
            pause = 0.05
            while not done.is_set():
                async with running(reader.follow(reader.cursor)):
                    await asyncio.sleep(pause)
                pause = min(1.1 * pause, 5.0)

        async with running(read()):
            await asyncio.gather(*(write(number) for number in range(20)))

            async def complete() -> bool:
                return [found["version"] for found in reader.bundles.values()] == [4] * 20

            await eventually(complete)
            done.set()


async def test_a_watch_survives_a_restart_of_the_server(maestro: Maestro) -> None:
    address = free_address(HTTP)
    async with MaestroClient(f"http://{address}:{HTTP}", timeout=PATIENCE) as watching:
        reader = Reader(watching)
        async with running(reader.follow()):
            async with maestro.server(address=address) as client:
                await client.create_consumer("mc01")
                first = await client.create_bundle("mc01", [config_map("first")])
                await reader.sees(lambda bundles: first["id"] in bundles)
            async with maestro.server(address=address) as client:
                second = await client.create_bundle("mc01", [config_map("second")])
                await reader.sees(lambda bundles: second["id"] in bundles)


async def test_a_watch_goes_on_when_the_server_has_to_listen_anew(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes a server that is deaf once its listening connection was lost, or that misses what is committed before it
    listens again. Nobody looks at times here, so only what is heard counts."""
    monkeypatch.setattr(routes, "SCAN_SECONDS", 3600.0)
    monkeypatch.setattr(maestro_client, "SILENCE_SECONDS", 3600.0)
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        before = await client.create_bundle("mc01", [config_map("before")])
        reader = Reader(client)
        async with running(reader.follow()):
            # What is made while a watch lists what is there may come twice: in the list and as a change.
            await reader.sees(lambda bundles: before["id"] in bundles)
            first = await client.create_bundle("mc01", [config_map("first")])
            await reader.sees(lambda bundles: first["id"] in bundles)
            connection = await connect(maestro.database)
            try:
                listening = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"  # it holds leases, too
                ended = [row["pid"] for row in await connection.fetch(listening)]
                assert ended
                await connection.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", ended)
            finally:
                await connection.close()
            for name in ("meanwhile", "after"):
                made = await client.create_bundle("mc01", [config_map(name)])
                await reader.sees(lambda bundles, made=made: made["id"] in bundles)
        assert reader.seen.count((first["id"], 1)) == 1, "it is the same watch as before"


async def test_a_cursor_that_is_too_old_is_said_and_the_client_starts_over(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await applied(client, made["id"])
        removed = await client.create_bundle("mc01", [config_map("b")])
        await applied(client, removed["id"])
        await client.delete_bundle(removed["id"])
        await gone(client, removed["id"])
        connection = await connect(maestro.database)
        await connection.execute("UPDATE events SET created_at = now() - interval '1 day'")
        await connection.close()
        server = maestro.servers[-1]
        await server.feed.tidy()
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{client.base_url}/resource-bundles/watch?after=1-0") as answer:
                assert answer.status == 410 and "expired" in json.loads(await answer.read())["reason"]
        reader = Reader(client)
        async with running(reader.follow("1-0")):
            await reader.sees(lambda bundles: made["id"] in bundles)
        with pytest.raises(MaestroError):
            await client.get_bundle(removed["id"])

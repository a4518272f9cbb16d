"""A bundle that says how long it is kept after it has finished is deleted then, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regional.core.database import migrate
from regional.maestro.client import MaestroClient, MaestroError
from regional.maestro.protocol.bundles import status_event
from regional.maestro.protocol.sequence import SequenceIds
from regional.maestro.server.schema import MIGRATIONS
from tests.maestro.harness import Maestro, Wire, config_map, connect, eventually

IDS = SequenceIds()


async def report(agent: Wire, bundle: dict[str, Any], complete: str) -> None:
    conditions = [{"type": "Applied", "status": "True"}, {"type": "Complete", "status": complete}]
    await agent.send(
        status_event(
            source="agent",
            consumer="mc01",
            original_source="maestro",
            resource_id=bundle["id"],
            version=bundle["version"],
            sequence=IDS.next(),
            hash=complete,
            conditions=conditions,
            resource_status=[],
            metadata="{}",
        )
    )


async def has(client: MaestroClient, bundle: dict[str, Any], complete: str) -> None:
    async def stored() -> bool:
        conditions = ((await client.get_bundle(bundle["id"])).get("status") or {}).get("conditions") or []
        return {"type": "Complete", "status": complete} in conditions

    await eventually(stored)


async def test_it_goes_when_its_time_after_completion_has_passed(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        option = {"propagationPolicy": "Foreground", "ttlSecondsAfterFinished": 0}
        done = await client.create_bundle("mc01", [config_map("done")], delete_option=option)
        busy = await client.create_bundle("mc01", [config_map("busy")], delete_option=option)
        longer = {"propagationPolicy": "Foreground", "ttlSecondsAfterFinished": 3600}
        later = await client.create_bundle("mc01", [config_map("later")], delete_option=longer)
        plain = await client.create_bundle("mc01", [config_map("plain")])
        for bundle, complete in ((busy, "False"), (later, "True"), (plain, "True"), (done, "True")):
            await report(agent, bundle, complete)
        for bundle, complete in ((busy, "False"), (later, "True"), (plain, "True")):
            await has(client, bundle, complete)

        async def deleting() -> bool:
            return "deleted_at" in await client.get_bundle(done["id"])

        await eventually(deleting)
        for bundle in (busy, later, plain):
            assert "deleted_at" not in await client.get_bundle(bundle["id"])
        connection = await connect(maestro.database)
        try:
            waiting = await connection.fetch("SELECT id FROM resources WHERE expires_at IS NOT NULL")
            assert {row["id"] for row in waiting} == {done["id"], later["id"]}
            await report(agent, later, "False")  # it was not finished after all
            await has(client, later, "False")
            assert await connection.fetchval("SELECT expires_at FROM resources WHERE id = $1", later["id"]) is None
        finally:
            await connection.close()


async def test_what_is_changed_when_its_time_has_just_passed_stays(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version has not finished: whoever wrote it would lose it."""
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        option = {"ttlSecondsAfterFinished": 0}
        made = await client.create_bundle("mc01", [config_map("a")], delete_option=option)
        bundles, looked = maestro.servers[-1].bundles, asyncio.Event()
        find = bundles.expired

        async def then_changed(consumers: Sequence[str], limit: int) -> list[str]:
            found = await find(consumers, limit)
            for bundle_id in found:
                await client.patch_bundle(bundle_id, manifests=[config_map("a", {"key": "2"})])
            if not found and (await client.get_bundle(made["id"]))["version"] == 2:
                looked.set()  # what was found before has been dealt with
            return found

        monkeypatch.setattr(bundles, "expired", then_changed)
        await report(agent, made, "True")
        await asyncio.wait_for(looked.wait(), 60)
        assert "deleted_at" not in await client.get_bundle(made["id"])


@pytest.mark.parametrize("seconds", [-1, 2**31, 10**30])
async def test_a_time_that_no_calendar_has_is_refused(maestro: Maestro, seconds: int) -> None:
    """It was accepted, and then no status that said `Complete` could be stored."""
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        said = r"delete_option\.ttlSecondsAfterFinished is not 0 to 2147483647"
        with pytest.raises(MaestroError, match=said):
            await client.create_bundle("mc01", [config_map("a")], delete_option={"ttlSecondsAfterFinished": seconds})


async def test_a_database_of_the_release_before_goes_on(maestro: Maestro, tmp_path: Path) -> None:
    connection = await connect(maestro.database)
    try:
        await migrate(connection, "maestro", MIGRATIONS[:1])
        await connection.execute("INSERT INTO consumers (id, name, last_seen_at) VALUES ('c', 'mc01', now())")
        for name, spec in (
            ("old", '{"manifests":[],"deleteOption":{"ttlSecondsAfterFinished":0}}'),
            ("plain", '{"manifests":[]}'),
        ):
            await connection.execute(
                "INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, status,"
                " status_version, status_sequence, applied) VALUES ($1, $1, 's', 'mc01', 1, '{}', $2, $3, 1, 1, true)",
                *(name, spec, '{"conditions":[{"type":"Complete","status":"True"}]}'),
            )
            await connection.execute("INSERT INTO events (resource_id, source, kind) VALUES ($1, 's', 'spec')", name)
    finally:
        await connection.close()
    async with maestro.server() as client:
        (consumer,) = await client.consumers()
        assert (consumer["connected"], consumer["pending"]) == (True, 0)

        async def expired() -> bool:
            return "deleted_at" in await client.get_bundle("old")

        await eventually(expired)
        assert "deleted_at" not in await client.get_bundle("plain")
        assert await client.bundle_history("plain") == []

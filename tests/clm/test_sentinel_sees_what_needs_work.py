"""Every change becomes an event at once; what nobody announces is found by the scan; only one sentinel works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from regional.clm.client import ClmClient
from regional.clm.entities import REGISTRY
from regional.clm.events import Subject
from regional.clm.sentinel.decisions import Decisions, Rhythm
from regional.clm.sentinel.main import Sentinel, Settings
from regional.clm.subjects import Seen
from regional.core import store
from regional.core.store_feed import FeedReader
from tests.clm.conftest import Region, add_management_cluster, report, until


@contextlib.asynccontextmanager
async def sentinel(region: Region, **settings: Any) -> AsyncIterator[None]:
    made = Sentinel(Settings(**settings))
    task = asyncio.create_task(region.database.keep_session(made.follow))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def events(region: Region) -> list[dict[str, Any]]:
    rows = await region.rows("SELECT event, sequence FROM events ORDER BY sequence")
    return [msgspec.json.decode(row["event"]) for row in rows]


async def work_done(region: Region) -> None:
    async with region.connection() as connection:
        await connection.execute("DELETE FROM events")


async def test_a_change_becomes_an_event_with_the_request_that_made_it(clm: ClmClient, region: Region) -> None:
    await add_management_cluster(clm)
    async with sentinel(region):
        made = await clm.create("Cluster", "demo", {}, request_id="req-7")
        (event,) = await until(lambda: events(region))
        assert event["type"] == "com.redhat.hyperfleet.cluster.reconcile"
        assert event["source"] == "hyperfleet-sentinel"
        assert event["requestid"] == "req-7"
        assert event["data"] == {"id": made["id"], "kind": "Cluster", "href": made["href"], "generation": 1}
        await clm.patch("Cluster", made["id"], spec={"tags": {"a": "b"}}, request_id="req-8")

        async def newer() -> bool:
            return [found["data"]["generation"] for found in await events(region)] == [2]

        await until(newer)  # still one row: the newer event replaced the older


async def test_a_node_pool_names_its_cluster_and_is_woken_with_it(clm: ClmClient, region: Region) -> None:
    async with sentinel(region, pulse_not_reconciled_seconds=3600):
        cluster = await clm.create("Cluster", "demo", {})
        pool = await clm.create("NodePool", "workers", {"replicas": 1}, parent_id=cluster["id"])

        async def kinds() -> set[str]:
            return {found["data"]["kind"] for found in await events(region)}

        async def both() -> bool:
            return await kinds() == {"Cluster", "NodePool"}

        await until(both)
        await work_done(region)
        await clm.put_status("Cluster", cluster["id"], report(1))
        (event,) = await until(lambda: events(region))
        assert event["data"]["id"] == pool["id"]
        assert event["data"]["owner_references"]["id"] == cluster["id"]


async def test_a_node_pool_is_woken_when_the_former_one_of_its_name_is_gone(clm: ClmClient, region: Region) -> None:
    cluster = await clm.create("Cluster", "demo", {})
    former = await clm.create("NodePool", "workers", {}, parent_id=cluster["id"])
    await clm.delete("NodePool", former["id"])
    await clm.create("NodePool", "others", {}, parent_id=cluster["id"])
    living = await clm.create("NodePool", "workers", {}, parent_id=cluster["id"])
    async with sentinel(region):

        async def all_told() -> bool:
            return len(await events(region)) == 4

        await until(all_told)
        await work_done(region)
        async with region.connection() as connection:
            await connection.execute("UPDATE pulses SET due = now() + interval '1 hour'")
        await clm.put_status("NodePool", former["id"], report(2, "False", finalized="True"))
        (event,) = await until(lambda: events(region))
        assert event["data"]["id"] == living["id"]


async def test_old_history_is_forgotten_but_for_the_last_entry_of_what_is_there(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Account", "111122223333", {})
    await clm.patch("Account", made["id"], spec={"privileged": True})
    gone = await clm.create("Account", "444455556666", {})
    await clm.delete("Account", gone["id"])
    async with region.connection() as connection:
        await store.forget_history(connection, datetime.now(UTC) + timedelta(days=1))
    rows = await region.rows("SELECT resource_id, revision FROM resource_history")
    assert [(str(row["resource_id"]), row["revision"]) for row in rows] == [(made["id"], 2)]
    assert (await clm.history("Account", made["id"]))["total"] == 1


async def test_lost_notifications_are_found_by_the_scan(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    async with region.connection() as connection:
        # As if the sentinel had read the feed and died before it could write the event.
        await connection.execute("DELETE FROM changes")
        reader = FeedReader(connection, "sentinel")
        await reader.open(await connection.fetchval("SELECT now()"))
        await connection.execute("UPDATE pulses SET due = now()")
    async with sentinel(region):
        (event,) = await until(lambda: events(region))
        assert event["data"]["id"] == made["id"]


async def test_what_is_not_reconciled_is_looked_at_again_and_again(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    async with sentinel(region, pulse_not_reconciled_seconds=0.1, pulse_reconciled_seconds=3600):
        for _ in range(3):
            await until(lambda: events(region))
            await work_done(region)
        await clm.put_status("Cluster", made["id"], report(1))

        async def at_rest() -> bool:
            return bool(await region.value("SELECT min(due) > now() + interval '30 minutes' FROM pulses"))

        await until(at_rest)
        await work_done(region)
        await asyncio.sleep(0.3)
        assert await events(region) == []


async def test_a_kind_that_has_no_adapters_any_more_is_not_due_for_ever(clm: ClmClient, region: Region) -> None:
    account = await clm.create("Account", "111122223333", {})
    async with region.connection() as connection:
        await connection.execute("INSERT INTO pulses VALUES ($1, now())", UUID(account["id"]))
    async with sentinel(region):

        async def none_due() -> bool:
            return not await region.value("SELECT count(*) FROM pulses")

        await until(none_due)
    assert await events(region) == []


async def test_what_waits_long_is_looked_at_less_often() -> None:
    rhythm, now = Rhythm(), datetime(2026, 1, 1, tzinfo=UTC)

    def pause(waited: timedelta, reconciled: bool = False) -> float:
        subject = Subject(UUID(int=1), "Cluster", 1, "", "")
        return (rhythm.next_look(Seen(subject, reconciled, ("a",), now - waited), now) - now).total_seconds()

    waits = [pause(timedelta(seconds=seconds)) for seconds in (0, 30, 60, 600, 100_000)]
    assert waits == [10, 10, 15, 150, 180]
    assert pause(timedelta(0), reconciled=True) == 1800


async def test_only_one_sentinel_works_and_another_takes_over(clm: ClmClient, region: Region) -> None:
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(sentinel(region))
        await until(lambda: locks(region))
        async with sentinel(region):
            await clm.create("Cluster", "demo", {})
            await until(lambda: events(region))
            await work_done(region)
            await first.aclose()
            await clm.create("Cluster", "second", {})
            await until(lambda: events(region))


async def locks(region: Region) -> int:
    return int(await region.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"))


async def test_an_entry_that_commits_late_is_not_skipped(region: Region) -> None:
    async with region.connection() as slow, region.connection() as quick, region.connection() as reading:
        now = await reading.fetchval("SELECT now()")
        reader = FeedReader(reading, "test")
        await reader.open(now)
        transaction = slow.transaction()
        await transaction.start()
        await store.insert(slow, resource("slow", now))
        await store.insert(quick, resource("quick", now))
        batch = await reader.read()
        await reader.settle(batch, now)
        first = [change.tenant for change in batch.changes]
        await transaction.commit()
        batch = await reader.read()
        await reader.settle(batch, now)
        assert (first, [change.tenant for change in batch.changes]) == (["quick"], ["slow"])
        assert (await reader.read()).changes == []
        again = FeedReader(reading, "test")  # after a crash nothing before the place comes again
        assert await again.open(now)
        assert [change.tenant for change in (await again.read()).changes] in ([], ["quick"], ["quick", "slow"])


async def test_without_a_place_what_is_not_well_is_looked_at_now_and_the_rest_in_time(
    clm: ClmClient, region: Region
) -> None:
    made = [await clm.create("Cluster", f"made{number}", {}) for number in range(6)]
    for cluster in made[:3]:
        await clm.put_status("Cluster", cluster["id"], report(1))
    async with region.connection() as connection:
        await connection.execute("UPDATE pulses SET due = now() + interval '1 hour'")
        async with connection.transaction():
            reader = FeedReader(connection, "sentinel")
            now = datetime.now(UTC)
            assert not await reader.open(now)
            await Decisions(REGISTRY, Rhythm()).look_at_all(connection, now)
        rows = await connection.fetch("SELECT resource_id, due FROM pulses ORDER BY resource_id")
    waits = {str(row["resource_id"]): (row["due"] - now).total_seconds() for row in rows}
    assert [waits[cluster["id"]] for cluster in made[3:]] == [0, 0, 0]
    assert all(0 < waits[cluster["id"]] < 1800 for cluster in made[:3])


async def test_a_feed_from_another_server_is_noticed(region: Region) -> None:
    async with region.connection() as connection:
        now = await connection.fetchval("SELECT now()")
        await connection.execute("INSERT INTO feed_cursors VALUES ('test', 1::bigint << 60, $1)", now)
        assert not await FeedReader(connection, "test").open(now)
        assert await FeedReader(connection, "test").open(now)


def resource(tenant: str, now: Any) -> store.Stored:
    from regional.core.identifiers import uuid7

    empty, none = msgspec.Raw(b"{}"), msgspec.Raw(b"[]")
    return store.Stored(
        uuid7(), "Cluster", "x", tenant, None, None, 1, 1, empty, {}, none, "", now, "me", now, "me", None, None
    )

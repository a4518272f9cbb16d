"""What operators of Maestro have suffered from, each as a test that fails if it comes back.

| failure | tests |
|---|---|
| a backlog of deletes starves creates | here, and `test_no_consumer_waits_for_another` with 100,000 of them |
| a status under way undoes a deletion | here |
| deletions are never finished when the agent was away | here |
| a delete is acknowledged and the agent never told; an update revives what is deleted | here |
| an event counts as delivered because the broker took it | here |
| a resync is larger than the broker takes | here, and `test_the_wire_is_the_contracts` for every size |
| a database outage makes liveness probes restart every server | `test_outages_end_by_themselves` |
| nobody listens any more after the database came back | `test_watches_miss_nothing`, `test_outages_end_by_themselves` |
| one long list takes all the memory there is | `test_lists_are_complete_and_cheap` |
| a management cluster made anew, and the server keeps what the former one said | here |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from regional.core.mqtt import NotPublished
from regional.maestro.agent import reporter
from regional.maestro.agent.works import Work
from regional.maestro.protocol.bundles import LARGEST_RESYNC, ResourceVersions, StatusHashes
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, Event
from regional.maestro.protocol.sequence import SequenceIds
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.refusals import Refusal
from tests.maestro.harness import eventually
from tests.maestro.loose_wire import DOWN, UP, event_of
from tests.maestro.world import MC, World, started_api

IOT_MESSAGE = 128 * 1024


@pytest.fixture
async def world(tmp_path: Path, database: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Server and agent, and a wire on which everything arrives at once until a test says otherwise."""
    api = await started_api(tmp_path / "api")
    made = World(tmp_path, database, api)
    made.patch(monkeypatch)
    await made.begin()
    made.wire.flowing = True
    await made.start_agent()
    await eventually(lambda: connected(made, DOWN), 60)
    yield made
    await made.end()
    await api.stop()


async def connected(world: World, way: str) -> bool:
    return any(end.way == way and end.connected for end in world.wire.ends)


async def row_of(world: World, bundle: str) -> Mapping[str, Any] | None:
    rows = await world.query("SELECT * FROM resources WHERE id = $1", bundle)
    return rows[0] if rows else None


async def applied(world: World, bundle: str, version: int) -> None:
    async def check() -> bool:
        row = await row_of(world, bundle)
        return bool(row and row["applied"] and row["status_version"] == version and row["due_at"] is None)

    await eventually(check, 60)


async def gone(world: World, bundle: str) -> None:
    async def check() -> bool:
        world.check_alive()
        return await row_of(world, bundle) is None

    await eventually(check, 60)


async def made(world: World, bundle: str = "a") -> None:
    await applied(world, bundle, await world.create(bundle, {bundle: "1"}))


async def nothing_left(world: World) -> None:
    """Nor does anything come back when every spec that was ever sent arrives once more."""
    assert (await world.on_cluster(), await world.records()) == ({}, set())
    for packet in list(world.wire.past[DOWN]):
        world.wire.repeat(DOWN, packet)

    async def idle() -> bool:
        assert world.agent is not None
        return not len(world.agent.works)

    await eventually(idle, 60)
    assert (await world.on_cluster(), await world.records()) == ({}, set())


def is_delete(event: Event) -> bool:
    return event.subresource == SPEC and "deletiontimestamp" in event.extensions


def sent(world: World, way: str) -> list[Event]:
    return [event_of(packet) for packet in world.wire.past[way]]


# -- deletes ---------------------------------------------------------------------------------------------------------


async def test_a_delete_asked_for_many_times_is_one_delete(world: World) -> None:
    """Excludes a new event for each of many equal requests: a client that repeats its deletes made 171,000 an hour."""
    await made(world)
    world.wire.separate(DOWN)
    for _ in range(50):
        await world.delete("a")
    (events,) = await world.query("SELECT count(*) FROM events WHERE resource_id = 'a' AND kind = 'deleting'")
    assert events["count"] == 1
    row = await row_of(world, "a")
    assert row is not None and sum(map(is_delete, sent(world, DOWN))) <= 1 + row["attempts"]
    world.wire.join(DOWN)
    await gone(world, "a")


async def test_a_status_under_way_does_not_undo_a_deletion(world: World) -> None:
    """Excludes an agent that writes a work back as it was when its status was sent: the deletion that came in between
    was lost, the objects were made anew, and `Deleted` never sent."""
    held, release = asyncio.Event(), asyncio.Event()

    async def hold_statuses(event: Event) -> None:
        if event.subresource == STATUS and event.action != RESYNC and not release.is_set():
            held.set()
            await release.wait()

    world.wire.before = hold_statuses
    await world.create("a", {"a": "1"})
    await asyncio.wait_for(held.wait(), 60)
    await world.delete("a")

    async def deletion_known() -> bool:
        assert world.agent is not None
        return any(work.deletion for work in world.agent.works)

    await eventually(deletion_known, 60)
    release.set()
    await gone(world, "a")
    await nothing_left(world)


async def test_a_status_under_way_leaves_nothing_of_a_deleted_work_on_disk(world: World) -> None:
    """Excludes an agent that keeps a work as it was when its status was sent, though it has been replaced and deleted
    meanwhile: at its next start it would make the objects anew."""
    held, release, deleted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold_the_first_status(event: Event) -> None:
        if event.subresource == STATUS and event.resource_id == "a" and event.version == 1:
            held.set()
            await release.wait()
        elif is_delete(event):
            if deleted.is_set():
                raise NotPublished("the agent hears of the deletion once")
            deleted.set()

    world.wire.before = hold_the_first_status
    await world.create("a", {"a": "1"})
    await asyncio.wait_for(held.wait(), 60)
    await world.update("a", {"a": "2"})

    async def replaced() -> bool:
        return await world.on_cluster() == {"a": "2"}

    await eventually(replaced, 60)
    await world.delete("a")

    async def deletion_known() -> bool:
        assert world.agent is not None
        return any(work.deletion for work in world.agent.works)

    await eventually(deletion_known, 60)
    release.set()
    await gone(world, "a")
    # When it is on disk what became of another work, all that was to be written before is there, too.
    await made(world, "b")

    async def written() -> bool:
        return bool(world.kept()["b"]["outcome"])

    await eventually(written, 60)
    assert set(world.kept()) == {"b"}


async def test_a_deletion_is_finished_by_whoever_is_the_agent_then(world: World) -> None:
    """Excludes rows that stay in deletion for ever because the agent that knew the work has gone."""
    await made(world)
    await world.kill_agent()
    await world.delete("a")
    row = await row_of(world, "a")
    assert row is not None and row["deleted_at"] and row["due_at"], "nobody has said that it is gone"
    await world.lose_cluster()
    await world.start_agent()
    await gone(world, "a")
    await nothing_left(world)


@pytest.mark.parametrize("lost", ["the delete", "its answer"])
async def test_a_delete_is_repeated_until_it_is_answered(world: World, lost: str) -> None:
    """Excludes deletes that are sent once: one message that is lost, and the row stays in deletion for ever."""
    await made(world)
    world.wire.flowing = False
    await world.delete("a")
    await eventually(lambda: waits(world, DOWN, b""), 60)
    if lost == "its answer":
        await answered(world, b'"Deleted"')
    await answered_by_the_broker(world)
    for way in (DOWN, UP):
        world.wire.waiting[way].clear()
    await soon_due(world)
    world.wire.flowing = True
    world.wire.deliver_all()  # what was sent again already
    await gone(world, "a")
    await nothing_left(world)


async def waits(world: World, way: str, text: bytes) -> bool:
    """Whether such a message about the bundle is on the wire."""
    packets = [packet for packet in world.wire.waiting[way] if event_of(packet).resource_id == "a"]
    return any(text in bytes(packet.payload or b"") for packet in packets)


async def answered(world: World, text: bytes) -> None:
    """What is for the agent arrives, and its answer is on the wire."""

    async def check() -> bool:
        while world.wire.waiting[DOWN]:
            world.wire.deliver(DOWN)
        return await waits(world, UP, text)

    await eventually(check, 60)


async def answered_by_the_broker(world: World) -> None:
    """Whatever the server makes of the answer, it has made by now."""

    async def check() -> bool:
        lanes = world.server_now.delivery._lanes.values()
        return not any(lane.under_way or lane.specs or lane.deletes for lane in lanes)

    await eventually(check, 60)


async def soon_due(world: World) -> None:
    """The scan would find it in a few seconds; it is only to be found earlier."""
    rows = await world.query("UPDATE resources SET due_at = now() WHERE due_at IS NOT NULL RETURNING id")
    assert [row["id"] for row in rows] == ["a"], "nobody has said that the agent has it"


async def test_a_delete_right_after_its_create_is_told_to_the_agent(world: World) -> None:
    """Excludes a server that takes a bundle whose create is not sent yet out of its database and tells nobody: if the
    create did go out, the objects stay for ever."""
    held, release = asyncio.Event(), asyncio.Event()

    async def hold_the_create(event: Event) -> None:
        if event.subresource == SPEC and event.resource_id == "a" and not release.is_set():
            held.set()
            await release.wait()

    world.wire.before = hold_the_create
    await world.create("a", {"a": "1"})
    await asyncio.wait_for(held.wait(), 60)
    await world.delete("a")
    row = await row_of(world, "a")
    assert row is not None and row["deleted_at"], "it stays until its agent says that it is gone"
    release.set()
    await gone(world, "a")
    assert any(is_delete(event) for event in sent(world, DOWN))
    await nothing_left(world)


async def test_an_update_does_not_revive_what_is_being_deleted(world: World) -> None:
    """Excludes an update that is accepted after the delete, and makes the agent apply everything anew."""
    await made(world)
    world.wire.separate(DOWN)
    await world.delete("a")
    with pytest.raises(Refusal, match="under deletion"):
        await world.update("a", {"a": "2"})
    with pytest.raises(Refusal, match="under deletion"):
        await world.create("a", {"a": "3"})
    world.wire.join(DOWN)
    await gone(world, "a")
    await nothing_left(world)


async def test_a_late_deleted_of_a_former_life_ends_nothing(world: World) -> None:
    """Excludes a second copy of `Deleted` that takes a bundle made anew under its old id out of the database, or ends
    its next deletion before the agent has done anything."""
    await made(world)
    await world.delete("a")
    await gone(world, "a")
    former = [packet for packet in world.wire.past[UP] if b'"Deleted"' in bytes(packet.payload or b"")]
    assert former
    version = await world.create("a", {"a": "2"})
    await applied(world, "a", version)

    async def late() -> None:
        for packet in former:
            world.wire.repeat(UP, packet)
        await world.server_now.inbox.flush()

    await late()
    assert await row_of(world, "a") is not None
    assert await world.on_cluster() == {"a": "2"}
    world.wire.separate(DOWN)
    await world.delete("a")
    await late()
    assert await row_of(world, "a") is not None, "its objects are still there"
    world.wire.join(DOWN)
    await gone(world, "a")
    await nothing_left(world)


async def test_what_is_made_anew_while_its_former_life_ends_counts_on_from_there(world: World) -> None:
    """Excludes a create that waits for the statement which ends the bundle's former life and then begins with 1, as if
    there had been none: a second copy of the former life's `Deleted` would end the next deletion."""
    await made(world)
    await world.update("a", {"a": "2"})
    await applied(world, "a", 2)
    pool = world.server_now.database.pool
    assert pool is not None
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO tombstones (id, consumer_name, version) VALUES ('a', $1, 0)", MC)
        await world.delete("a")
        await eventually(lambda: blocked(world, 1), 60)  # its row is gone, but that is not committed
        again = asyncio.create_task(world.create("a", {"a": "3"}))

        async def refused_or_waiting() -> bool:
            return again.done() or await blocked(world, 2)

        await eventually(refused_or_waiting, 60)
        await transaction.rollback()
    try:
        version = await again
    except Refusal:
        await gone(world, "a")
        version = await world.create("a", {"a": "3"})
    assert version == 3
    await applied(world, "a", version)


async def blocked(world: World, number: int) -> bool:
    """Whether so many statements wait for another's transaction."""
    (found,) = await world.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(found["count"] >= number)


# -- delivery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["the spec", "its status", "the broker's answer"])
async def test_what_the_broker_took_is_not_delivered_before_the_agent_says_so(world: World, lost: str) -> None:
    """Excludes events that are done when the broker has answered: what is lost behind it is never sent again."""
    refused = asyncio.Event()

    async def refuse(event: Event) -> None:
        if event.subresource == SPEC and event.resource_id == "a":
            refused.set()
            raise NotPublished("the broker went away before it answered")

    world.wire.flowing = False
    if lost == "the broker's answer":
        world.wire.before = refuse
    version = await world.create("a", {"a": "1"})
    if lost == "the broker's answer":
        await asyncio.wait_for(refused.wait(), 60)
    else:
        await eventually(lambda: waits(world, DOWN, b""), 60)
    if lost == "its status":
        await answered(world, b'"Applied"')
    await answered_by_the_broker(world)
    world.wire.begin()
    await soon_due(world)
    world.wire.flowing = True
    world.wire.deliver_all()  # what was sent again already
    await applied(world, "a", version)
    assert await world.on_cluster() == {"a": "1"}


async def test_resyncs_of_many_bundles_are_messages_that_every_broker_takes(world: World) -> None:
    """Excludes one message with everything in it: with 4,000 bundles it is larger than brokers take, is dropped, and
    neither side ever learns what it missed."""
    many = 4000
    await world.query(
        "INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, status_hash)"
        " SELECT id, id, 's', $2, 1, '{}', '{}', repeat('0', 64)"
        " FROM (SELECT lpad(n::text, 36, 'bundle-') AS id FROM generate_series(1, $1) AS n) AS made",
        *(many, MC),
    )
    ids = {row["id"] for row in await world.query("SELECT id FROM resources")}
    assert world.agent is not None
    for found in ids:
        work = Work(id=found, name=found, generation=1, source="maestro", metadata={}, request_id="", bundle=None)
        world.agent.works.put_back(work, time.monotonic())
    world.wire.past[UP].clear()
    world.wire.past[DOWN].clear()
    world.wire.join(UP)
    world.wire.join(DOWN)

    async def told() -> bool:
        assert _named(world, UP) == _named(world, DOWN) == ids
        return True

    await eventually(told, 60)
    resyncs = [packet for way in (UP, DOWN) for packet in world.wire.past[way] if event_of(packet).action == RESYNC]
    assert LARGEST_RESYNC < IOT_MESSAGE
    assert max(len(packet.payload or b"") for packet in resyncs) <= LARGEST_RESYNC


def _named(world: World, way: str) -> set[str]:
    """Bundles that were asked about."""
    asked = [event for event in sent(world, way) if event.action == RESYNC]
    if way == UP:
        lists = [msgspec.json.decode(event.data, type=ResourceVersions).resource_versions or [] for event in asked]
        return {found.resource_id for part in lists for found in part}
    hashes = [msgspec.json.decode(event.data, type=StatusHashes).status_hashes or [] for event in asked]
    return {found.resource_id for part in hashes for found in part}


async def test_a_pool_closed_in_the_middle_of_a_statement_is_a_lost_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes a server that ends itself when the database goes away between two steps of one of its statements."""
    pool = world.server_now.database.pool
    assert pool is not None
    prepared = asyncpg.Connection._get_statement

    async def then_lost(self: asyncpg.Connection, query: str, *arguments: Any, **options: Any) -> Any:
        statement = await prepared(self, query, *arguments, **options)
        if "'this one'" in query:
            self.terminate()
        return statement

    monkeypatch.setattr(asyncpg.Connection, "_get_statement", then_lost)
    with pytest.raises(FAILURES):
        await pool.fetchval("SELECT 'this one', $1::int", 1)


# -- a management cluster that is made anew --------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["right", "an hour behind"])
async def test_what_a_former_cluster_said_is_not_kept(
    world: World, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes a server that shows a lost cluster's statuses for its successor, which has nothing of it: the new agent
    is taken to have what it does not speak of, or its statuses count as older than those of the former one."""
    await world.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}})
    await made(world, "kept")
    version = await world.create("failing", {"failing": "1"}, namespace="extra")
    await applied(world, "failing", version)
    before = {row["id"]: row for row in await world.query("SELECT * FROM resources")}

    await world.lose_cluster()
    await world.client.delete("v1", "ConfigMap", "failing", "extra")
    await world.client.delete("v1", "Namespace", "extra")
    if clock == "an hour behind":
        monkeypatch.setattr(
            reporter, "SequenceIds", lambda: SequenceIds(lambda: time.time_ns() // 1_000_000 - 3_600_000)
        )
    await world.start_agent()

    async def told_anew() -> bool:
        rows = {row["id"]: row for row in await world.query("SELECT * FROM resources")}
        assert not rows["failing"]["applied"] and rows["kept"]["applied"]
        assert all(rows[name]["status_sequence"] > before[name]["status_sequence"] for name in rows)
        return await world.on_cluster() == {"kept": "1"}

    await eventually(told_anew, 60)


async def test_an_agent_that_restarts_with_its_disk_and_an_older_clock_is_still_believed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes sequence ids that begin anew with the clock: the server would take every status for an old one until the
    clock has caught up, and no resync tells, because the agent lacks nothing."""
    await made(world)

    async def written() -> bool:
        return bool(world.kept()["a"]["sequence"])

    await eventually(written, 60)
    await world.kill_agent()
    monkeypatch.setattr(reporter, "SequenceIds", lambda: SequenceIds(lambda: time.time_ns() // 1_000_000 - 3_600_000))
    await world.start_agent()
    await world.update("a", {"a": "2"})
    await applied(world, "a", 2)

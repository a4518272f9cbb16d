"""Messages lost, doubled and in any order, either side restarted: afterwards both sides agree, and the newest won.

The server's real parts on a real database and the agent's real memory of works; only the wire between them is a list,
so that anything can happen to what is on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.core.database import Database, migrate
from regional.core.mqtt import NotPublished
from regional.maestro.agent.works import Taken, Work, Works
from regional.maestro.protocol.bundles import spec_resync_events, status_event
from regional.maestro.protocol.events import RESYNC, Event
from regional.maestro.protocol.sequence import SequenceIds
from regional.maestro.server import resync
from regional.maestro.server.bundles import BundleExists, Bundles, NewBundle, UnderDeletion
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.delivery import Delivery
from regional.maestro.server.resync import Resync
from regional.maestro.server.schema import MIGRATIONS
from regional.maestro.server.source import Source
from regional.maestro.server.statuses import Inbox, Report, report_of
from tests.maestro.harness import Postgres, laid_out, running

IDS = ("a", "b")


class Agent:
    """Applies at once whatever its memory of works says is news, and answers as the real one does."""

    def __init__(self, up: list[Event]) -> None:
        self._up, self._sequence = up, SequenceIds()
        self._records: set[str] = set()  # they are on the cluster, and outlive the agent
        self.restart()

    def restart(self) -> None:
        self.works = Works()

    def take(self, event: Event) -> None:
        taken = self.works.take(event, 0.0)
        work = self.works.get(event.resource_id)
        if work is None or taken is Taken.OUTDATED:
            return
        if not work.deletion:
            self._records.add(work.id)
            self._say(work, "Applied")
            return
        if work.id in self._records:
            self._records.discard(work.id)
            self._say(work, "Deleting")
            self._say(work, "Deleting", "Deleted")
        else:
            self._say(work, "Deleted")
        self.works.gone(work, 0.0)

    def _say(self, work: Work, *kinds: str) -> None:
        self._up.append(
            status_event(
                source="agent",
                consumer="mc01",
                original_source="maestro",
                resource_id=work.id,
                version=work.generation,
                sequence=self._sequence.next(),
                hash="",
                conditions=[{"type": kind, "status": "True"} for kind in kinds],
                resource_status=[],
                metadata="{}",
            )
        )

    def resync(self) -> None:
        works = [(work.id, work.generation) for work in self.works]
        self._up += spec_resync_events("agent", "mc01", works)


class World:
    def __init__(self, database: Database) -> None:
        self.up: list[Event] = []
        self.down: list[Event] = []
        self.database = database
        self.bundles = Bundles(database)
        self.agent = Agent(self.up)
        self.start_server()

    def start_server(self) -> None:
        self.delivery = Delivery(self.bundles, self._publish, "maestro")
        self.resync = Resync(
            self.database,
            self.bundles,
            Consumers(self.database),
            self.delivery,
            self._publish,
            source_id="maestro",
            keep_unknown=False,
        )
        self._strays: list[Report] = []
        self.inbox = Inbox(self.database, lambda _: None, self._strays.extend)

    async def _publish(self, event: Event) -> int:
        await self.publishing(event)
        self.down.append(event)
        return 0

    async def publishing(self, event: Event) -> None:
        """What happens just before a message goes out, for a test to say."""

    async def quiet(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def change(self, what: str, bundle_id: str) -> None:
        if what == "create":
            new = NewBundle(
                id=bundle_id, name=bundle_id, source="s", consumer_name="mc01", metadata="{}", spec=SPEC, request_id=""
            )
            try:
                made, _, fresh = await self.bundles.create(new)
            except (BundleExists, UnderDeletion):
                return
            if fresh:
                self.delivery.offer(made)
        elif what == "update":
            known = await self.bundles.get(bundle_id)
            if known is not None and known.deleted_at is None:
                spec = SPEC.replace('"n"', f'"n{known.version}"')
                made = await self.bundles.update(known, metadata="{}", spec=spec, request_id="")
                assert made is not None
                self.delivery.offer(made[0])
        else:
            ended = await self.bundles.delete(bundle_id, "")
            if ended is not None:
                self.delivery.offer(ended)
        await self.quiet()

    async def arrive_up(self, event: Event) -> None:
        if event.action == RESYNC:
            await self.resync.answer(event)
        else:
            self.inbox.offer(report_of(event))
            await self.inbox.flush()
            reported = {found.id: found.version for found in self._strays if found.lives}
            self._strays.clear()
            if reported:
                await self.resync.end_strays("mc01", reported)
        await self.quiet()

    async def step(self, step: tuple[str, Any]) -> None:
        what, argument = step
        if what in ("create", "update", "delete"):
            return await self.change(what, argument)
        if what == "agent restarts":
            self.agent.restart()
            return self.agent.resync()
        if what == "server restarts":
            await self.delivery.close()
            self.start_server()
            return await self.delivery.catch_up()
        queue = self.down if "down" in what else self.up
        if not queue:
            return None
        index = argument % len(queue)
        event = queue[index] if what.startswith("repeat") else queue.pop(index)
        if what.startswith("lose"):
            return None
        if queue is self.down:
            self.agent.take(event)
        else:
            await self.arrive_up(event)
        return None

    async def settle(self) -> None:
        """From now on nothing is lost: resyncs until there is nothing more to say."""
        for _ in range(4):
            await self.delivery.catch_up()  # what nobody confirmed is sent again sooner or later
            await self.quiet()
            self.agent.resync()
            while self.up or self.down:
                while self.down:
                    self.agent.take(self.down.pop(0))
                while self.up:
                    await self.arrive_up(self.up.pop(0))


SPEC = '{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"}}]}'
on_the_wire = [f"{what} {way}" for what in ("deliver", "deliver", "lose", "repeat") for way in ("down", "up")]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["create", "create", "update", "delete"]), st.sampled_from(IDS)),
        st.tuples(st.sampled_from(on_the_wire), st.integers(0, 20)),
        st.tuples(st.sampled_from(["agent restarts", "server restarts"]), st.just(0)),
    ),
    min_size=4,
    max_size=40,
)


@pytest.fixture(scope="module")
def files(shared_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(tmp_path_factory.mktemp("db"), asyncio.run(shared_postgres.database()))


@contextlib.asynccontextmanager
async def empty_world(files: Path) -> AsyncIterator[World]:
    database = Database(files, sslmode="disable", application="test")
    await database.once_connected(lambda connection: migrate(connection, "maestro", MIGRATIONS))
    async with running(database.keep_connected()):
        while database.pool is None:
            await asyncio.sleep(0.001)
        await database.pool.execute("TRUNCATE resources, tombstones, events, consumers, agent_works")
        await Consumers(database).create("mc01", None)
        world = World(database)
        yield world
        await world.delivery.close()


async def play(files: Path, chosen: list[tuple[str, Any]]) -> None:
    async with empty_world(files) as world:
        for step in chosen:
            await world.step(step)
        await world.settle()
        assert world.database.pool is not None
        rows = await world.database.pool.fetch("SELECT id, version, status_version, deleted_at, due_at FROM resources")
        assert all(row["deleted_at"] is None and row["due_at"] is None for row in rows)
        assert all(row["status_version"] == row["version"] for row in rows)
        assert {row["id"]: row["version"] for row in rows} == {w.id: w.generation for w in world.agent.works}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_happens_on_the_wire_both_sides_agree_in_the_end(files: Path, chosen: list[tuple[str, Any]]) -> None:
    asyncio.run(play(files, chosen))


async def test_a_late_delete_of_a_former_life_does_not_end_the_bundle_made_anew(files: Path) -> None:
    async with empty_world(files) as world:
        await world.change("create", "a")
        await world.change("delete", "a")
        late = world.down[-1]
        assert late.extensions["deletiontimestamp"]
        await world.settle()
        await world.change("create", "a")
        await world.settle()
        work = world.agent.works.get("a")
        assert work is not None and work.generation == 2
        world.agent.take(late)
        assert world.agent.works.get("a") is work and not work.deletion
        assert world.up == []


async def test_a_stranger_that_is_made_anew_while_others_are_ended_is_not_ended(files: Path) -> None:
    async with empty_world(files) as world:
        for bundle_id in IDS:
            await world.change("create", bundle_id)
            await world.change("delete", bundle_id)
        await world.settle()
        (asked,) = spec_resync_events("agent", "mc01", [(bundle_id, 1) for bundle_id in IDS])
        ended: list[str] = []

        async def publishing(event: Event) -> None:
            if "deletiontimestamp" in event.extensions:
                ended.append(event.resource_id)
                if event.resource_id == "a":
                    await world.change("create", "b")

        world.publishing = publishing  # type: ignore[method-assign]
        await world.resync.answer(asked)
        await world.quiet()
        assert ended == ["a"]
        await world.settle()
        work = world.agent.works.get("b")
        assert work is not None and work.generation == 2


@pytest.mark.parametrize("refusals", [1, 3, 1000])
async def test_a_consumer_that_cannot_be_asked_keeps_no_other_from_being_asked(
    files: Path, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "LONGEST_PAUSE", 0.1)
    async with empty_world(files) as world:
        for name in ("mc02", "mc03"):
            await Consumers(world.database).create(name, None)
        refused = 0

        async def publishing(event: Event) -> None:
            nonlocal refused
            if event.consumer == "mc02" and refused < refusals:
                refused += 1
                raise NotPublished("not authorized", 0x87)

        world.publishing = publishing  # type: ignore[method-assign]
        await world.resync.ask_everyone()
        asked = [event.consumer for event in world.down]
        assert asked == (["mc01", "mc03", "mc02"] if refusals < resync.ROUNDS else ["mc01", "mc03"])
        assert refused == min(refusals, resync.ROUNDS)


async def test_without_a_broker_nobody_is_asked_again(files: Path) -> None:
    async with empty_world(files) as world:
        await Consumers(world.database).create("mc02", None)
        tried: list[str] = []

        async def publish(event: Event) -> int:
            tried.append(event.consumer)
            raise NotPublished("the broker is away")

        asking = Resync(
            world.database,
            world.bundles,
            Consumers(world.database),
            world.delivery,
            publish,
            source_id="maestro",
            keep_unknown=False,
            connected=lambda: False,
        )
        with pytest.raises(NotPublished):
            await asking.ask_everyone()
        assert tried == ["mc01"]


async def test_work_that_fails_is_told_and_what_waits_behind_it_goes_on(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with empty_world(files) as world:
        source = Source(
            str(files / "no-broker.yaml"),
            source_id="maestro",
            replica="r",
            report=world.inbox.offer,
            spec_resync=world.resync.answer,
            connected=world.resync.ask_everyone,
            heard_of=lambda _: None,
            consumers=Consumers(world.database),
        )
        after = asyncio.Event()

        async def broken() -> None:
            raise KeyError("unforeseen")

        async def next_one() -> None:
            after.set()

        source.once_at_a_time("statuses", broken)
        source.once_at_a_time("statuses", next_one)
        await asyncio.wait_for(after.wait(), 60)
        (told,) = [record for record in caplog.records if record.exc_info]
        assert "unforeseen" in caplog.text and vars(told)["what"] == "statuses"
        await source.close()

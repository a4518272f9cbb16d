"""Which reports count: those of the right consumer, for the very version, newer than what is stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from regional.core.database import Database, migrate
from regional.maestro.protocol.bundles import status_event
from regional.maestro.protocol.events import MalformedEvent
from regional.maestro.server.bundles import BundleExists, Bundles, NewBundle, UnderDeletion
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.schema import MIGRATIONS
from regional.maestro.server.statuses import Inbox, Report, report_of
from tests.maestro.harness import Postgres, laid_out, running


def report(sequence: int, version: int = 1, *, consumer: str = "mc01", deleted: bool = False) -> Report:
    kinds = ["Applied", "Deleted"] if deleted else ["Applied"]
    return report_of(
        status_event(
            source="agent",
            consumer=consumer,
            original_source="maestro",
            resource_id="b",
            version=version,
            sequence=sequence,
            hash=str(sequence),
            conditions=[{"type": kind, "status": "True"} for kind in kinds],
            resource_status=[],
            metadata="{}",
        )
    )


@dataclass
class Model:
    """The rule in plain words, one bundle at a time."""

    version: int = 0
    deleting: bool = False
    sequence: int | None = None
    confirmed: bool = False
    last: int = 0
    states: list[Any] = field(default_factory=list)

    def create(self) -> None:
        if not self.version:
            self.version, self.deleting, self.sequence, self.confirmed = self.last + 1, False, None, False

    def update(self) -> None:
        if self.version and not self.deleting:
            self.version, self.confirmed = self.version + 1, False

    def delete(self) -> None:
        self.deleting = bool(self.version)

    def take(self, found: Report) -> None:
        if not self.version or found.consumer != "mc01":
            return
        if found.deleted:
            if self.deleting and found.version >= self.version:
                self.last, self.version, self.deleting = self.version, 0, False
        elif found.version == self.version and (self.sequence is None or found.sequence > self.sequence):
            self.sequence, self.confirmed = found.sequence, True


reports = st.builds(
    report,
    st.integers(1, 6),
    st.integers(1, 4),
    consumer=st.sampled_from(["mc01", "mc01", "mc01", "mc02"]),
    deleted=st.sampled_from([False, False, True]),
)
steps = st.lists(st.one_of(reports, st.sampled_from(["create", "update", "delete"])), min_size=3, max_size=25)


@pytest.fixture(scope="module")
def files(shared_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(tmp_path_factory.mktemp("db"), asyncio.run(shared_postgres.database()))


async def connected(files: Path) -> Database:
    database = Database(files, sslmode="disable", application="test")
    await database.once_connected(lambda connection: migrate(connection, "maestro", MIGRATIONS))
    return database


async def replay(files: Path, chosen: list[Any]) -> None:
    database = await connected(files)
    async with running(database.keep_connected()):
        while database.pool is None:
            await asyncio.sleep(0.001)
        pool: asyncpg.Pool = database.pool
        await pool.execute("TRUNCATE resources, tombstones, events, consumers, agent_works")
        for name in ("mc01", "mc02"):
            await Consumers(database).create(name, None)
        bundles, model = Bundles(database), Model()
        inbox = Inbox(database, lambda _: None, lambda _: None)
        for step in chosen:
            if isinstance(step, Report):
                inbox.offer(step)
                await inbox.flush()
                model.take(step)
            else:
                await act(bundles, model, step)
            await agree(pool, model)


async def act(bundles: Bundles, model: Model, step: str) -> None:
    if step == "create":
        new = NewBundle(id="b", name="b", source="s", consumer_name="mc01", metadata="{}", spec="{}", request_id="")
        try:
            await bundles.create(new)
        except UnderDeletion:
            assert model.deleting
        except BundleExists:
            assert model.version > 1 and not model.deleting
        model.create()
    elif step == "update":
        known = await bundles.get("b")
        if known is not None and known.deleted_at is None:
            await bundles.update(known, metadata="{}", spec=f'{{"n":{known.version}}}', request_id="")
        model.update()
    else:
        await bundles.delete("b", "")
        model.delete()


async def agree(pool: asyncpg.Pool, model: Model) -> None:
    row = await pool.fetchrow("SELECT version, deleted_at, status_sequence, due_at FROM resources WHERE id = 'b'")
    if row is None:
        assert model.version == 0
        return
    assert (row["version"], row["deleted_at"] is not None) == (model.version, model.deleting)
    assert row["status_sequence"] == model.sequence
    # What is not confirmed stays due; a deletion does so until it is done.
    assert (row["due_at"] is None) == (model.confirmed and not model.deleting)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
@example(["create", report(5), report(3), report(5)])  # late, and once more
@example(["create", report(5), "update", report(6), report(7, 2)])  # of the version before
@example(["create", report(5, consumer="mc02")])  # of another's bundle
@example(["create", report(5, deleted=True)])  # nobody has asked for it
@example(["create", "delete", report(5, deleted=True), "create", "delete", report(6, deleted=True)])  # a former life's
def test_any_order_of_reports_and_changes_leaves_what_the_rule_says(files: Path, chosen: list[Any]) -> None:
    asyncio.run(replay(files, chosen))


async def test_reports_that_wait_together_are_stored_as_if_one_by_one(files: Path) -> None:
    database = await connected(files)
    async with running(database.keep_connected()):
        while database.pool is None:
            await asyncio.sleep(0.001)
        await database.pool.execute("TRUNCATE resources, tombstones, events, consumers, agent_works")
        await Consumers(database).create("mc01", None)
        bundles = Bundles(database)
        new = NewBundle(id="b", name="b", source="s", consumer_name="mc01", metadata="{}", spec="{}", request_id="")
        await bundles.create(new)
        stored: list[int] = []
        inbox = Inbox(database, lambda found: stored.append(found.report.sequence), lambda _: None)
        for sequence in (3, 9, 5):
            inbox.offer(report(sequence))
        inbox.offer(report(50, consumer="mc02"))
        assert len(inbox) == 2
        await inbox.flush()
        assert stored == [9]


@pytest.mark.parametrize(
    "broken",
    [
        {"extensions": {"resourceid": "b", "sequenceid": "x"}},
        {"extensions": {"resourceid": "b", "resourceversion": "99999999999"}},
        {"extensions": {"sequenceid": "1"}},
        {"extensions": {"resourceid": "b" * 300}},
        {"data": b"[]"},
        {"data": b'{"conditions":[{"type":1}]}'},
        {"data": b'{"conditions":null}\xff'},
    ],
)
def test_a_status_that_makes_no_sense_is_refused_before_it_is_stored(broken: dict[str, Any]) -> None:
    good = status_event(
        source="agent",
        consumer="mc01",
        original_source="maestro",
        resource_id="b",
        version=1,
        sequence=1,
        hash="",
        conditions=[],
        resource_status=[],
        metadata="{}",
    )
    with pytest.raises(MalformedEvent):
        report_of(msgspec.structs.replace(good, **broken))


def test_conditions_may_be_null() -> None:
    event = status_event(
        source="agent",
        consumer="mc01",
        original_source="maestro",
        resource_id="b",
        version=1,
        sequence=1,
        hash="",
        conditions=[],
        resource_status=[],
        metadata="{}",
    )
    found = report_of(msgspec.structs.replace(event, data=b'{"conditions":null}'))
    assert (found.applied, found.deleted) == (False, False)

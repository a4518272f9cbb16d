"""What happens when several do the same, or the opposite, at the same moment."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from regional.clm.client import ClmClient, ClmError
from regional.clm.events import Queue, Subject, enqueue
from regional.clm.sentinel.main import Sentinel, Settings
from regional.core.identifiers import uuid7
from tests.clm.conftest import FOR_EVER, Region, add_management_cluster, report, until
from tests.maestro.harness import running


async def outcomes(*calls: Any) -> list[Any]:
    """Results and refusals; anything else that is raised fails the test."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, ClmError):
            raise one
    return found


async def test_of_many_creates_of_one_name_one_succeeds(clm: ClmClient, region: Region) -> None:
    await add_management_cluster(clm)
    found = await outcomes(*(clm.create("Cluster", "demo", {}) for _ in range(10)))
    refusals = [one for one in found if isinstance(one, ClmError)]
    assert [(one.status, one.code) for one in refusals] == [(409, "HYPERFLEET-CNF-001")] * 9
    assert await region.value("SELECT count(*) FROM resources WHERE kind = 'Cluster'") == 1
    assert await region.value("SELECT used FROM management_cluster_capacity") == 1
    assert await region.value("SELECT count(*) FROM resource_history WHERE name = 'demo'") == 2


async def test_node_pools_made_while_their_cluster_is_deleted_are_refused_or_deleted_with_it(
    clm: ClmClient, region: Region
) -> None:
    for turn in range(5):
        cluster = await clm.create("Cluster", f"demo{turn}", {})
        calls = [clm.create("NodePool", f"pool{number}", {}, parent_id=cluster["id"]) for number in range(6)]
        calls.insert(3, clm.delete("Cluster", cluster["id"]))
        found = await outcomes(*calls)
        refused = [one for one in found if isinstance(one, ClmError)]
        assert {one.code for one in refused} <= {"HYPERFLEET-CNF-003"}
        active = "SELECT count(*) FROM resources WHERE owner_id = $1 AND deleted_time IS NULL"
        assert await region.value(active, UUID(cluster["id"])) == 0


async def test_changes_and_deletes_at_once_end_in_one_deletion(clm: ClmClient) -> None:
    cluster = await clm.create("Cluster", "demo", {})
    calls: list[Any] = [clm.patch("Cluster", cluster["id"], spec={"tags": {"n": str(n)}}) for n in range(8)]
    calls[4:4] = [clm.delete("Cluster", cluster["id"]) for _ in range(4)]
    found = await outcomes(*calls)
    changed = [one for one in found[:4] + found[8:] if not isinstance(one, ClmError)]
    last = await clm.get("Cluster", cluster["id"])
    assert last["generation"] == 1 + len(changed) + 1
    entries = (await clm.history("Cluster", cluster["id"]))["items"]
    assert sorted(entry["change"] for entry in entries if entry["change"] != "waiting") == sorted(
        ["created", "deleted", *["updated"] * len(changed)]
    )
    assert sorted(entry["generation"] for entry in entries if entry["change"] == "updated") == [
        *range(2, 2 + len(changed))
    ]


async def test_many_final_reports_remove_a_tree_once(clm: ClmClient, region: Region) -> None:
    for turn in range(5):
        cluster = await clm.create("Cluster", f"demo{turn}", {})
        pools = [await clm.create("NodePool", f"pool{number}", {}, parent_id=cluster["id"]) for number in range(4)]
        await clm.delete("Cluster", cluster["id"])
        last = report(2, "False", finalized="True")
        await outcomes(
            *(clm.put_status("Cluster", cluster["id"], last) for _ in range(3)),
            *(clm.put_status("NodePool", pool["id"], last) for pool in pools for _ in range(2)),
            clm.delete("Cluster", cluster["id"]),
        )
        assert await clm.get_or_none("Cluster", cluster["id"]) is None
    assert await region.value("SELECT count(*) FROM resources") == 0
    assert await region.value("SELECT count(*) FROM placements") == 0
    removed = await region.rows("SELECT resource_id FROM resource_history WHERE change = 'removed'")
    assert len(removed) == len({row["resource_id"] for row in removed}) == 25


async def test_reports_at_once_are_kept_by_age_not_by_arrival(clm: ClmClient) -> None:
    cluster = await clm.create("Cluster", "demo", {})
    now = datetime.now(UTC)
    reports = [
        report(1, "True" if age == 0 else "False", observed_time=(now - timedelta(seconds=age)).isoformat())
        for age in range(12)
    ]
    await asyncio.gather(*(clm.put_status("Cluster", cluster["id"], one) for one in [*reports[6:], *reports[:6]]))
    found = await clm.get("Cluster", cluster["id"])
    assert [one["status"] for one in found["status"]["conditions"]] == ["True", "True", "True"]


async def test_two_adapters_never_hold_the_same_event(clm: ClmClient, region: Region) -> None:
    async with running(region.database.keep_session(Sentinel(Settings()).follow)):
        made = await asyncio.gather(*(clm.create("Cluster", f"made{number}", {}) for number in range(40)))

        async def all_there() -> bool:
            return bool(await region.value("SELECT count(*) = 40 FROM events"))

        await until(all_there)
    async with region.connection() as one, region.connection() as two:
        queues = (Queue("hypershift", "a", FOR_EVER), one), (Queue("hypershift", "b", FOR_EVER), two)
        taken: list[str] = []
        while len(taken) < 40:
            parts = await asyncio.gather(*(queue.take(connection, 7) for queue, connection in queues))
            assert any(parts)
            taken += [str(work.resource_id) for part in parts for work in part]
    assert sorted(taken) == sorted(cluster["id"] for cluster in made)


async def test_an_event_that_comes_during_the_work_is_worked_on_again(clm: ClmClient, region: Region) -> None:
    cluster = await clm.create("Cluster", "demo", {})
    sentinel = Sentinel(Settings(pulse_not_reconciled_seconds=3600))  # of what is changed here, and of nothing else
    async with running(region.database.keep_session(sentinel.follow)), region.connection() as connection:
        queue = Queue("hypershift", "a", FOR_EVER)

        async def take() -> Any:
            return await queue.take(connection, 5)

        (first,) = await until(take)
        await clm.patch("Cluster", cluster["id"], spec={"tags": {"a": "b"}})

        async def replaced() -> Any:
            return (await region.value("SELECT sequence FROM events")) > first.sequence

        await until(replaced)
        assert await Queue("hypershift", "b").take(connection, 5) == []  # one at a time for a resource
        assert not await queue.finish(connection, first)
        (again,) = await queue.take(connection, 5)
        assert again.event["data"]["generation"] == 2
        assert await queue.finish(connection, again)
        assert await region.value("SELECT count(*) FROM events") == 0


async def test_who_is_waited_for_goes_before_what_is_only_looked_after(region: Region) -> None:
    routine = [Subject(uuid7(), "Cluster", 1, "", "") for _ in range(5)]
    asked_for = Subject(uuid7(), "Cluster", 1, "", "")
    now = datetime.now(UTC)
    async with region.connection() as connection:

        async def publish(*subjects: Subject, urgent: bool) -> None:
            pairs = [(subject, "hypershift") for subject in subjects]
            await enqueue(connection, pairs, source="test", now=now, urgent=urgent)

        await publish(*routine, urgent=False)
        await publish(asked_for, urgent=True)
        await publish(routine[3], urgent=True)  # somebody asked for it while it waited
        await publish(asked_for, urgent=False)  # that it is looked after too does not make it wait
        queue = Queue("hypershift", "a")
        first = await queue.take(connection, 2)
        assert {work.resource_id for work in first} == {asked_for.id, routine[3].id}
        assert len(await queue.take(connection, 10)) == 4


async def test_two_sentinels_publish_each_change_once(clm: ClmClient, region: Region) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            sentinel = Sentinel(Settings(pulse_not_reconciled_seconds=3600))
            await stack.enter_async_context(running(region.database.keep_session(sentinel.follow)))
        await asyncio.gather(*(clm.create("Cluster", f"made{number}", {}) for number in range(20)))

        async def all_there() -> bool:
            return bool(await region.value("SELECT count(*) = 20 FROM events"))

        await until(all_there)
    assert await region.value("SELECT last_value FROM event_sequence") == 20


@pytest.mark.parametrize("kind", ["Cluster", "NodePool"])
async def test_patches_with_a_revision_exclude_each_other(clm: ClmClient, kind: str) -> None:
    parent = await clm.create("Cluster", "parent", {})
    made = parent if kind == "Cluster" else await clm.create(kind, "pool", {}, parent_id=parent["id"])
    found = await outcomes(
        *(clm.patch(kind, made["id"], spec={"tags": {"n": str(n)}}, if_match='"1"') for n in range(8))
    )
    assert sorted(one.status for one in found if isinstance(one, ClmError)) == [412] * 7

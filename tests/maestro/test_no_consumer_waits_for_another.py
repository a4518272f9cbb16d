"""A long queue for one consumer, or one that nobody listens to, delays no other; and nobody is sent old versions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from regional.maestro.client import MaestroClient
from regional.maestro.protocol.events import SPEC, STATUS, Event
from regional.maestro.server.delivery import LANE, WINDOW, Delivery
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_map, connect, eventually


async def test_a_thousand_bundles_for_one_do_not_block_another(maestro: Maestro, cluster: Cluster) -> None:
    async with (
        maestro.server() as client,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
        maestro.wire("mc02") as other,
    ):
        for name in ("mc01", "mc02", "mc03"):
            await client.create_consumer(name)
        served, numbers, sent = asyncio.Event(), itertools.count(), set()

        async def flood() -> None:
            """Not over before the other one is served, however slow that is."""
            while (number := next(numbers)) < 1100 or not served.is_set():
                consumer = "mc03" if number % 11 == 0 else "mc02"
                made = await client.create_bundle(consumer, [config_map(f"{consumer}-{number}")])
                if consumer == "mc02":
                    sent.add(made["id"])

        async with asyncio.TaskGroup() as floods:
            for _ in range(16):
                floods.create_task(flood())
            for number in range(3):
                made = await client.create_bundle("mc01", [config_map(f"small-{number}")])
                await applied(client, made["id"], seconds=60)
            served.set()
        got: set[str] = set()

        async def everything() -> bool:
            while not other.events.empty():
                got.add(other.events.get_nowait().resource_id)
            return got >= sent

        await eventually(everything, seconds=120)


class Held:
    """A broker that answers only when it is told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, bool]] = []
        self.answers: asyncio.Semaphore = asyncio.Semaphore(0)

    async def publish(self, event: object) -> int:
        found = event.extensions  # type: ignore[attr-defined]
        self.sent.append((found["resourceid"], int(found["resourceversion"]), "deletiontimestamp" in found))
        await self.answers.acquire()
        return 0


async def settled() -> None:
    """Until whatever can go on without the broker's answer has done so. No time is waited for: a machine that stands
    still for a moment would let it pass, and nothing else."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def queue(maestro: Maestro) -> AsyncIterator[tuple[MaestroClient, Delivery, Held]]:
    """A delivery of its own over the database of a real server."""
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        held = Held()
        delivery = Delivery(maestro.servers[-1].bundles, held.publish, "maestro")
        yield client, delivery, held
        await delivery.close()


async def test_a_newer_version_takes_the_place_of_the_one_that_waits(
    queue: tuple[MaestroClient, Delivery, Held], maestro: Maestro
) -> None:
    client, delivery, held = queue
    bundles = maestro.servers[-1].bundles
    made = await client.create_bundle("mc01", [config_map("a")])
    for version in range(1, 6):
        bundle = await bundles.get(made["id"])
        assert bundle is not None and bundle.version == version
        assert delivery.offer(bundle)
        await asyncio.sleep(0)
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"v": str(version)})])
    assert [version for _, version, _ in held.sent] == [1]
    await client.delete_bundle(made["id"])
    bundle = await bundles.get(made["id"])
    assert bundle is not None and delivery.offer(bundle)
    for _ in range(2):
        held.answers.release()
        await settled()
    # Of all that waited only the last, and the deletion beats everything.
    assert held.sent == [(made["id"], 1, False), (made["id"], 6, True)]


@pytest.mark.parametrize("late", ["delete", "spec"])
@pytest.mark.parametrize("busy", ["the lane", "the bundle"])
async def test_a_bundle_made_anew_takes_the_place_of_its_former_lifes_deletion(
    queue: tuple[MaestroClient, Delivery, Held], maestro: Maestro, late: str, busy: str
) -> None:
    client, delivery, held = queue
    made = await client.create_bundle("mc01", [config_map("a")])
    pattern = await maestro.servers[-1].bundles.get(made["id"])
    assert pattern is not None
    if busy == "the lane":
        for number in range(WINDOW):
            delivery.offer(replace(pattern, id=f"first{number}"))
    else:
        delivery.offer(pattern)
    await asyncio.sleep(0)
    held.sent.clear()
    lives = [replace(pattern, deleted_at=datetime.now(UTC)), replace(pattern, version=2)]
    for bundle in lives if late == "spec" else reversed(lives):
        assert delivery.offer(bundle)
    for _ in range(2 * WINDOW):
        held.answers.release()
    await settled()
    assert held.sent == [(pattern.id, 2, False)]


async def test_a_lane_is_bounded_and_takes_what_is_left_later(
    queue: tuple[MaestroClient, Delivery, Held], maestro: Maestro
) -> None:
    client, delivery, held = queue
    bundles = maestro.servers[-1].bundles
    made = await client.create_bundle("mc01", [config_map("a")])
    pattern = await bundles.get(made["id"])
    assert pattern is not None
    many = [replace(pattern, id=f"b{number:04}") for number in range(WINDOW + LANE + 10)]
    taken = [delivery.offer(bundle) for bundle in many]
    assert taken == [True] * (WINDOW + LANE) + [False] * 10
    assert delivery.offer(replace(pattern, consumer_name="mc02")), "another lane has room"
    patient = asyncio.create_task(delivery.offer_patiently(many[-1]))
    await settled()
    assert not patient.done()
    for _ in range(WINDOW + LANE + 10):
        held.answers.release()
    await asyncio.wait_for(patient, 60)

    async def all_sent() -> bool:
        return many[-1].id in {resource for resource, _, _ in held.sent}

    await eventually(all_sent)


async def test_deletes_and_creates_take_turns(queue: tuple[MaestroClient, Delivery, Held], maestro: Maestro) -> None:
    client, delivery, held = queue
    made: Document = await client.create_bundle("mc01", [config_map("a")])
    pattern = await maestro.servers[-1].bundles.get(made["id"])
    assert pattern is not None
    for number in range(WINDOW):
        delivery.offer(replace(pattern, id=f"first{number}"))
    now = datetime.now(UTC)
    for number in range(20):
        delivery.offer(replace(pattern, id=f"delete{number}", deleted_at=now))
    for number in range(3):
        delivery.offer(replace(pattern, id=f"create{number}"))
    held.sent.clear()
    for _ in range(WINDOW):
        held.answers.release()
    await settled()
    order = [resource for resource, _, _ in held.sent if not resource.startswith("first")]
    assert {"create0", "create1", "create2"} <= set(order[:7])


async def test_a_queue_full_of_deletes_leaves_room_for_a_create(
    queue: tuple[MaestroClient, Delivery, Held], maestro: Maestro
) -> None:
    client, delivery, held = queue
    made: Document = await client.create_bundle("mc01", [config_map("a")])
    pattern = await maestro.servers[-1].bundles.get(made["id"])
    assert pattern is not None
    doomed = replace(pattern, deleted_at=datetime.now(UTC))
    taken = [delivery.offer(replace(doomed, id=f"delete{number}")) for number in range(WINDOW + LANE + 1)]
    assert not taken[-1], "the deletes' own queue is full"
    patient = asyncio.create_task(delivery.offer_patiently(replace(doomed, id="patient")))
    await asyncio.sleep(0)
    assert delivery.offer(replace(pattern, id="create"))
    for _ in range(2):
        held.answers.release()

    async def sent() -> bool:
        return "create" in [resource for resource, _, _ in held.sent]

    await eventually(sent, seconds=60)
    assert len(held.sent) <= WINDOW + 2, "whoever has waited longer came first"
    for _ in range(WINDOW + LANE + 3):
        held.answers.release()
    await asyncio.wait_for(patient, 60)


PENDING = """
INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, deleted_at, due_at)
SELECT 'old-' || n, 'old-' || n, 'old', 'mc01', 1, '{}', '{"manifests":[]}', now(), now()
FROM generate_series(1, $1::int) AS n
"""


async def test_a_hundred_thousand_pending_deletes_do_not_hold_up_a_create(maestro: Maestro) -> None:
    pending = 100_000
    async with maestro.server() as client, maestro.wire("mc01") as wire:
        await client.create_consumer("mc01")
        connection = await connect(maestro.database)
        try:
            await connection.execute(PENDING, pending, timeout=120)
            for _ in range(2 * LANE):  # the flood has begun, and its queue is full
                await wire.next(action="delete_request", seconds=120)
            made = await client.create_bundle("mc01", [config_map("new")])
            event = await wire.next(action="create_request", seconds=120)
            assert event.resource_id == made["id"]
            untouched = await connection.fetchval(
                "SELECT count(*) FROM resources WHERE deleted_at IS NOT NULL AND attempts = 0"
            )
            assert untouched > pending / 2, "it was sent when most of the deletes were"
        finally:
            await connection.close()


LATER = """
INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, deleted_at, due_at)
SELECT $1 || '-' || n, $1 || '-' || n, 'old', $1, 1, '{}', '{"manifests":[]}', CASE WHEN $3 THEN now() END,
    now() + interval '1 hour'
FROM generate_series(1, $2::int) AS n
"""


async def test_long_queues_keep_no_consumer_from_being_caught_up_with_and_asked(maestro: Maestro) -> None:
    """A new session with the broker: at AWS IoT's hundred messages a second such queues take a quarter of an hour."""
    many, consumers = 1000, [f"mc{number:02}" for number in range(1, 7)]
    async with maestro.server() as client:
        for name in consumers:
            await client.create_consumer(name)
        server, sent = maestro.servers[-1], []

        async def publish(event: Event) -> int:
            sent.append((event.consumer, event.subresource))
            await asyncio.sleep(0)
            return 0

        server.delivery._publish = server.resync._publish = publish
        connection = await connect(maestro.database)
        try:
            for name in consumers[:-1]:
                await connection.execute(LATER, name, many, True)
            await connection.execute(LATER, consumers[-1], 1, False)
        finally:
            await connection.close()
        server.source._ready()

        async def all_sent() -> bool:
            return len(sent) >= 5 * many + 1 + len(consumers)

        await eventually(all_sent, 120)
        assert sent.index((consumers[-1], SPEC)) < many, "it was sent behind the others' queues"
        assert sent.index((consumers[-1], STATUS)) < 4 * many, "it was asked behind the others' queues"


async def test_a_consumer_that_is_taken_over_does_not_wait_for_the_queue_of_one_before(maestro: Maestro) -> None:
    async with maestro.server() as client:
        server, sent = maestro.servers[-1], set()

        async def publish(event: Event) -> int:
            if event.consumer == "mc01" and event.subresource == SPEC:
                await asyncio.Event().wait()
            sent.add((event.consumer, event.subresource))
            return 0

        server.delivery._publish = server.resync._publish = publish
        connection = await connect(maestro.database)
        try:
            for name, number in (("mc01", 2 * (WINDOW + LANE)), ("mc02", 1)):
                await client.create_consumer(name)
                await connection.execute(LATER, name, number, True)
        finally:
            await connection.close()

        async def told(*wanted: tuple[str, str]) -> bool:
            return sent >= set(wanted)

        server._acquired(["mc01"])
        await eventually(lambda: told(("mc01", STATUS)))
        server._acquired(["mc02"])
        await eventually(lambda: told(("mc02", SPEC), ("mc02", STATUS)))

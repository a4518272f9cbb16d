"""A long queue for one consumer, or one that nobody listens to, delays no other; and nobody is sent old versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from regional.maestro.client import MaestroClient
from regional.maestro.server.delivery import LANE, WINDOW, Delivery
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_map, eventually


async def test_a_thousand_bundles_for_one_do_not_block_another(maestro: Maestro, cluster: Cluster) -> None:
    async with (
        maestro.server() as client,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
        maestro.wire("mc02") as other,
    ):
        for name in ("mc01", "mc02", "mc03"):
            await client.create_consumer(name)
        several = asyncio.Semaphore(16)

        async def post(consumer: str, number: int) -> None:
            async with several:
                await client.create_bundle(consumer, [config_map(f"{consumer}-{number}")])

        flood = [asyncio.create_task(post("mc02", number)) for number in range(1000)]
        flood += [asyncio.create_task(post("mc03", number)) for number in range(100)]
        for number in range(3):
            made = await client.create_bundle("mc01", [config_map(f"small-{number}")])
            await applied(client, made["id"], seconds=60)
        still = [task for task in flood if not task.done()]
        await asyncio.gather(*flood)
        assert still, "the flood was over before the others were served: this proves nothing"
        got: set[str] = set()

        async def everything() -> bool:
            while not other.events.empty():
                got.add(other.events.get_nowait().resource_id)
            return len(got - {""}) == 1000

        await eventually(everything, seconds=60)


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
    held.answers.release()
    await asyncio.sleep(0.05)
    held.answers.release()
    await asyncio.sleep(0.05)
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
    await asyncio.sleep(0.1)
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
    await asyncio.sleep(0.01)
    assert not patient.done()
    for _ in range(WINDOW + LANE + 10):
        held.answers.release()
    await asyncio.wait_for(patient, 10)

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
    await asyncio.sleep(0.1)
    order = [resource for resource, _, _ in held.sent if not resource.startswith("first")]
    assert {"create0", "create1", "create2"} <= set(order[:7])

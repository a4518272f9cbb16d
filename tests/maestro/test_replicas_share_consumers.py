"""Several servers on one database: each consumer is held by one of them, and by another as soon as that one is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.maestro.client import MaestroClient
from regional.maestro.protocol.bundles import spec_resync_events, status_event
from regional.maestro.protocol.events import Event
from regional.maestro.protocol.sequence import SequenceIds
from regional.maestro.server import handover
from regional.maestro.server.delivery import Publish
from regional.maestro.server.leases import chosen
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import HTTP, PATIENCE, Maestro, Process, applied, config_map, connect, eventually, gone

MOUNT = "/mnt/secrets-store"
RECORD = ("work.open-cluster-management.io/v1", "AppliedManifestWork")
NAMES = [f"mc{number:02}" for number in range(9)]
REPLICAS = ["r0", "r1", "r2", "r3"]


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(REPLICAS), st.booleans(), min_size=1),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", *REPLICAS])),
    st.randoms(use_true_random=False),
)
def test_replicas_come_to_hold_each_consumer_once_and_share_the_load(
    replicas: dict[str, bool], holders: dict[str, str], dice: Any
) -> None:
    holders = {name: holder if holder in replicas else "" for name, holder in holders.items()}  # the dead hold nothing
    able = [replica for replica, fit in replicas.items() if fit] or list(replicas)
    for _ in range(4):
        order = list(replicas)
        dice.shuffle(order)
        for me in order:
            take, give = chosen(me, replicas, holders)
            holders |= dict.fromkeys(take, me) | dict.fromkeys(give, "")
    assert all(holder in able for holder in holders.values())
    share = -(-len(holders) // len(able))
    assert all(list(holders.values()).count(replica) <= share for replica in able)
    assert all(chosen(me, replicas, holders) == ([], []) for me in replicas)


async def test_a_replica_that_comes_takes_its_share_and_leaves_it_when_it_goes(maestro: Maestro) -> None:
    async with maestro.server() as client:
        for name in NAMES[:6]:
            await client.create_consumer(name)
        first = maestro.servers[-1].leases

        async def all_held() -> bool:
            return first.held == set(NAMES[:6])

        await eventually(all_held)
        async with maestro.server():
            second = maestro.servers[-1].leases

            async def shared() -> bool:
                return len(first.held) == len(second.held) == 3 and not first.held & second.held

            await eventually(shared)
        await eventually(all_held)


async def test_a_replica_that_stands_still_is_replaced(maestro: Maestro) -> None:
    """It has its session, so the database takes it to be alive; but it renews nothing."""
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        leases = maestro.servers[-1].leases

        async def held() -> bool:
            return leases.held == {"mc01"}

        await eventually(held)
        connection = await connect(maestro.database)
        try:
            await connection.execute("SELECT pg_advisory_lock(hashtext('maestro replicas'), hashtext('still'))")
            async with connection.transaction():
                # Renewed in an hour, so that it is replaced when we say so and not before.
                await connection.execute(
                    "INSERT INTO replicas (id, fit, seen_at) VALUES ('still', true, now() + interval '1 hour')"
                )
                await connection.execute("UPDATE leases SET holder = 'still'")

            async def lost() -> bool:
                return leases.elsewhere("mc01") and not leases.held

            await eventually(lost)
            await connection.execute("UPDATE replicas SET seen_at = now() - interval '1 hour' WHERE id = 'still'")
            await eventually(held)
        finally:
            await connection.close()


# -- killed in the middle --------------------------------------------------------------------------------------------


class Replicas:
    """Server processes on the same database and broker."""

    def __init__(self, maestro: Maestro, directory: Path, number: int) -> None:
        self._maestro = maestro
        self.servers = []
        for index in range(number):
            root = directory / f"server{index}"
            root.mkdir()
            files = maestro.broker.files("maestro-server", MOUNT) | maestro.database
            self.servers.append(Process("maestro-server", root, files, "--db-sslmode=disable", "--grpc-port=0"))
        self.clients = [MaestroClient(f"http://{server.address}:{HTTP}", timeout=PATIENCE) for server in self.servers]

    async def holder(self, consumer: str) -> int:
        """Which of them holds it."""

        async def found() -> Any:
            lease = await lease_of(self._maestro, consumer)
            holder = lease["holder"] if lease else ""
            return [server.pod for server in self.servers if server.pod and holder.startswith(server.pod)]

        (pod,) = await eventually(found, seconds=60)
        return [server.pod for server in self.servers].index(pod)

    async def up(self) -> None:
        async def answers() -> bool:
            for client in self.clients:
                await client.consumers()
            return True

        await eventually(answers, seconds=60)


@contextlib.asynccontextmanager
async def replicas_of(maestro: Maestro, directory: Path, number: int) -> AsyncIterator[Replicas]:
    replicas = Replicas(maestro, directory, number)
    try:
        for server in replicas.servers:
            server.start()
        await replicas.up()
        yield replicas
    finally:
        for client in replicas.clients:
            await client.close()
        for server in replicas.servers:
            server.kill()


async def test_whatever_any_replica_accepts_is_delivered_though_holders_are_killed(
    maestro: Maestro, cluster: Cluster, tmp_path: Path
) -> None:
    async with (
        replicas_of(maestro, tmp_path, 2) as replicas,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
    ):
        await replicas.clients[0].create_consumer("mc01")
        accepted: list[str] = []
        for turn in range(2):
            holder = await replicas.holder("mc01")
            asked = [
                asyncio.create_task(client.create_bundle("mc01", [config_map(f"t{turn}-{place}-{n}")]))
                for place, client in enumerate(replicas.clients)
                for n in range(3)
            ]
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            replicas.servers[holder].kill()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            accepted += [answer["id"] for answer in answers if isinstance(answer, dict)]
            survivor = replicas.clients[1 - holder]
            for bundle_id in accepted:
                await applied(survivor, bundle_id, seconds=60)

            async def taken_over(survivor: int = 1 - holder) -> bool:
                return await replicas.holder("mc01") == survivor

            await eventually(taken_over, seconds=60)
            replicas.servers[holder].start()
            await replicas.up()
        assert accepted
        for number, bundle in enumerate(await replicas.clients[0].all_bundles()):
            await replicas.clients[number % 2].delete_bundle(bundle["id"])
        for bundle_id in accepted:
            await gone(replicas.clients[0], bundle_id, seconds=60)

        async def nothing_left() -> bool:
            return await cluster.client.list(*RECORD) == []

        await eventually(nothing_left, seconds=60)


async def test_a_holder_that_freezes_is_replaced_and_does_no_harm_when_it_wakes(
    maestro: Maestro, cluster: Cluster, tmp_path: Path
) -> None:
    async with (
        replicas_of(maestro, tmp_path, 2) as replicas,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
    ):
        await replicas.clients[0].create_consumer("mc01")
        frozen = await replicas.holder("mc01")
        survivor = replicas.clients[1 - frozen]
        made = await survivor.create_bundle("mc01", [config_map("a")])
        await applied(survivor, made["id"])
        replicas.servers[frozen].freeze()
        try:
            connection = await connect(maestro.database)
            try:  # as if a quarter of a minute had gone by
                await connection.execute(
                    "UPDATE replicas SET seen_at = now() - interval '1 hour' WHERE starts_with(id, $1)",
                    replicas.servers[frozen].pod,
                )
            finally:
                await connection.close()

            async def taken_over() -> bool:
                return await replicas.holder("mc01") != frozen

            await eventually(taken_over)
            await survivor.patch_bundle(made["id"], manifests=[config_map("a", {"key": "2"})])
            await applied(survivor, made["id"], version=2)
        finally:
            replicas.servers[frozen].wake()
        await replicas.up()
        later = await replicas.clients[frozen].create_bundle("mc01", [config_map("b")])
        await applied(survivor, later["id"])
        assert (await cluster.client.get("v1", "ConfigMap", "a", "default"))["data"] == {"key": "2"}
        for bundle in (made, later):
            await replicas.clients[frozen].delete_bundle(bundle["id"])
            await gone(survivor, bundle["id"])


async def test_an_agent_that_asks_once_while_the_holder_dies_is_answered(maestro: Maestro, tmp_path: Path) -> None:
    """Other agents than ours ask what they lack only when they connect; nobody asks again for them."""
    async with replicas_of(maestro, tmp_path, 2) as replicas, maestro.wire("mc01") as agent:
        await replicas.clients[0].create_consumer("mc01")
        holder = await replicas.holder("mc01")
        made = await replicas.clients[1 - holder].create_bundle("mc01", [config_map("a")])
        spec = await agent.next(subresource="spec", seconds=60)
        assert spec.resource_id == made["id"]
        status = status_event(
            source="agent",
            consumer="mc01",
            original_source="maestro",
            resource_id=made["id"],
            version=1,
            sequence=SequenceIds().next(),
            hash="h",
            conditions=[{"type": "Applied", "status": "True"}],
            resource_status=[],
            metadata="{}",
        )
        await agent.send(status)
        await applied(replicas.clients[1 - holder], made["id"], seconds=60)
        replicas.servers[holder].kill()
        (asked,) = spec_resync_events("agent", "mc01", [])
        await agent.send(asked)
        answer = await agent.next(action="resync_response", seconds=60)
        assert answer.resource_id == made["id"]


async def test_one_replica_alone_speaks_to_an_agent(maestro: Maestro, cluster: Cluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(maestro.server()) for _ in range(3)]
        await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
        await clients[0].create_consumer("mc01")
        leases = [server.leases for server in maestro.servers]

        async def everybody_knows() -> bool:
            return sum("mc01" in found.held for found in leases) == 1 == 3 - sum(f.elsewhere("mc01") for f in leases)

        await eventually(everybody_knows)
        before = await lease_of(maestro, "mc01")
        holder = next(index for index, found in enumerate(leases) if before["holder"] == found.id)
        sent: set[tuple[int, str]] = set()
        for index, server in enumerate(maestro.servers):
            server.delivery._publish = _noting(server.delivery._publish, index, sent)
        made = [await client.create_bundle("mc01", [config_map(f"c{n}")]) for n, client in enumerate(clients)]
        for bundle in made:
            await applied(clients[0], bundle["id"], seconds=60)
        if await lease_of(maestro, "mc01") == before:  # on a machine that stood still it may have changed hands
            assert sent == {(holder, bundle["id"]) for bundle in made}


async def lease_of(maestro: Maestro, consumer: str) -> Any:
    connection = await connect(maestro.database)
    try:
        return await connection.fetchrow("SELECT holder, since FROM leases WHERE consumer_name = $1", consumer)
    finally:
        await connection.close()


def _noting(publish: Publish, index: int, sent: set[tuple[int, str]]) -> Publish:
    async def noted(event: Event) -> int:
        sent.add((index, event.resource_id))
        return await publish(event)

    return noted


async def test_a_replica_whose_broker_is_away_holds_nothing(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.server():
        fit, unfit = maestro.servers
        for name in NAMES[:4]:
            await client.create_consumer(name)
        unfit.leases._connected = lambda: False

        async def passed_by() -> bool:
            return len(fit.leases.held) == 4 and not unfit.leases.held

        await eventually(passed_by, seconds=60)


async def test_what_finds_no_room_on_its_way_to_the_holder_is_delivered_all_the_same(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MOST", 1)
    async with maestro.server() as holder, maestro.server() as other, maestro.wire("mc01") as agent:
        await holder.create_consumer("mc01")

        async def knows() -> bool:
            return maestro.servers[1].leases.elsewhere("mc01")

        await eventually(knows)
        wanted = {f"b{number}" for number in range(20)}
        await asyncio.gather(*(other.create_bundle("mc01", [config_map("one")], id=name) for name in wanted))
        while wanted:
            wanted.discard((await agent.next(subresource="spec")).resource_id)

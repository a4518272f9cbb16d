"""Agents, servers, brokers and databases that stop, restart or are killed: everything arrives in the end, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.maestro.client import MaestroClient, MaestroError
from regional.maestro.protocol.bundles import spec_event, spec_resync_events, status_event
from regional.maestro.protocol.events import Event
from regional.maestro.protocol.sequence import SequenceIds
from tests.kube_controllers.harness import Cluster, Faults
from tests.maestro.harness import (
    HTTP,
    PATIENCE,
    Document,
    Maestro,
    Mosquitto,
    Postgres,
    Process,
    applied,
    condition,
    config_for,
    config_map,
    eventually,
    gone,
    kubeconfig_of,
    values,
)

MOUNT = "/mnt/secrets-store"
RECORD = ("work.open-cluster-management.io/v1", "AppliedManifestWork")


async def test_without_an_agent_nothing_is_applied_and_the_bundle_says_why(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await asyncio.sleep(0.3)
        bundle = await client.get_bundle(made["id"])
        assert "status" not in bundle
        assert bundle["delivery"] == {"state": "pending", "reason": "consumer mc01 never connected"}


async def test_a_bundle_waits_for_its_agent_and_is_applied_when_it_comes(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await applied(client, made["id"])

            async def seen() -> bool:
                return "last_seen_at" in (await client.consumers())[0]

            await eventually(seen)
        later = await client.create_bundle("mc01", [config_map("b")])

        async def says() -> bool:
            reason = (await client.get_bundle(later["id"]))["delivery"]["reason"]
            return reason.startswith("consumer mc01 is not connected, last seen 20")

        await eventually(says)
        assert condition(await client.get_bundle(later["id"]), "Applied") == ""
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await applied(client, later["id"])


async def test_an_agent_that_was_away_gets_what_it_missed(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            made = {
                name: await client.create_bundle(
                    "mc01", [config_map(name)], manifest_configs=[config_for(name, ("key", ".data.key"))]
                )
                for name in ("kept", "changed", "removed", "drifts")
            }
            for bundle in made.values():
                await applied(client, bundle["id"])
        await client.patch_bundle(made["changed"]["id"], manifests=[config_map("changed", {"key": "2"})])
        await client.delete_bundle(made["removed"]["id"])
        await cluster.client.delete("v1", "ConfigMap", "drifts", "default")
        before = await cluster.client.get("v1", "ConfigMap", "kept", "default")

        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            bundle = await applied(client, made["changed"]["id"], version=2)
            assert values(bundle) == {"key": "2"}
            await gone(client, made["removed"]["id"])
            assert await cluster.client.get_or_none("v1", "ConfigMap", "removed", "default") is None

            async def restored() -> bool:
                return await cluster.client.get_or_none("v1", "ConfigMap", "drifts", "default") is not None

            await eventually(restored)
            assert await cluster.client.get("v1", "ConfigMap", "kept", "default") == before
        assert len(await cluster.client.list(*RECORD)) == 3


async def test_a_server_that_was_away_learns_what_happened_meanwhile(maestro: Maestro, cluster: Cluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with maestro.server() as client:
            await client.create_consumer("mc01")
            await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
            configs = [config_for("living", ("key", ".data.key"), strategy="CreateOnly")]
            made = await client.create_bundle("mc01", [config_map("living")], manifest_configs=configs)
            await applied(client, made["id"])
        await cluster.client.patch("v1", "ConfigMap", "living", "default", {"data": {"key": "grown"}})
        await asyncio.sleep(0.2)
        async with maestro.server() as client:

            async def heard() -> bool:
                return values(await client.get_bundle(made["id"])) == {"key": "grown"}

            await eventually(heard)


async def test_a_delete_that_comes_again_and_again_is_answered_once_each_time(
    maestro: Maestro, cluster: Cluster
) -> None:
    """Server and agent must not keep each other busy about a bundle that is gone on both sides."""
    async with (
        maestro.server() as client,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
        maestro.wire("maestro-server") as listener,
    ):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await applied(client, made["id"])
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        while "Deleted" not in _kinds(await listener.next(subresource="status")):
            pass  # what the server has heard may come later to others
        await listener.settle()
        again = spec_event(
            "delete_request",
            source="maestro",
            consumer="mc01",
            resource_id=made["id"],
            version=made["version"],
            deletion="2026-01-01T00:00:00Z",
        )
        for _ in range(2):
            await listener.send(again)
            answer = await listener.next(subresource="status")
            assert _kinds(answer) == ["Deleted"]
            await listener.nothing(subresource="status")


def _kinds(status: Event) -> list[str]:
    return [found["type"] for found in json.loads(status.data).get("conditions") or []]


async def test_an_agent_whose_clock_went_back_is_still_believed(maestro: Maestro) -> None:
    """The agent of a consumer has reported with a clock an hour ahead; its successor goes on counting from there."""
    ahead = SequenceIds(lambda: int(time.time() * 1000) + 3_600_000)
    async with maestro.server() as client, maestro.wire("mc01") as former:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await former.next(subresource="spec")
        await former.send(
            status_event(
                source="former",
                consumer="mc01",
                original_source="maestro",
                resource_id=made["id"],
                version=spec.version,
                sequence=ahead.next(),
                hash="",
                conditions=[{"type": "Applied", "status": "False"}],
                resource_status=[],
                metadata="{}",
            )
        )

        async def told() -> bool:
            return condition(await client.get_bundle(made["id"]), "Applied") == "False"

        await eventually(told)
        (resync,) = spec_resync_events("successor", "mc01", [])
        await former.send(resync)
        known = (await former.next(action="resync_response")).extensions["knownsequence"]
        ids = SequenceIds()
        assert ids.next() < int(known)
        ids.above(int(known))
        assert ids.next() > int(known)


async def test_a_broker_that_is_killed_and_comes_back_loses_nothing(
    maestro: Maestro, broker: Mosquitto, cluster: Cluster
) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("a", ("key", ".data.key"), strategy="CreateOnly")]
        first = await client.create_bundle("mc01", [config_map("a")], manifest_configs=configs)
        await applied(client, first["id"])
        broker.kill()
        second = await client.create_bundle("mc01", [config_map("b")])
        await cluster.client.patch("v1", "ConfigMap", "a", "default", {"data": {"key": "changed"}})

        async def says() -> bool:
            return "broker" in (await client.get_bundle(second["id"]))["delivery"]["reason"]

        await eventually(says)
        broker.start()
        await applied(client, second["id"])

        async def heard() -> bool:
            return values(await client.get_bundle(first["id"])) == {"key": "changed"}

        await eventually(heard)


async def test_a_database_that_is_killed_and_comes_back_loses_no_status(
    tmp_path: Path, own_postgres: Postgres, broker: Mosquitto, cluster: Cluster
) -> None:
    maestro = Maestro(tmp_path, await own_postgres.database(), broker)
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("a", ("key", ".data.key"), strategy="CreateOnly")]
        made = await client.create_bundle("mc01", [config_map("a")], manifest_configs=configs)
        await applied(client, made["id"])
        own_postgres.kill()
        await cluster.client.patch("v1", "ConfigMap", "a", "default", {"data": {"key": "meanwhile"}})

        async def refused() -> bool:
            try:
                await client.create_bundle("mc01", [config_map("b")])
            except MaestroError as error:
                return error.status == 503 and "database" in error.reason
            return False

        await eventually(refused)
        own_postgres.start()

        async def heard() -> bool:
            return values(await client.get_bundle(made["id"])) == {"key": "meanwhile"}

        await eventually(heard)
        again = await client.create_bundle("mc01", [config_map("c")])
        await applied(client, again["id"])


async def test_an_agent_with_a_bad_connection_to_its_cluster_gets_there(maestro: Maestro, cluster: Cluster) -> None:
    bad = Client(Faults(LocalTransport(cluster.api.handle), 7), user_agent="work-agent")
    async with maestro.server() as client, maestro.agent(bad, "mc01"):
        await client.create_consumer("mc01")
        made = [await client.create_bundle("mc01", [config_map(f"c{number}")]) for number in range(12)]
        for number, bundle in enumerate(made):
            if number % 3 == 0:
                await client.patch_bundle(bundle["id"], manifests=[config_map(f"c{number}", {"key": "2"})])
        for number, bundle in enumerate(made):
            await applied(client, bundle["id"], version=2 if number % 3 == 0 else 1, seconds=60)
        for bundle in made:
            await client.delete_bundle(bundle["id"])
        for bundle in made:
            await gone(client, bundle["id"], seconds=90)
        assert await cluster.client.list(*RECORD) == []
        assert not [
            c for c in await cluster.client.list("v1", "ConfigMap", "default") if c["metadata"]["name"].startswith("c")
        ]


# -- killed in the middle --------------------------------------------------------------------------------------------


@pytest.fixture
async def kubeconfig(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Path]:
    async with kubeconfig_of(cluster, tmp_path / "api") as path:
        yield path


def agent_process(maestro: Maestro, root: Path, kubeconfig: Path) -> Process:
    root.mkdir()
    return Process("maestro-agent", root, maestro.broker.files("mc01", MOUNT), f"--kubeconfig={kubeconfig}")


async def test_an_agent_killed_at_any_moment_leaves_nothing_behind_and_nothing_undone(
    maestro: Maestro, cluster: Cluster, kubeconfig: Path, tmp_path: Path
) -> None:
    dice = random.Random(4)
    agent = agent_process(maestro, tmp_path / "agent", kubeconfig)
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        try:
            agent.start()
            made: list[Document] = []
            for turn in range(4):
                made += [await client.create_bundle("mc01", [config_map(f"t{turn}-{n}")]) for n in range(4)]
                for bundle in made[turn * 4 - 4 : turn * 4 - 2]:
                    await client.delete_bundle(bundle["id"])
                if turn == 0:
                    await applied(client, made[-1]["id"])
                await asyncio.sleep(dice.uniform(0.0, 0.15))
                agent.kill()
                agent.start()
            alive = [made[index] for index in range(len(made)) if index >= 12 or index % 4 >= 2]
            for bundle in alive:
                await applied(client, bundle["id"], seconds=60)
            for bundle in made:
                if bundle not in alive:
                    await gone(client, bundle["id"], seconds=60)
            found = {c["metadata"]["name"] for c in await cluster.client.list("v1", "ConfigMap", "default")}
            wanted = {bundle["manifests"][0]["metadata"]["name"] for bundle in alive}
            assert {name for name in found if name.startswith("t")} == wanted
            assert len(await cluster.client.list(*RECORD)) == len(alive)
        finally:
            agent.kill()


async def test_a_server_killed_right_after_it_said_yes_still_delivers(
    maestro: Maestro, cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "server"
    root.mkdir()
    files = maestro.broker.files("maestro-server", MOUNT) | maestro.database
    server = Process("maestro-server", root, files, "--db-sslmode=disable")
    async with (
        MaestroClient(f"http://{server.address}:{HTTP}", timeout=PATIENCE) as client,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
    ):
        try:
            server.start()

            async def up() -> bool:
                try:
                    await client.create_consumer("mc01")
                except MaestroError as error:
                    return error.conflict  # of an attempt before, whose answer was lost
                return True

            await eventually(up)
            ids: list[str] = []
            for turn in range(3):
                await eventually(client.consumers)  # it answers again
                answers = [
                    asyncio.create_task(client.create_bundle("mc01", [config_map(f"k{turn}-{n}")])) for n in range(6)
                ]
                await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
                server.kill()
                await asyncio.gather(*answers, return_exceptions=True)
                ids += [task.result()["id"] for task in answers if task.exception() is None]
                server.start()
            assert ids
            for bundle_id in ids:
                await applied(client, bundle_id, seconds=60)
            # What got no answer was either made whole or not at all.
            for bundle in await client.all_bundles():
                await applied(client, bundle["id"], seconds=60)
                await client.delete_bundle(bundle["id"])
            server.kill()
            server.start()

            async def empty() -> bool:
                return (await client.list_bundles())["total"] == 0

            await eventually(empty, seconds=60)
            assert await cluster.client.list(*RECORD) == []
        finally:
            server.kill()

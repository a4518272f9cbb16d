"""With the server's database emptied or set back, agents keep what they run, and bundles that come back are taken."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from regional.maestro.client import MaestroClient
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import TABLES, Document, Maestro, applied, config_map, connect, emptied, eventually, gone

ID = "11111111-2222-5333-8444-555555555555"


@contextlib.asynccontextmanager
async def second_version(maestro: Maestro, cluster: Cluster) -> AsyncIterator[tuple[MaestroClient, Any]]:
    """A bundle whose second version is applied, and its object."""
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        await client.create_bundle("mc01", [config_map("a", {"key": "1"})], id=ID)
        await client.patch_bundle(ID, manifests=[config_map("a", {"key": "2"})])
        await applied(client, ID, version=2)
        yield client, await cluster.client.get("v1", "ConfigMap", "a", "default")


async def same(cluster: Cluster, before: Any) -> bool:
    now = await cluster.client.get_or_none("v1", "ConfigMap", "a", "default")
    return now is not None and now["metadata"]["uid"] == before["metadata"]["uid"]


async def unknown(client: MaestroClient) -> list[Document]:
    await client.ask_agents()
    items: list[Document] = (await client.agent_works())["items"]
    return items


async def whole_truth(client: MaestroClient) -> list[Document]:
    """A late status may have told of the first version only; the agent's own list comes behind it."""
    return [found for found in await unknown(client) if found["version"] == 2]


async def test_works_that_nobody_knows_are_shown_and_stay(maestro: Maestro, cluster: Cluster) -> None:
    async with second_version(maestro, cluster) as (client, before):
        await emptied(maestro.database, *TABLES)
        await client.create_consumer("mc01")
        await client.create_bundle("mc01", [config_map("another")])  # the consumer is not without bundles
        (found,) = await eventually(lambda: whole_truth(client))
        assert (found["id"], found["consumer_name"], found["version"]) == (ID, "mc01", 2)
        assert "known_version" not in found
        assert await same(cluster, before)


async def test_a_bundle_that_comes_back_counts_on_from_its_agents_version(maestro: Maestro, cluster: Cluster) -> None:
    async with second_version(maestro, cluster) as (client, before):
        await emptied(maestro.database, *TABLES)
        await client.create_consumer("mc01")
        await eventually(lambda: whole_truth(client))
        made = await client.create_bundle("mc01", [config_map("a", {"key": "3"})], id=ID)
        assert made["version"] == 3
        await applied(client, ID, version=3)
        assert await same(cluster, before)
        assert (await client.agent_works())["total"] == 0


async def test_a_bundle_that_came_back_too_soon_is_taken_when_it_is_sent_again(
    maestro: Maestro, cluster: Cluster
) -> None:
    async with second_version(maestro, cluster) as (client, before):
        await emptied(maestro.database, *TABLES)
        await client.create_consumer("mc01")
        await client.create_bundle("mc01", [config_map("a", {"key": "3"})], id=ID)

        async def newer_there() -> bool:
            """Unless the agent was quicker than we: then the bundle has counted on at once."""
            found = await unknown(client)
            return bool(found and found[0].get("known_version") == 1) or await version_of(client) == 3

        await eventually(newer_there)
        assert await same(cluster, before)
        sent = await client.redeliver_bundle(ID)
        await applied(client, ID, version=sent["version"])
        assert sent["version"] == 3
        assert await same(cluster, before)
        now = await cluster.client.get("v1", "ConfigMap", "a", "default")
        assert now["data"] == {"key": "3"}


async def version_of(client: MaestroClient) -> int:
    return int((await client.get_bundle(ID))["version"])


@pytest.mark.parametrize("change", ["update", "delete"])
async def test_what_is_changed_or_deleted_later_reaches_an_agent_that_is_ahead(
    maestro: Maestro, cluster: Cluster, change: str
) -> None:
    async with second_version(maestro, cluster) as (client, before):
        connection = await connect(maestro.database)
        await connection.execute("UPDATE resources SET version = 1, status = NULL, status_sequence = NULL")  # set back
        await connection.close()
        await eventually(lambda: unknown(client))
        if change == "delete":
            await client.delete_bundle(ID)
            await gone(client, ID)
            assert not await same(cluster, before)
            return
        made = await client.patch_bundle(ID, manifests=[config_map("a", {"key": "4"})])
        assert made["version"] == 3
        await applied(client, ID, version=3)
        assert await same(cluster, before)


@pytest.mark.parametrize("agent_has_spoken", [True, False])
async def test_a_work_that_only_its_agent_knows_can_be_deleted(
    maestro: Maestro, cluster: Cluster, agent_has_spoken: bool
) -> None:
    """Whoever deletes what a lost database knew has been told yes: the work must not run on for ever."""
    async with second_version(maestro, cluster) as (client, _):
        await emptied(maestro.database, *TABLES)
        await client.create_consumer("mc01")
        if agent_has_spoken:
            await eventually(lambda: unknown(client))
        await client.delete_bundle(ID, request_id="asked-for-it")
        await client.delete_bundle(ID)
        await client.ask_agents()

        async def over() -> bool:
            return await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None

        await eventually(over)
        await gone(client, ID)
        assert await eventually(lambda: nothing_unknown(client))
        if agent_has_spoken:
            history = [entry["change"] for entry in await client.bundle_history(ID)]
            assert history[-1] == "deleting" and history[0] == "deleted"
        made = await client.create_bundle("mc01", [config_map("a", {"key": "5"})], id=ID)
        await applied(client, ID, version=made["version"])


async def test_a_deletion_reaches_an_agent_whose_version_is_newer(maestro: Maestro, cluster: Cluster) -> None:
    """What was known of the agent when the deletion was asked for may be old: a late status of a former version."""
    async with second_version(maestro, cluster) as (client, _):
        await emptied(maestro.database, *TABLES)
        await client.create_consumer("mc01")
        connection = await connect(maestro.database)
        try:
            await connection.execute(
                "INSERT INTO agent_works (consumer_name, id, version) VALUES ('mc01', $1, 1)"
                " ON CONFLICT (consumer_name, id) DO UPDATE SET version = 1",
                ID,
            )
        finally:
            await connection.close()
        await client.delete_bundle(ID)
        await client.ask_agents()
        await gone(client, ID)
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None


async def nothing_unknown(client: MaestroClient) -> bool:
    await client.ask_agents()
    return bool((await client.agent_works())["total"] == 0)

"""From a create to a control plane and back: CLM's three roles, the real Maestro and its agent, a real cluster API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.clm.adapter.transport import bundle_id
from regional.clm.client import ClmClient
from regional.clm.events import Queue
from regional.clm.sentinel.main import Sentinel
from regional.clm.sentinel.main import Settings as SentinelSettings
from regional.maestro.client import MaestroClient
from tests.clm.conftest import FOR_EVER, Region, until
from tests.clm.harness import HYPERSHIFT, TASKS, Operator, adapter, reconciled, register, says, sentinel_and_adapter
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import TABLES, Maestro, emptied, running


@pytest.fixture
async def path(region: Region, clm: ClmClient, maestro: Maestro) -> AsyncIterator[MaestroClient]:
    async with maestro.server() as client, sentinel_and_adapter(region, client, clm):
        yield client


async def test_a_cluster_is_ready_only_by_what_came_back_and_goes_without_a_trace(
    clm: ClmClient,
    region: Region,
    path: MaestroClient,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await register(path, "mc01")
    await clm.create("ManagementCluster", "mc01", {})
    made = await clm.for_tenant("111122223333").create("Cluster", "demo", {}, request_id="req-42")
    pool = await clm.create("NodePool", "workers", {"replicas": 2}, parent_id=made["id"])

    # Nobody on the management cluster listens yet: the bundle is there, and nothing is ready.
    told = await until(lambda: says(clm, "Cluster", made["id"], "WaitingForManagementCluster"))
    assert "mc01 has not applied generation 1 yet: " in told["message"]
    await until(lambda: says(clm, "NodePool", pool["id"], "WaitingForCluster"))
    bundle = await path.get_bundle(bundle_id("mc01", f"cluster-{made['id']}"))
    assert bundle["metadata"]["annotations"]["regional.io/request-id"] == "req-42"

    async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
        live = await operator.hosted(made["id"])
        assert live["metadata"]["annotations"]["regional.io/request-id"] == "req-42"
        assert live["spec"]["clusterID"] == made["id"]
        await until(lambda: says(clm, "Cluster", made["id"], "NotReported"))
        assert not await reconciled(clm, "Cluster", made["id"])
        await operator.make_available(made["id"])
        await until(lambda: reconciled(clm, "Cluster", made["id"]))
        whole = await clm.for_tenant("111122223333").status_of("Cluster", made["id"], "hypershift")
        assert whole is not None
        assert whole["data"]["kubeconfig"] == "a3ViZWNvbmZpZw=="
        assert whole["data"]["endpoint"] == {"host": "127.0.0.9", "port": 6443}
        (listed,) = await clm.statuses("Cluster", made["id"])
        assert listed["data"]["kubeconfig"] == "***REDACTED***"

        await operator.make_pool_ready(made["id"], 1)
        await until(lambda: says(clm, "NodePool", pool["id"], "Scaling"))
        await operator.make_pool_ready(made["id"], 2)
        await until(lambda: reconciled(clm, "NodePool", pool["id"]))

        await clm.patch("Cluster", made["id"], spec={"channel": "stable-4.22"}, request_id="req-43")

        async def seen_change() -> bool:
            return (await operator.hosted(made["id"]))["spec"].get("channel") == "stable-4.22"

        await until(seen_change)
        assert not await reconciled(clm, "Cluster", made["id"])  # what came back was about the generation before
        await operator.make_available(made["id"])
        await until(lambda: reconciled(clm, "Cluster", made["id"]))

        await clm.delete("Cluster", made["id"])

        async def nothing_left() -> bool:
            return await clm.get_or_none("Cluster", made["id"]) is None

        await until(nothing_left)
        assert await clm.get_or_none("NodePool", pool["id"]) is None
        assert await operator.hosted_or_none(made["id"]) is None
        assert (await path.list_bundles())["total"] == 0
    order = await region.rows("SELECT kind FROM resource_history WHERE change = 'removed' ORDER BY id")
    assert [row["kind"] for row in order] == ["NodePool", "Cluster"]
    told = (await clm.history("Cluster", made["id"]))["items"]
    assert "emptied" in [entry["change"] for entry in told]


async def test_a_cluster_that_is_deleted_while_maestros_database_is_empty_leaves_nothing_behind(
    clm: ClmClient,
    path: MaestroClient,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await register(path, "mc01")
    await clm.create("ManagementCluster", "mc01", {})
    made = await clm.create("Cluster", "demo", {})

    async def nothing_left() -> bool:
        return await clm.get_or_none("Cluster", made["id"]) is None

    async def taken_down() -> bool:
        return await operator.hosted_or_none(made["id"]) is None

    async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await operator.hosted(made["id"])
        await emptied(maestro.database, *TABLES)
        await clm.delete("Cluster", made["id"])
        await until(nothing_left, 60)
        await register(path, "mc01")
        await path.ask_agents()
        await until(taken_down, 60)


async def test_a_new_pool_waits_until_the_former_one_of_its_name_is_gone(
    clm: ClmClient,
    path: MaestroClient,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await register(path, "mc01")
    await clm.create("ManagementCluster", "mc01", {})
    made = await clm.create("Cluster", "demo", {})
    former = await clm.create("NodePool", "workers", {"replicas": 1}, parent_id=made["id"])
    async with running(operator.operate()):
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await until(lambda: reconciled(clm, "NodePool", former["id"]), 60)
        # Nobody takes the former one down now.
        await clm.delete("NodePool", former["id"])
        living = await clm.create("NodePool", "workers", {"replicas": 3}, parent_id=made["id"])
        told = await until(lambda: says(clm, "NodePool", living["id"], "WaitingForFormerNodePool"))
        assert told["message"] == "the former node pool workers is still being deleted"
        own = bundle_id("mc01", f"nodepool-{living['id']}")
        assert await path.get_bundle_or_none(own) is None
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await until(lambda: reconciled(clm, "NodePool", living["id"]), 60)
            assert await clm.get_or_none("NodePool", former["id"]) is None
            found = await cluster.client.get(HYPERSHIFT, "NodePool", "demo-workers", f"cluster-{made['id']}")
            assert found["spec"]["replicas"] == 3


async def test_a_cluster_without_a_place_says_so_and_goes_on_when_there_is_one(
    clm: ClmClient, region: Region, path: MaestroClient
) -> None:
    from regional.clm.api.main import place_those_who_wait

    made = await clm.create("Cluster", "demo", {})
    assert made["placement"] == {"reason": "no management cluster is registered"}
    told = await until(lambda: says(clm, "Cluster", made["id"], "WaitingForPlacement"))
    assert told["message"] == "no management cluster is registered"
    async with running(region.database.keep_session(place_those_who_wait)):
        await clm.create("ManagementCluster", "mc09", {})
        told = await until(lambda: says(clm, "Cluster", made["id"], "UnknownConsumer"))
        assert told["message"] == "management cluster 'mc09' is not registered with Maestro"
        await register(path, "mc09")
        await until(lambda: says(clm, "Cluster", made["id"], "WaitingForManagementCluster"))


async def test_a_killed_adapters_work_is_taken_up_by_its_next_life(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
) -> None:
    await clm.create("ManagementCluster", "mc01", {})
    async with maestro.server() as client:
        await register(client, "mc01")
        made = await clm.create("Cluster", "demo", {})
        async with region.connection() as connection:
            # As if an adapter had taken the event and died with it.
            reader = Sentinel(SentinelSettings())
            async with running(region.database.keep_session(reader.follow)):
                await until(lambda: region.value("SELECT count(*) FROM events"))
            (work,) = await Queue("hypershift", "adapter-0", FOR_EVER).take(connection, 10)
            assert str(work.resource_id) == made["id"]
            assert await Queue("hypershift", "another").take(connection, 10) == []
        async with sentinel_and_adapter(region, client, clm):
            await until(lambda: says(clm, "Cluster", made["id"], "WaitingForManagementCluster"))


async def test_two_adapters_share_the_work_and_nothing_is_done_twice(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await clm.create("ManagementCluster", "mc01", {})
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(maestro.server())
        await register(client, "mc01")
        sentinel = Sentinel(SentinelSettings())
        await stack.enter_async_context(running(region.database.keep_session(sentinel.follow)))
        for name in ("adapter-0", "adapter-1"):
            await stack.enter_async_context(adapter(region, client, clm, name))
        await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
        await stack.enter_async_context(running(operator.operate()))
        made = await asyncio.gather(*(clm.create("Cluster", f"made-{number}", {}) for number in range(8)))
        for one in made:
            await until(lambda one=one: reconciled(clm, "Cluster", one["id"]), 60)
        bundles = (await client.list_bundles())["items"]
        assert sorted(bundle["version"] for bundle in bundles) == [1] * 8
        await asyncio.gather(*(clm.delete("Cluster", one["id"]) for one in made))

        async def nothing_left() -> bool:
            return not await region.value("SELECT count(*) FROM resources WHERE kind = 'Cluster'")

        await until(nothing_left, 60)
        assert (await client.list_bundles())["total"] == 0
    assert await region.value("SELECT used FROM management_cluster_capacity") == 0


def test_our_task_files_are_there() -> None:
    assert {file.name for file in Path(TASKS).glob("*.yaml")} == {"cluster.yaml", "nodepool.yaml"}

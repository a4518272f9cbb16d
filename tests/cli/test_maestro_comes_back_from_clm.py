"""Maestro's database is emptied: one command brings every bundle back, and the management cluster notices nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from regional.core.paths import checkout
from tests.cli.conftest import Place, Shell, interrupted
from tests.clm.conftest import Region, until
from tests.clm.harness import HYPERSHIFT, Operator, reconciled, sentinel_and_adapter
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, connect, emptied, eventually, running

PAYLOAD = str(checkout() / "examples" / "work" / "payload.json")
SOONER = ("--timeout", "120s")


class Life:
    """A cluster with a pool that is carried out by a management cluster, and a work sent by hand."""

    def __init__(self, place: Place, maestro: Maestro, cluster: Cluster) -> None:
        self.shell: Shell = place.operator
        self.client: Any = place.maestro  # type: ignore[attr-defined]
        self._maestro, self._cluster = maestro, cluster

    async def objects(self) -> dict[str, str]:
        """What is on the management cluster: uids by name."""
        found = {}
        for version, kind in ((HYPERSHIFT, "HostedCluster"), (HYPERSHIFT, "NodePool"), ("v1", "Namespace")):
            for one in await self._cluster.client.list(version, kind):
                found[f"{kind} {one['metadata']['name']}"] = one["metadata"]["uid"]
        for kind in ("ConfigMap", "Secret"):
            for one in await self._cluster.client.list("v1", kind):
                found[f"{kind} {one['metadata']['namespace']}/{one['metadata']['name']}"] = one["metadata"]["uid"]
        works = await self._cluster.client.list("work.open-cluster-management.io/v1", "AppliedManifestWork")
        return found | {f"work {one['metadata']['name']}": one["metadata"]["uid"] for one in works}

    async def bundles(self) -> set[str]:
        return {bundle["id"] for bundle in await self.client.all_bundles(search="source = 'clm'")}

    async def consumer(self) -> tuple[str, dict[str, str]]:
        (found,) = await self.client.consumers()
        return found["id"], found.get("labels")

    async def empty_database(self) -> None:
        connection = await connect(self._maestro.database)
        try:
            tables = [
                f'"{row["tablename"]}"'
                for row in await connection.fetch(
                    "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename !~ 'migration|feed'"
                )
            ]
        finally:
            await connection.close()
        await emptied(self._maestro.database, *tables)


@pytest.fixture
async def life(place_with_maestro: Place, region: Region, maestro: Maestro, cluster: Cluster) -> AsyncIterator[Life]:
    place = place_with_maestro
    operator = Operator(cluster)
    await operator.prepare()
    made = Life(place, maestro, cluster)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sentinel_and_adapter(region, made.client, place.clm))
        await stack.enter_async_context(running(operator.operate()))
        await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
        await made.shell.succeed(
            *("management-cluster", "register", "mc01", "--region", "us-west-2", "--account", "123456789012"),
            *("--label", "cluster_type=management"),
        )
        wanted = await place.own_clm.create("Cluster", "demo", {})
        pool = await place.own_clm.create("NodePool", "workers", {"replicas": 2}, parent_id=wanted["id"])
        await until(lambda: reconciled(place.clm, "NodePool", pool["id"]), 60)
        await until(lambda: reconciled(place.clm, "Cluster", wanted["id"]), 60)
        # A second version, so that the agent is ahead of whatever begins to count anew.
        await place.own_clm.patch("NodePool", pool["id"], spec={"replicas": 3})
        await until(lambda: reconciled(place.clm, "NodePool", pool["id"]), 60)
        await made.shell.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01", "--wait", *SOONER)
        yield made


async def test_every_bundle_comes_back_and_no_object_is_deleted_or_made_anew(life: Life) -> None:
    objects, bundles, consumer = await life.objects(), await life.bundles(), await life.consumer()
    assert len(bundles) == 2
    assert consumer[1] == {"cluster_type": "management"}
    await life.empty_database()
    assert await life.bundles() == set()

    done = await life.shell.succeed("maestro", "rebuild", *SOONER)
    assert "Maestro has all 2 bundles that CLM wants; 2 of them are applied" in done.out
    for step in ("consumers", "agents", "bundles", "confirmed"):
        assert f"✓ {step}" in done.err
    assert "made anew: mc01" in done.err
    assert await life.consumer() == consumer
    assert await life.bundles() == bundles
    assert await life.objects() == objects

    again = (await life.shell.succeed("maestro", "rebuild", *SOONER, "-o", "json")).json()
    assert (again["wanted"], again["current"], again["confirmed"], again["made"]) == (2, 2, 2, [])
    assert await life.bundles() == bundles
    assert await life.objects() == objects


async def test_a_work_that_was_sent_by_hand_stays_and_is_named_until_it_is_sent_again(life: Life) -> None:
    objects = await life.objects()
    (sent,) = await life.client.all_bundles(search="name = 'maestro-payload-test'")
    await life.empty_database()
    await life.shell.succeed("maestro", "rebuild", *SOONER)

    async def named() -> Any:
        await life.client.ask_agents()
        found = (await life.shell.succeed("maestro", "unknown", "--to", "mc01", "-o", "json")).json()
        return [item["id"] for item in found["items"]] == [sent["id"]]

    await eventually(named, 60)
    assert sent["id"] in (await life.shell.succeed("maestro", "unknown")).out
    assert await life.objects() == objects
    await life.shell.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01", "--wait", *SOONER)
    assert await life.objects() == objects
    gone = await life.shell.succeed("maestro", "unknown")
    assert "no works but those that Maestro knows" in gone.err


async def test_a_rebuild_that_is_broken_off_is_finished_by_the_next(life: Life) -> None:
    objects, bundles = await life.objects(), await life.bundles()
    await life.empty_database()
    process = await life.shell.start("maestro", "rebuild", *SOONER)
    assert process.stderr is not None
    await process.stderr.readline()  # its first step is done
    stopped = await interrupted(process)
    assert stopped.code in (0, 130)
    await life.shell.succeed("maestro", "rebuild", *SOONER)
    assert await life.bundles() == bundles
    assert await life.objects() == objects

"""A pass that a change overtakes must not tell its findings as if they were about the change."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.core.clock import SystemClock
from regional.hypershift.certificates import KeyRing
from regional.hypershift.guest.connection import Guests
from regional.hypershift.hostedcluster import HostedClusterReconciler
from regional.hypershift.looking import Looker
from regional.hypershift.nodepool import NodePoolReconciler
from regional.hypershift.plane import PlaneMaker
from regional.hypershift.timing import Stretches
from regional.hypershift.world import World
from regional.hypershift.writing import Writer
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, condition_of, generation_of, status_of
from tests.hypershift.harness import CHART, HYPERSHIFT, RELEASE, eventually, hosted_cluster, node_pool
from tests.kube_controllers.harness import Cluster

KINDS = ("hostedclusters", "nodepools", "hostedcontrolplanes", "controlplanecomponents")


class Bench:
    """The operator's reconcilers on a real API, one pass at a time, with any copy of an object that a test likes."""

    def __init__(self, client: Client) -> None:
        clock, guests, writer = SystemClock(), Guests(), Writer(client)
        self.client, self.world = client, World(client, clock)
        ring = KeyRing(client, writer, self.world.secrets, clock)
        maker = PlaneMaker(client, self.world, writer, ring, "image")
        self.clusters = HostedClusterReconciler(
            client, self.world, writer, maker, Looker(guests, clock), Stretches(clock), clock
        )
        self.pools = NodePoolReconciler(client, self.world, writer, guests, clock)

    async def changed(self, kind: str, spec: dict[str, Any]) -> tuple[Obj, Obj]:
        """An object as it was and as it is, once the operator's own copy shows a change of its spec."""
        informer = self.world.hosted if kind == "HostedCluster" else self.world.pools

        async def known(generation: int) -> Obj | None:
            found = informer.get("here", "x")
            return found if found is not None and generation_of(found) >= generation else None

        live = await self.client.get(HYPERSHIFT, kind, "x", "here")
        before = await eventually(lambda: known(generation_of(live)))
        answer = await self.client.patch(HYPERSHIFT, kind, "x", "here", {"spec": spec})
        assert generation_of(answer) > generation_of(before)
        return before, await eventually(lambda: known(generation_of(answer)))

    async def said(self, kind: str, condition: str) -> dict[str, Any]:
        return condition_of(await self.client.get(HYPERSHIFT, kind, "x", "here"), condition) or {}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    cluster = Cluster(tmp_path)
    await cluster.start()
    for kind in KINDS:
        await cluster.client.create(yaml.safe_load((CHART / "templates" / f"crd-{kind}.yaml").read_text()))
    for kind in ("HostedCluster", "NodePool", "HostedControlPlane", "ControlPlaneComponent"):
        await eventually(lambda kind=kind: _served(cluster.client, kind))
    with contextlib.suppress(ApiError):
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here"}})
    made = Bench(cluster.client)
    await made.world.start()
    yield made
    await made.world.stop()
    await cluster.stop()


async def _served(client: Client, kind: str) -> bool:
    await client.list(HYPERSHIFT, kind)
    return True


async def test_a_hosted_clusters_findings_are_not_told_of_a_later_generation(bench: Bench) -> None:
    await bench.client.create(hosted_cluster("x", "here", pullSecret={"name": "one"}))
    made = await eventually(lambda: _first(bench))
    await bench.clusters.reconcile(made)
    told = await bench.said("HostedCluster", "ValidReleaseImage")
    assert '"one" not found' in told["message"]

    before, after = await bench.changed("HostedCluster", {"release": {"image": RELEASE.replace("4.21.3", "9.9.9")}})
    await bench.clusters.reconcile(before)
    assert await bench.said("HostedCluster", "ValidReleaseImage") == told
    await bench.clusters.tell_failure(before, ValueError("of the pass before"))
    assert (await bench.said("HostedCluster", "ReconciliationSucceeded"))["status"] == "True"
    await bench.clusters.reconcile(after)
    assert (await bench.said("HostedCluster", "ValidReleaseImage"))["observedGeneration"] == generation_of(after)
    await bench.clusters.tell_failure(after, ValueError("of this pass"))
    assert (await bench.said("HostedCluster", "ReconciliationSucceeded"))["message"] == "of this pass"


async def _first(bench: Bench) -> Obj | None:
    return bench.world.hosted.get("here", "x")


async def test_a_pools_findings_are_not_told_of_a_later_generation(bench: Bench) -> None:
    await bench.client.create(node_pool("x", "here", "nobody", replicas=1))
    before, after = await bench.changed("NodePool", {"replicas": 2})
    await bench.pools.reconcile(before)
    assert not status_of(await bench.client.get(HYPERSHIFT, "NodePool", "x", "here")).get("conditions")
    await bench.pools.reconcile(after)
    assert (await bench.said("NodePool", "Ready"))["observedGeneration"] == generation_of(after)

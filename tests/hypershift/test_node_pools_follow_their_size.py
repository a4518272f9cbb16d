"""A NodePool's nodes: as many as asked for, simulated and saying so, gone with the pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from regional.kube.client import Client
from regional.kube.objects import (
    Obj,
    annotations_of,
    condition_of,
    finalizers_of,
    is_true,
    labels_of,
    name_of,
    owners_of,
    spec_of,
    status_of,
    uid_of,
)
from tests.hypershift.harness import HYPERSHIFT, NEXT_RELEASE, ManagementCluster, Operated, eventually, node_pool

NAMESPACE, CLUSTER = "pools", "host"
FINALIZER = "hypershift.openshift.io/finalizer"


@pytest.fixture(scope="session")
def hosted_once(management_cluster: ManagementCluster) -> set[str]:
    return set()


@pytest.fixture
async def host(mc: Operated, hosted_once: set[str]) -> AsyncIterator[Operated]:
    """One hosted cluster for all tests here; each has a pool of its own."""
    if CLUSTER not in hosted_once:
        await mc.create(CLUSTER, NAMESPACE, keep=True)
        hosted_once.add(CLUSTER)
    await mc.available(CLUSTER, NAMESPACE)
    yield mc


async def nodes_of(mc: Operated, pool: str) -> list[Obj]:
    async with mc.guest(CLUSTER, NAMESPACE) as client:
        found: list[Obj] = await client.list("v1", "Node", labels={"hypershift.openshift.io/nodePool": pool})
        return found


async def until_nodes(mc: Operated, pool: str, count: int) -> list[Obj]:
    async def look() -> list[Obj] | None:
        found = await nodes_of(mc, pool)
        return found or [{}] if len(found) == count else None

    return await eventually(look)


async def remove_pool(mc: Operated, pool: str) -> None:
    await mc.client.delete(HYPERSHIFT, "NodePool", pool, NAMESPACE)

    async def gone() -> bool:
        return await mc.client.get_or_none(HYPERSHIFT, "NodePool", pool, NAMESPACE) is None

    await eventually(gone)


async def test_nodes_are_ready_labelled_and_say_that_they_are_simulated(host: Operated) -> None:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    await host.create_pool("tagged", NAMESPACE, CLUSTER, 2, nodeLabels={"pool": "blue"}, taints=taints)
    pool = await host.pool_ready("tagged", NAMESPACE, 2)
    nodes = await nodes_of(host, "tagged")
    assert len(nodes) == 2
    for node in nodes:
        assert is_true(node, "Ready")
        assert labels_of(node)["regional.io/simulated"] == "true"
        assert labels_of(node)["pool"] == "blue"
        assert "node-role.kubernetes.io/worker" in labels_of(node)
        assert spec_of(node)["taints"] == taints
        assert "simulated" in (condition_of(node, "Ready") or {})["message"]
        assert annotations_of(node)["cluster.x-k8s.io/cluster-namespace"] == f"{NAMESPACE}-{CLUSTER}"
    assert len({a["address"] for node in nodes for a in status_of(node)["addresses"] if a["type"] == "InternalIP"}) == 2
    hosted = await host.hosted(CLUSTER, NAMESPACE)
    assert hosted is not None and uid_of(hosted) in [owner["uid"] for owner in owners_of(pool)]
    assert FINALIZER in finalizers_of(pool)
    assert status_of(pool)["version"] == "4.21.3"
    told = status_of(pool)["nodesInfo"]["nodeVersions"]
    assert [(version["ocpVersion"], version["readyNodeCount"]) for version in told] == [("4.21.3", 2)]
    await remove_pool(host, "tagged")
    assert await nodes_of(host, "tagged") == []


async def test_a_pool_grows_and_shrinks_without_touching_the_nodes_that_stay(host: Operated) -> None:
    await host.create_pool("elastic", NAMESPACE, CLUSTER, 2)
    await host.pool_ready("elastic", NAMESPACE, 2)
    before = {uid_of(node) for node in await nodes_of(host, "elastic")}
    kubectl = host.cluster.kubectl
    await asyncio.to_thread(kubectl, "scale", "nodepool/elastic", "-n", NAMESPACE, "--replicas=5")
    await host.pool_ready("elastic", NAMESPACE, 5)
    grown = {uid_of(node) for node in await nodes_of(host, "elastic")}
    assert before < grown and len(grown) == 5
    await host.patch("NodePool", "elastic", NAMESPACE, {"spec": {"replicas": 1}})
    await host.pool_ready("elastic", NAMESPACE, 1)
    left = {uid_of(node) for node in await nodes_of(host, "elastic")}
    assert len(left) == 1 and left < before
    await host.patch("NodePool", "elastic", NAMESPACE, {"spec": {"replicas": 0}})
    await host.pool_ready("elastic", NAMESPACE, 0)
    assert await nodes_of(host, "elastic") == []
    await remove_pool(host, "elastic")
    assert is_true(await host.available(CLUSTER, NAMESPACE), "Available")


async def test_a_node_that_somebody_deletes_comes_back(host: Operated) -> None:
    await host.create_pool("healing", NAMESPACE, CLUSTER, 2)
    await host.pool_ready("healing", NAMESPACE, 2)
    victim = (await nodes_of(host, "healing"))[0]
    async with host.guest(CLUSTER, NAMESPACE) as client:
        await client.delete("v1", "Node", name_of(victim))
    await host.patch("NodePool", "healing", NAMESPACE, {"metadata": {"labels": {"look": "again"}}})
    await until_nodes(host, "healing", 2)
    await remove_pool(host, "healing")


async def test_a_pool_may_come_before_its_cluster(mc: Operated) -> None:
    await mc.namespace("early")
    await mc.create_pool("first", "early", "later", 1)
    pool = await mc.told("NodePool", "first", "early", "Ready", "False", "NotFound")
    assert "later does not exist" in (condition_of(pool, "Ready") or {})["message"]
    await mc.create("later", "early")
    await mc.pool_ready("first", "early", 1)


async def test_a_new_release_replaces_all_nodes_and_is_never_above_the_cluster(host: Operated) -> None:
    await host.create_pool("rolling", NAMESPACE, CLUSTER, 2)
    await host.pool_ready("rolling", NAMESPACE, 2)
    before = {name_of(node) for node in await nodes_of(host, "rolling")}
    await host.patch("NodePool", "rolling", NAMESPACE, {"spec": {"release": {"image": NEXT_RELEASE}}})
    pool = await host.told("NodePool", "rolling", NAMESPACE, "ValidReleaseImage", "False", "ValidationFailed")
    assert "4.22.0 is above" in (condition_of(pool, "ValidReleaseImage") or {})["message"]
    assert {name_of(node) for node in await nodes_of(host, "rolling")} == before
    older = NEXT_RELEASE.replace("4.22.0", "4.21.4")
    await host.patch("NodePool", "rolling", NAMESPACE, {"spec": {"release": {"image": older}}})

    async def renewed() -> bool:
        live = await host.client.get(HYPERSHIFT, "NodePool", "rolling", NAMESPACE)
        return status_of(live).get("version") == "4.21.4"

    await eventually(renewed)
    after = {name_of(node) for node in await nodes_of(host, "rolling")}
    assert len(after) == 2 and not after & before
    await remove_pool(host, "rolling")


@pytest.mark.parametrize(
    ("spec", "condition", "says"),
    [
        ({"release": {"image": "example.com/ocp:latest"}}, "ValidReleaseImage", "tells no version"),
        ({"config": [{"name": "absent"}]}, "ValidMachineConfig", 'configmap "absent" not found'),
        (
            {
                "management": {
                    "upgradeType": "Replace",
                    "replace": {
                        "strategy": "RollingUpdate",
                        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0},
                    },
                }
            },
            "UpdateManagementEnabled",
            "cannot both be zero",
        ),
    ],
)
async def test_a_bad_pool_is_told_why_and_mended_by_a_change(
    host: Operated, spec: Obj, condition: str, says: str
) -> None:
    bad = node_pool("bad", NAMESPACE, CLUSTER, replicas=1, **spec)
    await host.client.create(bad)
    pool = await host.told("NodePool", "bad", NAMESPACE, condition, "False", "ValidationFailed")
    assert says in (condition_of(pool, condition) or {})["message"]
    assert await nodes_of(host, "bad") == []
    good = node_pool("bad", NAMESPACE, CLUSTER, replicas=1)["spec"]
    calm = {"replace": {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    mended = {"release": good["release"], "config": None, "management": {"upgradeType": "Replace"} | calm}
    await host.patch("NodePool", "bad", NAMESPACE, {"spec": mended})
    await host.pool_ready("bad", NAMESPACE, 1)
    await remove_pool(host, "bad")


@pytest.mark.parametrize(
    "change",
    [
        {"clusterName": "other"},
        {"arch": "arm64"},
        {"management": {"upgradeType": "InPlace"}},
        {"autoScaling": {"min": 1, "max": 2}},
        {"replicas": -1},
    ],
)
async def test_what_a_pool_may_not_become_is_refused_at_the_door(host: Operated, change: Obj) -> None:
    pool = await host.client.get_or_none(HYPERSHIFT, "NodePool", "fixed", NAMESPACE)
    if pool is None:
        await host.create_pool("fixed", NAMESPACE, CLUSTER, 0)
    with pytest.raises(Exception, match="fixed"):
        await host.patch("NodePool", "fixed", NAMESPACE, {"spec": change})


async def test_two_pools_keep_apart(host: Operated) -> None:
    await host.create_pool("one", NAMESPACE, CLUSTER, 2)
    await host.create_pool("one-more", NAMESPACE, CLUSTER, 3)
    await host.pool_ready("one", NAMESPACE, 2)
    await host.pool_ready("one-more", NAMESPACE, 3)
    await remove_pool(host, "one")
    assert len(await nodes_of(host, "one-more")) == 3
    await remove_pool(host, "one-more")


async def test_the_scale_of_a_pool_is_a_subresource(host: Operated) -> None:
    await host.create_pool("scaled", NAMESPACE, CLUSTER, 1)
    await host.pool_ready("scaled", NAMESPACE, 1)
    client: Client = host.client
    status, _, body = await client.request("GET", f"/apis/{HYPERSHIFT}/namespaces/{NAMESPACE}/nodepools/scaled/scale")
    assert status == 200 and b'"replicas":1' in body.replace(b" ", b"")
    await remove_pool(host, "scaled")

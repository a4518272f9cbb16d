"""Pods get a node that will have them, or a reason; silent nodes are unknown; pods of removed nodes are cleared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regional.kube.controllers import nodes
from regional.kube.objects import Obj, condition_of, name_of, spec_of
from tests.kube_controllers.harness import Cluster, CountedTime, Kubelet, eventually


def pod(name: str, **spec: object) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"containers": [{"name": "main", "image": "app:1"}], **spec},
    }


async def home(cluster: Cluster, name: str) -> str:
    return str(spec_of(await cluster.client.get("v1", "Pod", name, "t")).get("nodeName", ""))


async def test_pods_are_spread_over_nodes(cluster: Cluster) -> None:
    await cluster.namespace("t")
    second = Kubelet(cluster.api.client("kubelet"), node="node-2")
    await second.start()
    for node in ("node-1", "node-2"):
        await cluster.client.create(pod(f"on-{node}", nodeSelector={"kubernetes.io/hostname": node}))

    async def known() -> bool:
        """The scheduler has heard of both."""
        return bool(await home(cluster, "on-node-1") and await home(cluster, "on-node-2"))

    await eventually(known)
    for number in range(6):
        await cluster.client.create(pod(f"p{number}"))

    async def spread() -> bool:
        homes = [await home(cluster, f"p{number}") for number in range(6)]
        return homes.count("node-1") == homes.count("node-2") == 3

    await eventually(spread)
    await second.stop()


async def test_a_pod_that_fits_nowhere_says_why_and_waits(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(pod("p", nodeSelector={"disk": "fast"}))

    async def explained() -> bool:
        condition = condition_of(await cluster.client.get("v1", "Pod", "p", "t"), "PodScheduled") or {}
        return condition.get("reason") == "Unschedulable" and condition["message"].startswith(
            "0/1 nodes are available: 1 node(s) didn't match"
        )

    await eventually(explained)

    async def event() -> bool:
        events = await cluster.client.list("v1", "Event", "t", fields="involvedObject.name=p")
        return any(e["reason"] == "FailedScheduling" and e["type"] == "Warning" for e in events)

    await eventually(event)
    await cluster.client.patch("v1", "Node", "node-1", None, {"metadata": {"labels": {"disk": "fast"}}})

    async def placed() -> bool:
        return await home(cluster, "p") == "node-1"

    await eventually(placed)


async def test_no_nodes_at_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start(kubelet=False)
    await cluster.control()
    await cluster.namespace("t")
    await cluster.client.create(pod("p"))

    async def explained() -> bool:
        condition = condition_of(await cluster.client.get("v1", "Pod", "p", "t"), "PodScheduled") or {}
        return condition.get("message") == "no nodes available to schedule pods"

    await eventually(explained)
    await cluster.stop()


async def test_a_silent_node_is_unknown_and_keeps_its_pods(quiet: Cluster) -> None:
    await quiet.control(node_grace_seconds=0.3)
    await quiet.namespace("t")
    await quiet.client.create(pod("p"))

    async def unknown() -> bool:
        node = await quiet.client.get("v1", "Node", "node-1")
        return (condition_of(node, "Ready") or {}).get("status") == "Unknown"

    await eventually(unknown)
    assert [name_of(p) for p in await quiet.pods("t")] == ["p"]


async def test_a_node_that_renews_its_lease_stays_ready(quiet: Cluster) -> None:
    """For longer than the grace, and no longer than it when the renewals end."""
    time = CountedTime()
    await quiet.control(clock=time, node_grace_seconds=1.0)
    lease: Obj = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "node-1", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    await quiet.client.create(lease)
    for second in range(1, 60):
        patch = {"spec": {"renewTime": f"2026-01-01T00:00:{second:02}.000000Z"}}
        await quiet.client.patch("coordination.k8s.io/v1", "Lease", "node-1", "kube-node-lease", patch)
        await asyncio.sleep(0.05)
        time.seconds += 0.05
    node = await quiet.client.get("v1", "Node", "node-1")
    assert (condition_of(node, "Ready") or {})["status"] == "True"

    async def unknown() -> bool:
        time.seconds += 0.1
        node = await quiet.client.get("v1", "Node", "node-1")
        return (condition_of(node, "Ready") or {})["status"] == "Unknown"

    await eventually(unknown)


async def test_pods_of_a_removed_node_are_cleared(quiet: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ORPHAN_SECONDS", 0.2)
    await quiet.control()
    await quiet.namespace("t")
    await quiet.client.create(pod("p"))

    async def placed() -> bool:
        return await home(quiet, "p") == "node-1"

    await eventually(placed)
    await quiet.kubelet.stop()
    await quiet.client.delete("v1", "Node", "node-1")

    async def cleared() -> bool:
        return not await quiet.client.list("v1", "Pod", "t")

    await eventually(cleared)

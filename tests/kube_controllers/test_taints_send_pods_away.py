"""A node that is not well is tainted; pods leave it when they no longer bear that, unless no node is well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from regional.kube.objects import Obj, condition_of, is_deleting, name_of, spec_of
from tests.kube_controllers.harness import Cluster, Kubelet, eventually, report_node
from tests.kube_controllers.test_nodes_and_scheduling import home, pod

IMPATIENT = [
    {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    for word in ("not-ready", "unreachable")
]


@pytest.fixture
async def second(cluster: Cluster) -> AsyncIterator[Kubelet]:
    await cluster.namespace("t")
    made = Kubelet(cluster.api.client("kubelet"), node="node-2")
    await made.start()
    yield made
    await made.stop()


async def report(cluster: Cluster, node: str, ready: str) -> None:
    condition: Obj = {"type": "Ready", "status": ready, "reason": "Test", "message": ""}
    await report_node(cluster.client, node, conditions=[condition])


async def tainted(cluster: Cluster, node: str, wanted: set[tuple[str, str]]) -> None:
    async def check() -> bool:
        taints = spec_of(await cluster.client.get("v1", "Node", node)).get("taints") or []
        return {(taint["key"].rpartition("/")[2], taint["effect"]) for taint in taints} == wanted

    await eventually(check, str(wanted), seconds=60)


async def placed(cluster: Cluster, name: str, **spec: Any) -> None:
    await cluster.client.create(pod(name, nodeSelector={"kubernetes.io/hostname": "node-2"}, **spec))

    async def check() -> bool:
        return await home(cluster, name) == "node-2"

    await eventually(check, seconds=60)


async def test_pods_leave_a_node_that_is_not_ready_when_their_patience_ends(cluster: Cluster, second: Kubelet) -> None:
    await placed(cluster, "impatient", tolerations=IMPATIENT)
    await placed(cluster, "patient")
    second.lets_go = lambda pod: False
    await report(cluster, "node-2", "False")
    await tainted(cluster, "node-2", {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")})

    async def leaving() -> Obj | None:
        found = await cluster.client.get("v1", "Pod", "impatient", "t")
        return found if is_deleting(found) else None

    gone = await eventually(leaving, seconds=60)
    assert (condition_of(gone, "DisruptionTarget") or {})["reason"] == "DeletionByTaintManager"
    assert [name_of(each) for each in await cluster.pods("t")] == ["patient"]
    await report(cluster, "node-2", "True")
    await tainted(cluster, "node-2", set())


async def test_when_no_node_is_well_nobody_is_sent_away(cluster: Cluster, second: Kubelet) -> None:
    await placed(cluster, "impatient", tolerations=IMPATIENT)
    await report(cluster, "node-1", "False")
    await tainted(cluster, "node-1", {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")})
    await report(cluster, "node-2", "False")
    await tainted(cluster, "node-2", {("not-ready", "NoSchedule")})
    await tainted(cluster, "node-1", {("not-ready", "NoSchedule")})
    assert [name_of(each) for each in await cluster.pods("t")] == ["impatient"]


async def test_a_taint_of_the_users_own_sends_pods_away_at_once(cluster: Cluster, second: Kubelet) -> None:
    await placed(cluster, "p")
    taints = [{"key": "demo.io/away", "effect": "NoExecute"}]
    await cluster.client.patch("v1", "Node", "node-2", None, {"spec": {"taints": taints}})

    async def gone() -> bool:
        return not await cluster.client.list("v1", "Pod", "t")

    await eventually(gone, seconds=60)
    await tainted(cluster, "node-2", {("away", "NoExecute")})


async def test_a_cordoned_node_is_tainted(cluster: Cluster, second: Kubelet) -> None:
    await cluster.client.patch("v1", "Node", "node-2", None, {"spec": {"unschedulable": True}})
    await tainted(cluster, "node-2", {("unschedulable", "NoSchedule")})
    await cluster.client.patch("v1", "Node", "node-2", None, {"spec": {"unschedulable": None}})
    await tainted(cluster, "node-2", set())

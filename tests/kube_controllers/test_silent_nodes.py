"""A node that falls silent is unknown, its pods are not ready, and they leave when their patience ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from regional.kube.client import ApiError
from regional.kube.objects import Obj, condition_of, is_deleting, is_true, spec_of, status_of
from tests.kube_controllers.harness import Cluster, CountedTime, Kubelet, eventually
from tests.kube_controllers.test_taints_send_pods_away import IMPATIENT, placed, report, tainted

SILENT = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


class Heartbeats:
    """Renews the Leases of `nodes`, and contradicts whoever calls one of them lost, as a node does.

    Time goes on by a tenth of a second when all of them are renewed.
    """

    def __init__(self, cluster: Cluster, *nodes: str) -> None:
        self._cluster, self.nodes, self._count = cluster, set(nodes), 0
        self.time = CountedTime()

    async def run(self) -> None:
        while True:
            self._count += 1
            for name in sorted(self.nodes):
                with contextlib.suppress(ApiError):
                    await self._beat(name)
            await asyncio.sleep(0.1)
            self.time.seconds += 0.1

    async def _beat(self, name: str) -> None:
        client = self._cluster.client
        minutes, seconds = divmod(self._count, 60)
        renewed = f"2026-01-01T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.000000Z"
        lease: Obj = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "renewTime": renewed},
        }
        await client.apply(lease, field_manager="heartbeats", force=True)
        if not is_true(await client.get("v1", "Node", name), "Ready"):
            await report(self._cluster, name, "True")


@pytest.fixture
async def heartbeats(quiet: Cluster) -> AsyncIterator[Heartbeats]:
    made = Heartbeats(quiet, "node-1", "node-2")
    task = asyncio.create_task(made.run())
    await quiet.control(clock=made.time, node_grace_seconds=4.0)
    await quiet.namespace("t")
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_of_a_silent_node_are_not_ready_and_leave_in_time(quiet: Cluster, heartbeats: Heartbeats) -> None:
    second = Kubelet(quiet.api.client("kubelet"), node="node-2")
    await second.start()
    await placed(quiet, "impatient", tolerations=IMPATIENT)
    await placed(quiet, "patient")

    async def up() -> bool:
        return all(is_true(each, "Ready") for each in await quiet.pods("t"))

    await eventually(up, seconds=60)
    await second.stop()
    heartbeats.nodes.discard("node-2")
    await tainted(quiet, "node-2", SILENT)
    node = await quiet.client.get("v1", "Node", "node-2")
    ready = condition_of(node, "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert ready["message"] == "Kubelet stopped posting node status."

    async def left() -> bool:
        return is_deleting(await quiet.client.get("v1", "Pod", "impatient", "t"))

    await eventually(left, seconds=60)
    patient = await quiet.client.get("v1", "Pod", "patient", "t")
    assert not is_deleting(patient)
    assert (condition_of(patient, "Ready") or {})["status"] == "False"
    assert status_of(patient)["phase"] == "Running"

    async def told() -> bool:
        events = await quiet.client.list("v1", "Event", "t", fields="involvedObject.name=patient")
        return any(event["reason"] == "NodeNotReady" and event["type"] == "Warning" for event in events)

    await eventually(told, seconds=60)
    heartbeats.nodes.add("node-2")
    await tainted(quiet, "node-2", set())
    assert spec_of(await quiet.client.get("v1", "Node", "node-2")).get("taints") is None

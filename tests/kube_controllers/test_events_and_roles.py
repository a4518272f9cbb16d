"""Events are counted, not repeated, and go after their time; aggregated roles follow their parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from regional.core.clock import SystemClock, rfc3339
from regional.kube.controllers.context import Context, Informers
from regional.kube.controllers.expiry import EventExpiry
from regional.kube.controllers.settings import ControllerSettings
from regional.kube.events import EventRecorder
from regional.kube.objects import Obj
from tests.kube_controllers.harness import Cluster, deployment, eventually


async def test_a_rollout_is_told(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(deployment("web", "t", replicas=2))

    async def told() -> bool:
        reasons = {event["reason"] for event in await cluster.client.list("v1", "Event", "t")}
        return {"ScalingReplicaSet", "SuccessfulCreate", "Scheduled"} <= reasons

    await eventually(told)


async def test_the_same_again_is_a_count(quiet: Cluster) -> None:
    await quiet.namespace("t")
    about = await quiet.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "t"}}
    )
    import asyncio

    recorder = EventRecorder(quiet.client, SystemClock())
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.warning("test", about, "Broken", "it is broken")

    async def counted(number: int) -> bool:
        found = await quiet.client.list("v1", "Event", "t", fields="involvedObject.name=c")
        return len(found) == 1 and found[0]["count"] == number

    await eventually(lambda: counted(3))
    recorder.warning("test", about, "Broken", "it is broken")
    await eventually(lambda: counted(4))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_old_events_go(quiet: Cluster) -> None:
    await quiet.namespace("t")
    for name, age in (("old", 2), ("new", 0)):
        moment = rfc3339(datetime.now(UTC) - timedelta(hours=age))
        event: Obj = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "t"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "t"},
            "reason": "Test",
            "type": "Normal",
            "firstTimestamp": moment,
            "lastTimestamp": moment,
        }
        await quiet.client.create(event)
    clock = SystemClock()
    informers = Informers(quiet.client, clock)
    context = Context(quiet.client, ControllerSettings(), informers, EventRecorder(quiet.client, clock), clock)
    assert await EventExpiry(context).sweep() == 1
    assert [e["metadata"]["name"] for e in await quiet.client.list("v1", "Event", "t")] == ["new"]


async def test_an_aggregated_role_is_the_sum_of_its_parts(cluster: Cluster, tmp_path: Path) -> None:
    def role(name: str, resource: str) -> Obj:
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"join": "sum"}},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
        }

    total: Obj = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"join": "sum"}}]},
        "rules": [],
    }
    await cluster.client.create(total)
    await cluster.client.create(role("part-a", "pods"))
    await cluster.client.create(role("part-b", "secrets"))

    async def sums(*resources: str) -> bool:
        found = await cluster.client.get("rbac.authorization.k8s.io/v1", "ClusterRole", "sum")
        return [rule["resources"][0] for rule in found.get("rules") or []] == list(resources)

    await eventually(lambda: sums("pods", "secrets"))
    await cluster.client.delete("rbac.authorization.k8s.io/v1", "ClusterRole", "part-a")
    await eventually(lambda: sums("secrets"))

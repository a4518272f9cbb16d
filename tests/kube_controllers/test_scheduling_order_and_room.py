"""Who matters most is placed first, room is given once, and pods of a kind keep apart where they ask for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from regional.kube.client import Answer, Client, Stream
from regional.kube.client.local import LocalTransport
from regional.kube.client.transport import Query, Transport
from regional.kube.objects import Obj, condition_of
from tests.kube_controllers.harness import Cluster, Kubelet, eventually, report_node
from tests.kube_controllers.test_nodes_and_scheduling import home, pod


class LateNews:
    """Watches tell everything a little late; requests are answered at once."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        return await self._inner.request(method, path, query, headers, body)

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream:
        return _LateStream(await self._inner.stream(method, path, query, headers))

    async def close(self) -> None:
        await self._inner.close()


class _LateStream:
    def __init__(self, inner: Stream) -> None:
        self.status, self.headers, self._inner = inner.status, inner.headers, inner

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            await asyncio.sleep(0.2)
            yield chunk

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Cluster]:
    """No node yet, and controllers that hear late what happened."""
    made = Cluster(tmp_path)
    await made.start(kubelet=False)
    await made.control(Client(LateNews(LocalTransport(made.api.handle))))
    await made.namespace("t")
    yield made
    await made.stop()


async def add_node(cluster: Cluster, name: str = "node-1", pods: str = "110", **labels: str) -> None:
    node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    status = Kubelet.ready_status()
    status["allocatable"]["pods"] = pods
    await cluster.client.create(node)
    await report_node(cluster.client, name, **status)


async def says(cluster: Cluster, name: str, message: str) -> None:
    async def check() -> bool:
        condition = condition_of(await cluster.client.get("v1", "Pod", name, "t"), "PodScheduled") or {}
        return condition.get("message") == message

    await eventually(check, f"{name}: {message}", seconds=60)


async def placed(cluster: Cluster, *names: str) -> list[str]:
    async def check() -> list[str] | None:
        homes = [await home(cluster, name) for name in names]
        return homes if all(homes) else None

    found: list[str] = await eventually(check, f"{names} are placed", seconds=60)
    return found


async def test_the_one_that_matters_most_gets_the_only_place(empty: Cluster) -> None:
    important: Obj = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
    }
    await empty.client.create(important)
    for name in ("early", "late"):
        await empty.client.create(pod(name))
        await says(empty, name, "no nodes available to schedule pods")
    await empty.client.create(pod("matters", priorityClassName="important"))
    await says(empty, "matters", "no nodes available to schedule pods")
    await add_node(empty, pods="1")
    assert await placed(empty, "matters") == ["node-1"]
    for name in ("early", "late"):
        await says(empty, name, "0/1 nodes are available: 1 Too many pods.")
    await empty.client.delete("v1", "Pod", "matters", "t", grace=0)
    assert await placed(empty, "early") == ["node-1"]
    assert await home(empty, "late") == ""


async def test_a_host_port_is_given_once(empty: Cluster) -> None:
    ports = [{"containerPort": 8080, "hostPort": 8080}]
    for name in ("a", "b"):
        await empty.client.create(pod(name, containers=[{"name": "main", "image": "app:1", "ports": ports}]))
        await says(empty, name, "no nodes available to schedule pods")
    await add_node(empty)

    async def one_has_it() -> list[str] | None:
        without = [name for name in ("a", "b") if not await home(empty, name)]
        return without if len(without) == 1 else None

    (waits,) = await eventually(one_has_it, seconds=60)
    await says(
        empty,
        waits,
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
    )
    await add_node(empty, "node-2")
    assert await placed(empty, waits) == ["node-2"]


@pytest.mark.parametrize("when", ["ScheduleAnyway", "DoNotSchedule"])
async def test_pods_of_a_kind_are_spread_over_zones(empty: Cluster, when: str) -> None:
    """Zone b has one node for zone a's two: by the number of pods alone it would get a third of them."""
    for name, zone in (("a-1", "a"), ("a-2", "a"), ("b-1", "b")):
        await add_node(empty, name, zone=zone)
    await empty.client.create(pod("scout", nodeSelector={"zone": "b"}))
    await placed(empty, "scout")  # the scheduler knows all nodes
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "it"}},
    }
    names = [f"p{number}" for number in range(6)]
    for name in names:
        made = pod(name, topologySpreadConstraints=[constraint])
        made["metadata"]["labels"] = {"app": "it"}
        await empty.client.create(made)
    homes = Counter(each.partition("-")[0] for each in await placed(empty, *names))
    assert homes == {"a": 3, "b": 3}

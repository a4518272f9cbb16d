"""The simulated nodes of one pool in its guest: as many as wanted, of the newest template, never two for one place."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from regional.hypershift.guest import machines
from regional.hypershift.guest.machines import Template
from regional.hypershift.names import CURRENT_CONFIG_VERSION, NODE_POOL, RELEASE_VERSION, SIMULATED
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, annotations_of, copied, is_true, labels_of, name_of, status_of

_AT_ONCE = 16


class Pace(msgspec.Struct, frozen=True):
    """How many nodes may be too many or too few while all of a pool's nodes are replaced."""

    surge: int
    unavailable: int

    @classmethod
    def of(cls, management: Obj, replicas: int) -> Pace:
        rolling = (management.get("replace") or {}).get("rollingUpdate") or {}
        surge = _share(rolling.get("maxSurge", 1), replicas, up=True)
        return cls(surge, _share(rolling.get("maxUnavailable", 0), replicas, up=False))


def _share(value: int | str, replicas: int, *, up: bool) -> int:
    text = str(value)
    if not text.endswith("%"):
        return max(0, int(text))
    exact = replicas * int(text[:-1]) / 100
    return math.ceil(exact) if up else math.floor(exact)


class PoolNodes(msgspec.Struct, frozen=True):
    """What a pool has in its guest."""

    nodes: list[Obj]

    @property
    def ready(self) -> list[Obj]:
        return [node for node in self.nodes if is_true(node, "Ready")]

    def outdated(self, digest: str) -> list[Obj]:
        return [node for node in self.nodes if annotations_of(node).get(CURRENT_CONFIG_VERSION) != digest]


async def nodes_of(client: Client, pool: str) -> list[Obj]:
    return await client.list("v1", "Node", labels={NODE_POOL: pool, SIMULATED: "true"})


async def remove_all(client: Client, pool: str) -> int:
    """How many there were."""
    nodes = await nodes_of(client, pool)
    await _remove(client, nodes)
    return len(nodes)


async def bring(client: Client, template: Template, replicas: int, pace: Pace, now: datetime) -> PoolNodes:
    """Scale and replace until the pool has exactly the wanted nodes. Raises ApiError; repeating is harmless."""
    everyone = await client.list("v1", "Node")
    mine = [node for node in everyone if _is_mine(node, template.pool)]
    wanted = [machines.node_name(template, number) for number in range(replicas)]
    present = {name_of(node): node for node in mine}
    missing = [name for name in wanted if name not in present]
    surplus = [node for node in mine if name_of(node) not in wanted]
    taken = {str(a["address"]) for node in everyone for a in status_of(node).get("addresses") or []}
    while missing or surplus:
        # Simulated nodes are ready at once, so each round may use the whole of both allowances.
        room = max(0, replicas + pace.surge - len(present))
        born, missing = missing[:room], missing[room:]
        for node in await _add(client, template, born, taken, now):
            present[name_of(node)] = node
        spare = max(0, len(present) - (replicas - pace.unavailable))
        spare = max(spare, 1) if not born else spare  # both allowances zero: one must give way
        gone, surplus = surplus[:spare], surplus[spare:]
        await _remove(client, gone)
        for node in gone:
            present.pop(name_of(node), None)
    return PoolNodes(await _tend(client, template, list(present.values()), taken, now))


def _is_mine(node: Obj, pool: str) -> bool:
    return labels_of(node).get(NODE_POOL) == pool and labels_of(node).get(SIMULATED) == "true"


async def _add(client: Client, template: Template, names: Sequence[str], taken: set[str], now: datetime) -> list[Obj]:
    made: list[Obj] = []
    for start in range(0, len(names), _AT_ONCE):
        batch: list[Obj] = []
        for name in names[start : start + _AT_ONCE]:
            place = machines.address(name, template.machine_network, taken)
            taken.add(place)
            batch.append(machines.node(template, name, place, now))
        made += await asyncio.gather(*(_create(client, node) for node in batch))
    return made


async def _create(client: Client, node: Obj) -> Obj:
    """A node is there once its status is: the server takes no status from a create."""
    try:
        created = await client.create(node)
    except ApiError as error:
        if not error.exists:
            raise
        created = await client.get("v1", "Node", name_of(node))
    if status_of(created).get("addresses"):
        return created
    return await client.update_status({**created, "status": node["status"]})


async def _remove(client: Client, nodes: Sequence[Obj]) -> None:
    for start in range(0, len(nodes), _AT_ONCE):
        batch = nodes[start : start + _AT_ONCE]
        await asyncio.gather(*(client.delete("v1", "Node", name_of(node), missing_ok=True) for node in batch))


async def _tend(client: Client, template: Template, nodes: list[Obj], taken: set[str], now: datetime) -> list[Obj]:
    """Nobody but us keeps a simulated node ready: one that is not, or never got its status, is made so."""
    tended = []
    for node in sorted(nodes, key=name_of):
        status = copied(status_of(node))
        if not status.get("addresses"):
            place = machines.address(name_of(node), template.machine_network, taken)
            taken.add(place)
            status = machines.status(template, name_of(node), place, now)
        elif not is_true(node, "Ready"):
            status["conditions"] = machines.conditions(now)
        if status != status_of(node):
            node = await client.update_status({**node, "status": status})
        tended.append(node)
    return tended


def versions_of(nodes: Sequence[Obj]) -> list[Obj]:
    """`status.nodesInfo.nodeVersions`: nodes by OpenShift and kubelet version."""
    counted: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        kubelet = (status_of(node).get("nodeInfo") or {}).get("kubeletVersion", "")
        release = annotations_of(node).get(RELEASE_VERSION, "")
        if kubelet and release:
            tally = counted.setdefault((release, kubelet), [0, 0])
            tally[0 if is_true(node, "Ready") else 1] += 1
    return [
        {"ocpVersion": release, "kubeletVersion": kubelet, "readyNodeCount": ready, "unreadyNodeCount": unready}
        for (release, kubelet), (ready, unready) in sorted(counted.items())
    ]

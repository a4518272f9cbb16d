"""Nodes that fell silent, and pods whose node is gone for good.

A node says it lives by renewing its Lease. Silence is measured from when *we* last saw a renewal, not from the
timestamp in it, so that neither a wrong clock nor our own restart condemns a node. Nothing is evicted: with one node
to a cluster there is nowhere to go, and the node adopts its pods when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.core.clock import rfc3339
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import index_by_node
from regional.kube.objects import Key, Obj, condition_of, copied, key_of, name_of, namespace_of, set_condition, spec_of

LEASES = "kube-node-lease"
ORPHAN_SECONDS = 20.0
CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeController(Controller):
    name = "node"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.nodes = context.informers.of("v1", "Node")
        self.leases = context.informers.of("coordination.k8s.io/v1", "Lease")
        self.pods = context.informers.of("v1", "Pod")
        index_by_node(self.pods)
        self._heard: dict[str, tuple[str, float]] = {}
        self._missing: dict[str, float] = {}
        self.nodes.add_listener(self._node_changed)
        self.leases.add_handler(self._lease_changed)

    def keys(self) -> Iterable[Key]:
        homes = {("", name) for pod in self.pods if (name := spec_of(pod).get("nodeName"))}
        return homes | set(self.nodes.objects)

    def _node_changed(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind == "DELETED" or old is None or condition_of(node, "Ready") != condition_of(old, "Ready"):
            self.queue.add(key_of(node))

    def _lease_changed(self, kind: str, lease: Obj) -> None:
        """Only notes the time: a renewal needs no look, and the pending one will find it."""
        if kind != "DELETED" and namespace_of(lease) == LEASES:
            self._hear(name_of(lease), str(spec_of(lease).get("renewTime") or ""))

    def _hear(self, node: str, renewed: str) -> None:
        known = self._heard.get(node)
        if known is None or known[0] != renewed:
            self._heard[node] = (renewed, self.context.clock.monotonic())

    async def prepare(self) -> None:
        for key in self.keys():
            self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        name = key[1]
        node = self.nodes.get("", name)
        if node is None:
            return await self._collect_pods(name)
        self._missing.pop(name, None)
        if name not in self._heard:
            self._hear(name, "")
        silent = self.context.clock.monotonic() - self._heard[name][1]
        grace = self.context.settings.node_grace_seconds
        if silent < grace:
            return grace - silent + 0.1
        await self._mark_unknown(node, silent)
        return grace

    async def _mark_unknown(self, node: Obj, silent: float) -> None:
        ready = condition_of(node, "Ready")
        if ready is not None and ready.get("status") == "Unknown":
            return
        changed = copied(node)
        now = self.context.clock.now()
        for kind in CONDITIONS:
            if kind == "Ready" or condition_of(changed, kind) is not None:
                set_condition(changed, kind, "Unknown", "NodeStatusUnknown", "The node stopped reporting.", now=now)
                condition = condition_of(changed, kind)
                if condition is not None:
                    condition.setdefault("lastHeartbeatTime", rfc3339(now))
        self.nodes.observe(await self.client.update_status(changed))
        message = f"Node {name_of(node)} status is now: NodeNotReady (no renewal for {silent:.0f} s)"
        self.context.recorder.warning("node-controller", node, "NodeNotReady", message)

    async def _collect_pods(self, name: str) -> float | None:
        """Nobody will ever report the end of these pods."""
        self._heard.pop(name, None)
        tenants = self.pods.indexed("node", name)
        if not tenants or not name:
            self._missing.pop(name, None)
            return None
        since = self._missing.setdefault(name, self.context.clock.monotonic())
        left = since + ORPHAN_SECONDS - self.context.clock.monotonic()
        if left > 0:
            return left
        if await self.client.get_or_none("v1", "Node", name) is not None:
            return ORPHAN_SECONDS
        for pod in tenants:
            await self.context.delete_child(self.pods, pod, grace=0)
        self._missing.pop(name, None)
        return None

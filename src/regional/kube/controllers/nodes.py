"""Nodes that fell silent, and pods whose node is gone for good.

A node says it lives by renewing its Lease. Silence is measured from when *we* last saw a renewal, not from the
timestamp in it, so that neither a wrong clock nor our own restart condemns a node. Its pods are no longer ready. They
stay for as long as they tolerate its taints (five minutes unless they say otherwise), and for ever when no node is
well: with one node to a cluster there is nowhere to go, and the node adopts its pods when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.core.clock import rfc3339
from regional.kube.client import ApiError
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.node_taints import seconds_to_stay, wanted_taints
from regional.kube.controllers.pods import index_by_node, is_finished, is_ready
from regional.kube.objects import (
    Key,
    Obj,
    condition_of,
    copied,
    is_deleting,
    is_true,
    key_of,
    name_of,
    namespace_of,
    set_condition,
    spec_of,
    status_of,
    version_of,
)

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
        self.pods.add_listener(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        homes = {("", name) for pod in self.pods if (name := spec_of(pod).get("nodeName"))}
        return homes | set(self.nodes.objects)

    def _node_changed(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind == "DELETED" or old is None or _health(node) != _health(old):
            # Whether one may send its pods away depends on how the others are.
            for key in {key_of(node), *self.nodes.objects}:
                self.queue.add(key)

    def _pod_changed(self, kind: str, pod: Obj, old: Obj | None) -> None:
        home = str(spec_of(pod).get("nodeName") or "")
        if kind == "DELETED" or not home or (old is not None and spec_of(old).get("nodeName")):
            return
        node = self.nodes.get("", home)
        if node is not None and spec_of(node).get("taints"):
            self.queue.add(("", home))

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
            again = grace - silent + 0.1
        else:
            await self._mark_unknown(node)
            again = grace
        left = await self._settle_taints(name)
        return again if left is None else min(again, left)

    async def _settle_taints(self, name: str) -> float | None:
        """Taints by the node's condition, and the pods that do not bear them away; seconds until the next must go."""
        node = self.nodes.get("", name)
        if node is None:
            return None
        now = self.context.clock.now()
        some_are_well = any(is_true(each, "Ready") for each in self.nodes)
        wanted = wanted_taints(node, now, sends_away=some_are_well)
        if wanted != (spec_of(node).get("taints") or []):
            patch = {"metadata": {"resourceVersion": version_of(node)}, "spec": {"taints": wanted or None}}
            node = await self.client.patch("v1", "Node", name, None, patch)
            self.nodes.observe(node)
        if not any(taint.get("effect") == "NoExecute" for taint in wanted):
            return None
        waits = []
        for pod in self.pods.indexed("node", name):
            left = None if is_deleting(pod) or is_finished(pod) else seconds_to_stay(pod, node, now)
            if left == 0:
                await self._send_away(pod)
            elif left is not None:
                waits.append(left)
        return min(waits, default=None)

    async def _send_away(self, pod: Obj) -> None:
        message = f"Marking for deletion Pod {namespace_of(pod)}/{name_of(pod)}"
        self.context.recorder.normal("taint-eviction-controller", pod, "TaintManagerEviction", message)
        changed = copied(pod)
        why = "Taint manager: deleting due to NoExecute taint"
        if set_condition(
            changed, "DisruptionTarget", True, "DeletionByTaintManager", why, now=self.context.clock.now()
        ):
            pod = await self.client.update_status(changed)
            self.pods.observe(pod)
        await self.context.delete_child(self.pods, pod)

    async def _mark_unknown(self, node: Obj) -> None:
        ready = condition_of(node, "Ready")
        if ready is not None and ready.get("status") == "Unknown":
            return
        # The pods before the node: should we be interrupted, the node still shows that there is something to do. Once
        # only: a node that lives and merely cannot renew its Lease says otherwise, and has the last word.
        await self._mark_pods_not_ready(name_of(node))
        changed = copied(node)
        now = self.context.clock.now()
        for kind in CONDITIONS:
            reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            if condition_of(changed, kind) is None:
                reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            set_condition(changed, kind, "Unknown", reason, message, now=now)
            condition = condition_of(changed, kind)
            if condition is not None:
                condition.setdefault("lastHeartbeatTime", rfc3339(now))
        self.nodes.observe(await self.client.update_status(changed))
        message = f"Node {name_of(node)} status is now: NodeNotReady"
        self.context.recorder.normal("node-controller", node, "NodeNotReady", message)

    async def _mark_pods_not_ready(self, name: str) -> None:
        """Services shall not send anybody there. The node, should it return, knows better and says so."""
        now = rfc3339(self.context.clock.now())
        for pod in self.pods.indexed("node", name):
            if not is_ready(pod):
                continue
            changed = copied(pod)
            condition = condition_of(changed, "Ready") or {}
            condition |= {"status": "False", "lastTransitionTime": now}
            self.context.recorder.warning("node-controller", pod, "NodeNotReady", "Node is not ready")
            try:
                self.pods.observe(await self.client.update_status(changed))
            except ApiError as error:
                if not error.not_found:
                    raise

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


def _health(node: Obj) -> tuple[object, ...]:
    """What taints follow from; heartbeats change everything else."""
    conditions = {each.get("type"): each.get("status") for each in status_of(node).get("conditions") or []}
    return (conditions, spec_of(node).get("taints"), spec_of(node).get("unschedulable"))

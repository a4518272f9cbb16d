"""The scheduler: gives every unplaced pod a node, or says why it cannot."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers import placement
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import index_by_node, is_finished
from regional.kube.objects import (
    Key,
    Obj,
    condition_of,
    copied,
    is_deleting,
    is_true,
    key_of,
    metadata_of,
    name_of,
    namespace_of,
    set_condition,
    spec_of,
    uid_of,
)

PASS: Key = ("", "all that are due")


class Scheduler(Controller):
    """One pass at a time over all pods that are due, so that the order is theirs and not that of the events."""

    name = "scheduler"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = context.informers.of("v1", "Pod")
        self.nodes = context.informers.of("v1", "Node")
        index_by_node(self.pods)
        self._due: set[Key] = set()
        self._changed = False
        self._assumed: dict[str, tuple[Obj, str]] = {}
        """uid -> pod and node: bound, but the watch has not told yet. They take their room already."""
        self.pods.add_listener(self._pod_changed)
        self.nodes.add_listener(self._node_changed)

    def keys(self) -> Iterable[Key]:
        self._look_at(key_of(pod) for pod in self.pods.indexed("node", ""))
        return [PASS]

    def _is_mine(self, pod: Obj) -> bool:
        spec = spec_of(pod)
        mine = spec.get("schedulerName", self.context.settings.scheduler_name) == self.context.settings.scheduler_name
        return mine and not spec.get("nodeName") and not is_deleting(pod) and not is_finished(pod)

    def _look_at(self, keys: Iterable[Key]) -> None:
        self._due.update(keys)
        self._changed = True
        self.queue.add(PASS)

    def _pod_changed(self, kind: str, pod: Obj, old: Obj | None) -> None:
        if kind == "DELETED" or spec_of(pod).get("nodeName"):
            self._assumed.pop(uid_of(pod), None)
        if kind == "DELETED" or (is_finished(pod) and not (old is not None and is_finished(old))):
            self.keys()  # room may have appeared for one that waits
        elif self._is_mine(pod):
            self._look_at([key_of(pod)])

    def _node_changed(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind != "DELETED" and (old is None or placement.facts(node) != placement.facts(old)):
            self.keys()

    async def reconcile(self, key: Key) -> float | None:
        failed: dict[Key, Exception] = {}
        while self._due:
            self._changed = False
            for pod in self._in_order():
                self._due.discard(key_of(pod))
                try:
                    await self._place(pod)
                except Exception as error:
                    failed[key_of(pod)] = error  # one that the API refuses does not hold up the others
                await asyncio.sleep(0)
                if self._changed:
                    break  # one that matters more may have come
        self._due.update(failed)
        for reason in failed.values():
            raise reason
        return None

    def _in_order(self) -> list[Obj]:
        """Those that matter most first, then those that wait longest (to the second), then by name."""
        found = [pod for key in self._due if (pod := self.pods.get(*key)) is not None and self._is_mine(pod)]
        self._due = {key_of(pod) for pod in found}
        found.sort(key=_rank)
        return found

    async def _place(self, pod: Obj) -> None:
        if spec_of(pod).get("schedulingGates") or uid_of(pod) in self._assumed:
            return
        reasons: Counter[str] = Counter()
        fit: list[Obj] = []
        for node in self.nodes:
            against = self._why_not(pod, node, self._tenants(node))
            if not against:
                fit.append(node)
            reasons.update(against)
        if fit:
            crowds = placement.crowds(pod, fit, self.nodes, self._tenants)
            best = min(fit, key=lambda node: (crowds[name_of(node)], len(self._tenants(node)), name_of(node)))
            await self._bind(pod, name_of(best))
        else:
            await self._explain(pod, reasons)

    def _tenants(self, node: Obj) -> list[Obj]:
        name = name_of(node)
        bound = [pod for pod in self.pods.indexed("node", name) if not is_finished(pod)]
        return bound + [pod for pod, home in self._assumed.values() if home == name]

    @staticmethod
    def _why_not(pod: Obj, node: Obj, tenants: list[Obj]) -> list[str]:
        if is_deleting(node) or not is_true(node, "Ready"):
            return ["node(s) were not ready"]
        if (refused := placement.refusal(pod, node)) is not None:
            return [refused]
        wanted = placement.occupied_ports(pod)
        if wanted and any(wanted & placement.occupied_ports(tenant) for tenant in tenants):
            return ["node(s) didn't have free ports for the requested pod ports"]
        return placement.shortages(pod, node, tenants)

    async def _bind(self, pod: Obj, node: str) -> None:
        binding: Obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._assumed[uid_of(pod)] = (pod, node)
        try:
            await self.client.create_in("v1", "Pod", name_of(pod), namespace_of(pod), "binding", binding)
        except ApiError as error:
            self._assumed.pop(uid_of(pod), None)
            # Bound already (409) or gone (404): the watch is about to tell.
            if error.status not in (404, 409):
                raise
            return
        message = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node}"
        self.context.recorder.normal("default-scheduler", pod, "Scheduled", message)

    async def _explain(self, pod: Obj, reasons: Counter[str]) -> None:
        if not len(self.nodes):
            message = "no nodes available to schedule pods"
        else:
            parts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            message = f"0/{len(self.nodes)} nodes are available: {parts}."
        known = condition_of(pod, "PodScheduled")
        changed = copied(pod)
        if set_condition(changed, "PodScheduled", False, "Unschedulable", message, now=self.context.clock.now()):
            self.pods.observe(await self.client.update_status(changed))
        if known is None or known.get("message") != message:
            self.context.recorder.warning("default-scheduler", pod, "FailedScheduling", message)


def _rank(pod: Obj) -> tuple[int, str, Key]:
    return (-int(spec_of(pod).get("priority") or 0), metadata_of(pod)["creationTimestamp"], key_of(pod))

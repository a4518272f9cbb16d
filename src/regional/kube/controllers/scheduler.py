"""The scheduler: gives every unplaced pod a node, or says why it cannot."""

from __future__ import annotations

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
    name_of,
    namespace_of,
    set_condition,
    spec_of,
    uid_of,
)


class Scheduler(Controller):
    name = "scheduler"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = context.informers.of("v1", "Pod")
        self.nodes = context.informers.of("v1", "Node")
        index_by_node(self.pods)
        self.pods.add_listener(self._pod_changed)
        self.nodes.add_listener(self._node_changed)

    def keys(self) -> Iterable[Key]:
        return [key_of(pod) for pod in self.pods.indexed("node", "") if self._is_mine(pod)]

    def _is_mine(self, pod: Obj) -> bool:
        spec = spec_of(pod)
        mine = spec.get("schedulerName", self.context.settings.scheduler_name) == self.context.settings.scheduler_name
        return mine and not spec.get("nodeName") and not is_deleting(pod) and not is_finished(pod)

    def _pod_changed(self, kind: str, pod: Obj, _old: Obj | None) -> None:
        if kind == "DELETED":
            # Room may have appeared for one that waits.
            for key in self.keys():
                self.queue.add(key)
        elif self._is_mine(pod):
            self.queue.add(key_of(pod))

    def _node_changed(self, kind: str, node: Obj, old: Obj | None) -> None:
        if kind != "DELETED" and (old is None or placement.facts(node) != placement.facts(old)):
            for key in self.keys():
                self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        pod = self.pods.get(*key)
        if pod is None or not self._is_mine(pod):
            return None
        if spec_of(pod).get("schedulingGates"):
            return None
        reasons: Counter[str] = Counter()
        fit: list[tuple[int, str]] = []
        for node in self.nodes:
            tenants = [p for p in self.pods.indexed("node", name_of(node)) if not is_finished(p)]
            reason = self._why_not(pod, node, tenants)
            if reason is None:
                fit.append((len(tenants), name_of(node)))
            else:
                reasons[reason] += 1
        if fit:
            await self._bind(pod, min(fit)[1])
        else:
            await self._explain(pod, reasons)
        return None

    @staticmethod
    def _why_not(pod: Obj, node: Obj, tenants: list[Obj]) -> str | None:
        if is_deleting(node) or not is_true(node, "Ready"):
            return "node(s) were not ready"
        return placement.refusal(pod, node) or placement.shortage(pod, node, tenants)

    async def _bind(self, pod: Obj, node: str) -> None:
        binding: Obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self.client.create_in("v1", "Pod", name_of(pod), namespace_of(pod), "binding", binding)
        except ApiError as error:
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

"""DaemonSet: one pod on every node that will have it."""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.controllers import placement, rollout
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import PodMaker, available_in, given_up_first, is_active, is_finished, is_ready
from regional.kube.controllers.revisions import HASH_LABEL, Revisions
from regional.kube.objects import (
    Key,
    Obj,
    copied,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_of,
    spec_of,
    status_of,
    uid_of,
)

COMPONENT = "daemonset-controller"
# A daemon is what makes a node work, so it goes to nodes that are not yet, or no longer, fit for others.
TOLERATED = [
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists"}
    for condition in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]


class DaemonSetController(Controller):
    name = "daemonset"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.sets = context.informers.of("apps/v1", "DaemonSet")
        self.pods = context.informers.of("v1", "Pod")
        self.nodes = context.informers.of("v1", "Node")
        self.revisions = Revisions(context)
        self.maker = PodMaker(context, self.pods, COMPONENT)
        self.sets.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.pods.add_handler(self._pod_changed)
        self.nodes.add_listener(self._node_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.sets.objects)

    def _pod_changed(self, _kind: str, pod: Obj) -> None:
        owner = owner_of(pod)
        if owner is not None and owner.get("kind") == "DaemonSet":
            self.queue.add((namespace_of(pod), owner["name"]))

    def _node_changed(self, kind: str, node: Obj, old: Obj | None) -> None:
        if old is None or kind == "DELETED" or placement.facts(node) != placement.facts(old):
            for key in self.keys():
                self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        daemonset = self.sets.get(*key)
        if daemonset is None:
            return None
        await claim(self.context, daemonset, self.pods)
        if is_deleting(daemonset):
            return None
        update = await self.revisions.current(daemonset)
        wanted = {name_of(node) for node in self.nodes if self._belongs(daemonset, node)}
        by_node: dict[str, list[Obj]] = {}
        for pod in self.maker.owned(daemonset):
            by_node.setdefault(spec_of(pod).get("nodeName", ""), []).append(pod)
        await self._place(daemonset, wanted, by_node, update)
        await self._replace_outdated(daemonset, wanted, by_node, update)
        return await self._report(key, wanted, update)

    @staticmethod
    def _belongs(daemonset: Obj, node: Obj) -> bool:
        template = copied(spec_of(daemonset).get("template") or {})
        spec = template.setdefault("spec", {})
        spec["tolerations"] = (spec.get("tolerations") or []) + TOLERATED
        return not is_deleting(node) and placement.refusal(template, node) is None

    async def _place(self, daemonset: Obj, wanted: set[str], by_node: dict[str, list[Obj]], update: Obj) -> None:
        template = spec_of(daemonset).get("template") or {}
        for node, pods in by_node.items():
            active = [pod for pod in pods if is_active(pod)]
            surplus = given_up_first(active)[: max(0, len(active) - 1)] if node in wanted else active
            finished = [pod for pod in pods if is_finished(pod) and not is_deleting(pod)]
            for pod in surplus + finished:
                await self.context.delete_child(self.pods, pod)
        for node in sorted(wanted - {name for name, pods in by_node.items() if any(map(_present, pods))}):

            def adjust(pod: Obj, node: str = node) -> None:
                pod["metadata"]["labels"][HASH_LABEL] = labels_of(update)[HASH_LABEL]
                pod["spec"]["nodeName"] = node
                pod["spec"]["tolerations"] = (pod["spec"].get("tolerations") or []) + TOLERATED

            await self.maker.make(daemonset, template, adjust=adjust)

    async def _replace_outdated(
        self, daemonset: Obj, wanted: set[str], by_node: dict[str, list[Obj]], update: Obj
    ) -> None:
        strategy = spec_of(daemonset).get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        budget = max(1, rollout.resolve(rolling.get("maxUnavailable", 1), len(wanted), up=True))
        live = [pod for node in wanted for pod in by_node.get(node, []) if is_active(pod)]
        budget -= len(wanted) - sum(1 for pod in live if is_ready(pod))
        outdated = [pod for pod in live if labels_of(pod).get(HASH_LABEL) != labels_of(update)[HASH_LABEL]]
        for pod in outdated:
            if not is_ready(pod):
                await self.context.delete_child(self.pods, pod)
            elif budget > 0:
                budget -= 1
                await self.context.delete_child(self.pods, pod)

    async def _report(self, key: Key, wanted: set[str], update: Obj) -> float | None:
        daemonset = self.sets.get(*key)
        if daemonset is None:
            return None
        now, least = self.context.clock.now(), int(spec_of(daemonset).get("minReadySeconds") or 0)
        live = [pod for pod in self.pods.indexed("owner", uid_of(daemonset)) if is_active(pod)]
        placed = [pod for pod in live if spec_of(pod).get("nodeName") in wanted]
        waits = [available_in(pod, least, now) for pod in placed]
        available = sum(1 for wait in waits if wait == 0)
        changed = copied(daemonset)
        status = changed.setdefault("status", {})
        status |= {
            "observedGeneration": generation_of(daemonset),
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(placed),
            "numberMisscheduled": len(live) - len(placed),
            "numberReady": sum(1 for pod in placed if is_ready(pod)),
            "numberAvailable": available,
            "numberUnavailable": len(wanted) - available,
            "updatedNumberScheduled": sum(
                1 for pod in placed if labels_of(pod).get(HASH_LABEL) == labels_of(update)[HASH_LABEL]
            ),
        }
        for name in ("numberAvailable", "numberUnavailable", "updatedNumberScheduled"):
            if not status[name]:
                del status[name]
        if status != status_of(daemonset):
            self.sets.observe(await self.client.update_status(changed))
        await self.revisions.trim(daemonset, {name_of(update)})
        return min((wait for wait in waits if wait), default=None)


def _present(pod: Obj) -> bool:
    """A pod that is on its way out still holds its node: two of one daemon must not run side by side."""
    return not is_finished(pod)

"""PodDisruptionBudget: how many pods may be disturbed now without going below what was asked for.

The eviction API spends `disruptionsAllowed` and notes the pod; counting again here settles the account. A pod noted
that is still there after a while was not evicted after all, and counts again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from regional.kube.controllers import rollout
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import is_finished, is_ready
from regional.kube.objects import (
    Key,
    Obj,
    copied,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    matches,
    name_of,
    namespace_of,
    owner_of,
    parse_time,
    set_condition,
    spec_of,
    status_of,
    uid_of,
)

CONFIRM_SECONDS = 120.0
SCALED = (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))


class DisruptionController(Controller):
    name = "disruption"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.budgets = context.informers.of("policy/v1", "PodDisruptionBudget")
        self.pods = context.informers.of("v1", "Pod")
        self.scaled = {kind: context.informers.of(version, kind) for version, kind in SCALED}
        self.deployments = context.informers.of("apps/v1", "Deployment")
        self.budgets.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.pods.add_listener(self._pod_changed)
        for informer in (*self.scaled.values(), self.deployments):
            informer.add_handler(self._owner_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.budgets.objects)

    def _pod_changed(self, _kind: str, pod: Obj, old: Obj | None) -> None:
        for budget in self.budgets.in_namespace(namespace_of(pod)):
            selector = spec_of(budget).get("selector")
            if any(matches(selector, labels_of(version)) for version in (pod, old) if version is not None):
                self.queue.add(key_of(budget))

    def _owner_changed(self, _kind: str, owner: Obj) -> None:
        for budget in self.budgets.in_namespace(namespace_of(owner)):
            self.queue.add(key_of(budget))

    async def reconcile(self, key: Key) -> float | None:
        budget = self.budgets.get(*key)
        if budget is None or is_deleting(budget):
            return None
        selector = spec_of(budget).get("selector")
        pods = [pod for pod in self.pods.in_namespace(key[0]) if matches(selector, labels_of(pod))]
        pods = [pod for pod in pods if not is_finished(pod)]
        expected, desired = self._asked_for(budget, pods)
        now = self.context.clock.now()
        disrupted, again = _still_disrupted(budget, pods, now)
        healthy = sum(1 for pod in pods if is_ready(pod) and not is_deleting(pod) and name_of(pod) not in disrupted)
        changed = copied(budget)
        status = changed.setdefault("status", {})
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status |= {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "observedGeneration": generation_of(budget),
        }
        status.pop("disruptedPods", None)
        if disrupted:
            status["disruptedPods"] = disrupted
        reason = "SufficientPods" if allowed else "InsufficientPods"
        generation = generation_of(budget)
        set_condition(changed, "DisruptionAllowed", bool(allowed), reason, now=now, generation=generation)
        if status != status_of(budget):
            self.budgets.observe(await self.client.update_status(changed))
        return again

    def _asked_for(self, budget: Obj, pods: list[Obj]) -> tuple[int, int]:
        """(pods that there should be, of which so many healthy)."""
        spec = spec_of(budget)
        if spec.get("maxUnavailable") is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - rollout.resolve(spec["maxUnavailable"], expected, up=True))
        least = spec.get("minAvailable")
        if isinstance(least, int) or least is None:
            return len(pods), int(least or 0)
        expected = self._scale(pods)
        return expected, rollout.resolve(least, expected, up=True)

    def _scale(self, pods: list[Obj]) -> int:
        """A share is one of what the owners ask for, not of the pods that happen to be there."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = owner_of(pod)
            informer = self.scaled.get(owner["kind"]) if owner is not None else None
            if owner is None or informer is None:
                continue
            holder = informer.get(namespace_of(pod), owner["name"])
            if holder is None or uid_of(holder) != owner["uid"]:
                continue
            above = owner_of(holder)
            deployment = self.deployments.get(namespace_of(pod), above["name"]) if above is not None else None
            top = deployment if deployment is not None else holder
            wanted[uid_of(top)] = rollout.desired(top)
        return sum(wanted.values())


def _still_disrupted(budget: Obj, pods: list[Obj], now: datetime) -> tuple[dict[str, str], float | None]:
    present = {name_of(pod): pod for pod in pods}
    kept: dict[str, str] = {}
    waits: list[float] = []
    for name, since in (status_of(budget).get("disruptedPods") or {}).items():
        moment = parse_time(since)
        pod = present.get(name)
        if pod is None or is_deleting(pod) or moment is None:
            continue
        left = (moment + timedelta(seconds=CONFIRM_SECONDS) - now).total_seconds()
        if left > 0:
            kept[name] = since
            waits.append(left)
    return kept, min(waits, default=None)

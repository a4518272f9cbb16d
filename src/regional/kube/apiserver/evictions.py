"""Disruption budgets: what an eviction must not violate.

The budget's status is kept by a controller. An eviction takes one from `disruptionsAllowed` in one write, so that many
evictions at once cannot spend the same disruption twice; the controller gives it back when it counts again.
"""

from __future__ import annotations

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver.entries import Entry, Obj
from regional.kube.apiserver.errors import StatusError
from regional.kube.apiserver.store import Decision, Put, Store
from regional.kube.objects import generation_of, is_deleting, is_true, labels_of, matches, name_of, spec_of, status_of

BUDGETS = "poddisruptionbudgets.policy"
MOST_DISRUPTED = 2000


class Budgets:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def spend(self, namespace: str, name: str, *, dry_run: bool = False) -> None:
        """Returns when the pod may be evicted; raises otherwise."""
        entry = self._store.get("pods", namespace, name)
        if entry is None:
            return  # which the deletion will say
        pod = entry.obj()
        if is_deleting(pod) or status_of(pod).get("phase", "Pending") in ("Pending", "Succeeded", "Failed"):
            return
        shelf = self._store.shelf(BUDGETS)
        found = [shelf.entries[key].obj() for key in shelf.keys(namespace)]
        found = [budget for budget in found if matches(spec_of(budget).get("selector"), labels_of(pod))]
        if len(found) > 1:
            words = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise StatusError(500, "InternalError", words)
        if not found:
            return

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise too_many("")
            budget = live.obj()
            self._take(budget, pod)
            return Put(budget)

        act = self._store.preview if dry_run else self._store.write
        await act(BUDGETS, namespace, name_of(found[0]), decide)

    def _take(self, budget: Obj, pod: Obj) -> None:
        name, status = name_of(budget), budget.setdefault("status", {})
        healthy, needed = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
        if not is_true(pod, "Ready"):
            always = spec_of(budget).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if always or (healthy >= needed and needed > 0):
                return
        allowed = int(status.get("disruptionsAllowed") or 0)
        if int(status.get("observedGeneration") or 0) < generation_of(budget):
            raise too_many(f"The disruption budget {name} is still being processed by the server.", 10)
        if allowed <= 0:
            if healthy > needed:  # taken by evictions that no controller has counted yet
                raise too_many(f"The disruption budget {name} does not allow evicting pods currently")
            words = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            raise too_many(words)
        disrupted = status.setdefault("disruptedPods", {})
        if len(disrupted) > MOST_DISRUPTED:
            raise StatusError(403, "Forbidden", "DisruptedPods map too big - too many evictions not confirmed by PDB")
        status["disruptionsAllowed"] = allowed - 1
        disrupted[name_of(pod)] = rfc3339(self._clock.now())


def too_many(why: str, seconds: int = 0) -> StatusError:
    """`seconds` after which it is worth another try, where that is known."""
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if seconds:
        details["retryAfterSeconds"] = seconds
    return StatusError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details,
        headers={"retry-after": str(seconds)} if seconds else {},
    )

"""StatefulSet: pods with names and an order, each with its own claims; replaced from the last to the first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from regional.kube.client import ApiError, ApiUnreachable
from regional.kube.controllers import rollout
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import PodMaker, available_in, is_finished, is_ready, phase_of
from regional.kube.controllers.revisions import HASH_LABEL, Revisions, template_of
from regional.kube.controllers.statefulset_claims import StatefulClaims
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

COMPONENT = "statefulset-controller"
CLAIM_SECONDS = 0.5


class Plan(NamedTuple):
    """One pass over one set: what it is made of, and what it shall become."""

    statefulset: Obj
    by_ordinal: dict[int, Obj]
    ordinals: range
    current: Obj
    update: Obj
    ordered: bool
    least: int


class StatefulSetController(Controller):
    name = "statefulset"
    workers = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.sets = context.informers.of("apps/v1", "StatefulSet")
        self.pods = context.informers.of("v1", "Pod")
        self.claims = StatefulClaims(context, COMPONENT)
        self.revisions = Revisions(context, label="controller.kubernetes.io/hash")
        self.maker = PodMaker(context, self.pods, COMPONENT)
        self.sets.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.pods.add_handler(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.sets.objects)

    def _pod_changed(self, _kind: str, pod: Obj) -> None:
        owner = owner_of(pod)
        if owner is not None and owner.get("kind") == "StatefulSet":
            self.queue.add((namespace_of(pod), owner["name"]))

    async def reconcile(self, key: Key) -> float | None:
        statefulset = self.sets.get(*key)
        if statefulset is None:
            return None
        pods = await claim(self.context, statefulset, self.pods)
        if is_deleting(statefulset):
            return None
        update = await self.revisions.current(statefulset)
        known = self.revisions.named(key[0], str(status_of(statefulset).get("currentRevision") or ""))
        plan = _planned(statefulset, pods, known or update, update)
        try:
            again = await self._advance(plan)
        finally:
            # Also after a refusal: what is there is told even if no more can be made.
            await self._report(key, plan)
        return again

    # -- one step ----------------------------------------------------------------------------------------------------

    async def _advance(self, plan: Plan) -> float | None:
        """At most one step at a time when ordered; everything at once when Parallel."""
        again: float | None = None
        for ordinal, pod in plan.by_ordinal.items():
            await self.claims.settle_owners(plan.statefulset, pod, condemned=ordinal not in plan.ordinals)
        for ordinal in plan.ordinals:
            wait = await self._fill(plan, ordinal)
            if wait is not None:
                if plan.ordered:
                    return wait or None
                again = min(wait, again) if wait and again else wait or again
        if await self._shrink(plan):
            return again
        return await self._replace_outdated(plan) or again

    async def _fill(self, plan: Plan, ordinal: int) -> float | None:
        """None when the pod of this ordinal is as it should be; else seconds until a look, 0 if an event will tell."""
        pod = plan.by_ordinal.get(ordinal)
        if pod is None:
            if self.claims.are_leaving(plan.statefulset, f"{name_of(plan.statefulset)}-{ordinal}"):
                return CLAIM_SECONDS
            plan.by_ordinal[ordinal] = await self._make(plan, ordinal)
            return 0.0
        if is_deleting(pod):
            return 0.0
        if is_finished(pod):
            await self._delete(plan.statefulset, pod)
            return 0.0
        if phase_of(pod) == "Pending":
            await self.claims.ensure(plan.statefulset, name_of(pod))
        wait = available_in(pod, plan.least, self.context.clock.now())
        return None if wait == 0 else wait or 0.0

    async def _shrink(self, plan: Plan) -> bool:
        """Whether pods beyond the last ordinal are still on their way out, or one was sent."""
        surplus = sorted((ordinal for ordinal in plan.by_ordinal if ordinal not in plan.ordinals), reverse=True)
        now = self.context.clock.now()
        unhealthy = [
            pod for _, pod in sorted(plan.by_ordinal.items()) if is_deleting(pod) or available_in(pod, 0, now) != 0
        ]
        for ordinal in surplus:
            pod = plan.by_ordinal[ordinal]
            if is_deleting(pod):
                if plan.ordered:
                    return True
                continue
            if plan.ordered and unhealthy and pod is not unhealthy[0] and available_in(pod, plan.least, now) != 0:
                # One that is not well leaves only if it is the first that is not: never two at a time.
                return True
            await self._delete(plan.statefulset, pod)
            if plan.ordered:
                return True
        return bool(surplus)

    async def _replace_outdated(self, plan: Plan) -> float | None:
        strategy = spec_of(plan.statefulset).get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return None
        rolling = strategy.get("rollingUpdate") or {}
        partition = plan.ordinals.start + int(rolling.get("partition") or 0)
        now = self.context.clock.now()
        budget = max(1, rollout.resolve(rolling.get("maxUnavailable") or 1, len(plan.ordinals), up=True))
        away = [
            pod
            for ordinal in plan.ordinals
            if (pod := plan.by_ordinal.get(ordinal)) is None
            or is_deleting(pod)
            or available_in(pod, plan.least, now) != 0
        ]
        for ordinal in reversed(plan.ordinals):
            pod = plan.by_ordinal.get(ordinal)
            if ordinal < partition or pod is None:
                continue
            outdated = labels_of(pod).get(HASH_LABEL) != name_of(plan.update)
            if outdated and not is_deleting(pod):
                if pod not in away:
                    if len(away) >= budget:
                        return None
                    away.append(pod)
                await self._delete(plan.statefulset, pod)
            elif budget == 1 and pod in away:
                return available_in(pod, plan.least, now)
            if len(away) >= budget:
                return None
        return None

    # -- pods --------------------------------------------------------------------------------------------------------

    async def _make(self, plan: Plan, ordinal: int) -> Obj:
        statefulset = plan.statefulset
        name = f"{name_of(statefulset)}-{ordinal}"
        revision = plan.current if _keeps_current(statefulset, ordinal, plan.ordinals) else plan.update
        await self.claims.ensure(statefulset, name)

        def adjust(pod: Obj) -> None:
            pod["metadata"]["labels"] |= {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
                HASH_LABEL: name_of(revision),
            }
            pod["metadata"]["generateName"] = f"{name_of(statefulset)}-"
            pod["spec"]["hostname"] = name
            if service := spec_of(statefulset).get("serviceName"):
                pod["spec"]["subdomain"] = service
            volumes = self.claims.volumes(statefulset, name)
            names = {volume["name"] for volume in volumes}
            kept = [volume for volume in pod["spec"].get("volumes") or [] if volume.get("name") not in names]
            if volumes or kept:
                pod["spec"]["volumes"] = volumes + kept

        recorder = self.context.recorder
        told = f"Create Pod {name} in StatefulSet {name_of(statefulset)}"
        try:
            made = await self.maker.make(statefulset, template_of(revision), name=name, adjust=adjust, tell=False)
        except ApiError as error:
            if not isinstance(error, ApiUnreachable) and error.status < 500:
                recorder.warning(COMPONENT, statefulset, "FailedCreate", f"{told} failed error: {error.message}")
            raise
        recorder.normal(COMPONENT, statefulset, "SuccessfulCreate", f"{told} successful")
        return made

    async def _delete(self, statefulset: Obj, pod: Obj) -> None:
        await self.context.delete_child(self.pods, pod)
        message = f"Delete Pod {name_of(pod)} in StatefulSet {name_of(statefulset)} successful"
        self.context.recorder.normal(COMPONENT, statefulset, "SuccessfulDelete", message)

    # -- what it says of itself --------------------------------------------------------------------------------------

    async def _report(self, key: Key, plan: Plan) -> None:
        statefulset = self.sets.get(*key)
        if statefulset is None or uid_of(statefulset) != uid_of(plan.statefulset):
            return
        pods = self.pods.indexed("owner", uid_of(statefulset))
        changed = copied(statefulset)
        status = changed.setdefault("status", {})
        # The generation this pass looked at, not one that came while it worked.
        status |= _numbers(plan, pods, self.context.clock.now())
        status["collisionCount"] = int(status.get("collisionCount") or 0)
        for name in ("readyReplicas", "updatedReplicas", "currentReplicas"):
            if not status[name]:
                del status[name]
        if status != status_of(statefulset):
            self.sets.observe(await self.client.update_status(changed))
        in_use = {status["currentRevision"], status["updateRevision"]}
        await self.revisions.trim(statefulset, in_use | {labels_of(pod).get(HASH_LABEL, "") for pod in pods})


def _planned(statefulset: Obj, pods: list[Obj], current: Obj, update: Obj) -> Plan:
    spec = spec_of(statefulset)
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := _ordinal(statefulset, pod)) is not None}
    return Plan(
        statefulset,
        by_ordinal,
        range(first, first + int(spec.get("replicas", 1))),
        current,
        update,
        spec.get("podManagementPolicy", "OrderedReady") != "Parallel",
        int(spec.get("minReadySeconds") or 0),
    )


def _keeps_current(statefulset: Obj, ordinal: int, ordinals: range) -> bool:
    """Below the partition a lost pod comes back as it was, not as it will be."""
    strategy = spec_of(statefulset).get("updateStrategy") or {}
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    return strategy.get("type", "RollingUpdate") == "RollingUpdate" and ordinal < ordinals.start + partition


def _numbers(plan: Plan, pods: list[Obj], now: datetime) -> Obj:
    live = [pod for pod in pods if not is_deleting(pod)]
    ready = [pod for pod in pods if phase_of(pod) == "Running" and is_ready(pod)]
    updated = [pod for pod in live if labels_of(pod).get(HASH_LABEL) == name_of(plan.update)]
    current = [pod for pod in live if labels_of(pod).get(HASH_LABEL) == name_of(plan.current)]
    current_name = name_of(plan.current)
    strategy = (spec_of(plan.statefulset).get("updateStrategy") or {}).get("type", "RollingUpdate")
    if strategy == "RollingUpdate" and len(updated) == len(pods) == len(ready):
        current, current_name = updated, name_of(plan.update)
    return {
        "observedGeneration": generation_of(plan.statefulset),
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(1 for pod in ready if available_in(pod, plan.least, now) == 0),
        "updatedReplicas": len(updated),
        "currentReplicas": len(current),
        "currentRevision": current_name,
        "updateRevision": name_of(plan.update),
    }


def _ordinal(statefulset: Obj, pod: Obj) -> int | None:
    prefix = f"{name_of(statefulset)}-"
    tail = name_of(pod).removeprefix(prefix)
    return int(tail) if name_of(pod).startswith(prefix) and tail.isdigit() else None

"""StatefulSet: pods with names and an order, each with its own claims; replaced from the last to the first."""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import PodMaker, available_in, is_finished, is_ready
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

COMPONENT = "statefulset-controller"


class StatefulSetController(Controller):
    name = "statefulset"
    workers = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.sets = context.informers.of("apps/v1", "StatefulSet")
        self.pods = context.informers.of("v1", "Pod")
        self.claims = context.informers.of("v1", "PersistentVolumeClaim")
        self.revisions = Revisions(context)
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
        again = await self._advance(statefulset, pods, update)
        await self._report(key, update)
        return again

    async def _advance(self, statefulset: Obj, pods: list[Obj], update: Obj) -> float | None:
        """At most one step at a time when ordered; everything at once when Parallel."""
        spec = spec_of(statefulset)
        first = int((spec.get("ordinals") or {}).get("start") or 0)
        last = first + int(spec.get("replicas", 1))
        ordered = spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        by_ordinal = {ordinal: pod for pod in pods if (ordinal := _ordinal(statefulset, pod)) is not None}
        now = self.context.clock.now()
        for ordinal in range(first, last):
            pod = by_ordinal.get(ordinal)
            if pod is not None and is_finished(pod) and not is_deleting(pod):
                await self.context.delete_child(self.pods, pod)
            elif pod is None:
                pod = await self._make(statefulset, ordinal, update)
            if ordered:
                wait = available_in(pod, int(spec.get("minReadySeconds") or 0), now)
                if wait != 0 or is_deleting(pod):
                    return wait
        surplus = sorted((o for o in by_ordinal if not first <= o < last), reverse=True)
        for ordinal in surplus:
            if not is_deleting(by_ordinal[ordinal]):
                await self._delete(statefulset, by_ordinal[ordinal])
            if ordered:
                return None
        return await self._replace_outdated(statefulset, by_ordinal, range(first, last), update)

    async def _replace_outdated(
        self, statefulset: Obj, by_ordinal: dict[int, Obj], ordinals: range, update: Obj
    ) -> float | None:
        strategy = spec_of(statefulset).get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return None
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for ordinal in reversed(ordinals):
            pod = by_ordinal.get(ordinal)
            if ordinal < partition or pod is None:
                continue
            if labels_of(pod).get(HASH_LABEL) != labels_of(update)[HASH_LABEL]:
                if not is_deleting(pod):
                    await self._delete(statefulset, pod)
                return None
            if not is_ready(pod) or is_deleting(pod):
                return None
        return None

    async def _make(self, statefulset: Obj, ordinal: int, update: Obj) -> Obj:
        spec = spec_of(statefulset)
        name = f"{name_of(statefulset)}-{ordinal}"
        volumes = []
        for template in spec.get("volumeClaimTemplates") or []:
            claimed = f"{name_of(template)}-{name}"
            await self._ensure_claim(statefulset, template, claimed)
            volumes.append({"name": name_of(template), "persistentVolumeClaim": {"claimName": claimed}})

        def adjust(pod: Obj) -> None:
            pod["metadata"]["labels"] |= {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
                HASH_LABEL: labels_of(update)[HASH_LABEL],
            }
            pod["spec"]["hostname"] = name
            if spec.get("serviceName"):
                pod["spec"]["subdomain"] = spec["serviceName"]
            names = {volume["name"] for volume in volumes}
            kept = [volume for volume in pod["spec"].get("volumes") or [] if volume.get("name") not in names]
            if volumes or kept:
                pod["spec"]["volumes"] = kept + volumes

        return await self.maker.make(statefulset, spec.get("template") or {}, name=name, adjust=adjust)

    async def _ensure_claim(self, statefulset: Obj, template: Obj, name: str) -> None:
        if self.claims.get(namespace_of(statefulset), name) is not None:
            return
        selector = (spec_of(statefulset).get("selector") or {}).get("matchLabels") or {}
        document: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": namespace_of(statefulset),
                "labels": labels_of(template) | selector,
            },
            "spec": copied(spec_of(template)),
        }
        try:
            self.claims.observe(await self.client.create(document))
        except ApiError as error:
            if not error.exists:
                raise

    async def _delete(self, statefulset: Obj, pod: Obj) -> None:
        await self.context.delete_child(self.pods, pod)
        message = f"delete Pod {name_of(pod)} in StatefulSet {name_of(statefulset)} successful"
        self.context.recorder.normal(COMPONENT, statefulset, "SuccessfulDelete", message)

    async def _report(self, key: Key, update: Obj) -> None:
        statefulset = self.sets.get(*key)
        if statefulset is None:
            return
        spec, now = spec_of(statefulset), self.context.clock.now()
        pods = [pod for pod in self.pods.indexed("owner", uid_of(statefulset)) if not is_finished(pod)]
        live = [pod for pod in pods if not is_deleting(pod)]
        updated = [pod for pod in live if labels_of(pod).get(HASH_LABEL) == labels_of(update)[HASH_LABEL]]
        least = int(spec.get("minReadySeconds") or 0)
        changed = copied(statefulset)
        status = changed.setdefault("status", {})
        before = status.get("currentRevision") or name_of(update)
        complete = len(updated) == len(pods) == int(spec.get("replicas", 1)) and all(is_ready(p) for p in updated)
        current = name_of(update) if complete else before
        status |= {
            "observedGeneration": generation_of(statefulset),
            "replicas": len(pods),
            "readyReplicas": sum(1 for pod in live if is_ready(pod)),
            "availableReplicas": sum(1 for pod in live if available_in(pod, least, now) == 0),
            "updatedReplicas": len(updated),
            "currentReplicas": sum(1 for pod in live if _revision_name(statefulset, pod) == current),
            "currentRevision": current,
            "updateRevision": name_of(update),
            "collisionCount": int(status.get("collisionCount") or 0),
        }
        for name in ("readyReplicas", "updatedReplicas", "currentReplicas"):
            if not status[name]:
                del status[name]
        if status != status_of(statefulset):
            self.sets.observe(await self.client.update_status(changed))
        if complete:
            await self.revisions.trim(statefulset, {current})


def _revision_name(statefulset: Obj, pod: Obj) -> str:
    return f"{name_of(statefulset)}-{labels_of(pod).get(HASH_LABEL, '')}"


def _ordinal(statefulset: Obj, pod: Obj) -> int | None:
    prefix = f"{name_of(statefulset)}-"
    tail = name_of(pod).removeprefix(prefix)
    return int(tail) if name_of(pod).startswith(prefix) and tail.isdigit() else None

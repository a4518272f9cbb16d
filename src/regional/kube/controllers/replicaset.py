"""ReplicaSet: as many pods of one template as asked for, no more, no fewer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller, is_namespace_ending
from regional.kube.controllers.pods import (
    CONCURRENT,
    PodMaker,
    available_in,
    given_up_first,
    is_active,
    is_finished,
    is_ready,
)
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
    owner_of,
    set_condition,
    spec_of,
    status_of,
    uid_of,
)

COMPONENT = "replicaset-controller"


class ReplicaSetController(Controller):
    name = "replicaset"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.sets = context.informers.of("apps/v1", "ReplicaSet")
        self.pods = context.informers.of("v1", "Pod")
        self.namespaces = context.informers.of("v1", "Namespace")
        self.maker = PodMaker(context, self.pods, COMPONENT)
        self.sets.add_handler(self._set_changed)
        self.pods.add_listener(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.sets.objects)

    def _set_changed(self, kind: str, obj: Obj) -> None:
        if kind == "DELETED":
            self.maker.forget(uid_of(obj))
        self.queue.add(key_of(obj))

    def _pod_changed(self, _kind: str, pod: Obj, old: Obj | None) -> None:
        for version in (pod, old):
            owner = owner_of(version) if version is not None else None
            if owner is not None:
                if owner.get("kind") == "ReplicaSet":
                    self.queue.add((key_of(pod)[0], owner["name"]))
            elif version is not None and not is_deleting(version):
                self._offer_orphan(version)

    def _offer_orphan(self, pod: Obj) -> None:
        labels = labels_of(pod)
        for candidate in self.sets.in_namespace(key_of(pod)[0]):
            if matches(spec_of(candidate).get("selector"), labels):
                self.queue.add(key_of(candidate))

    async def reconcile(self, key: Key) -> float | None:
        replicaset = self.sets.get(*key)
        if replicaset is None:
            return None
        await claim(self.context, replicaset, self.pods)
        failure: ApiError | None = None
        if not is_deleting(replicaset) and not self._namespace_ends(key[0]):
            active = [pod for pod in self.maker.owned(replicaset) if is_active(pod)]
            try:
                await self._scale(replicaset, active)
            except ApiError as error:
                failure = error
        again = await self._report(key, failure)
        if failure is not None and not is_namespace_ending(failure):
            raise failure
        return again

    def _namespace_ends(self, name: str) -> bool:
        """Its pods are being taken away one by one; asking for new ones each time would only slow that down."""
        namespace = self.namespaces.get("", name)
        return namespace is not None and is_deleting(namespace)

    async def _scale(self, replicaset: Obj, active: list[Obj]) -> None:
        wanted = int(spec_of(replicaset).get("replicas", 1))
        missing = wanted - len(active)
        if missing > 0:
            await self.maker.make_many(replicaset, spec_of(replicaset).get("template") or {}, missing)
        elif missing < 0:
            victims = given_up_first(active)[:-missing]
            for start in range(0, len(victims), CONCURRENT):
                batch = victims[start : start + CONCURRENT]
                await asyncio.gather(*(self._give_up(replicaset, pod) for pod in batch))

    async def _give_up(self, replicaset: Obj, pod: Obj) -> None:
        await self.context.delete_child(self.pods, pod)
        self.context.recorder.normal(COMPONENT, replicaset, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    async def _report(self, key: Key, failure: ApiError | None) -> float | None:
        replicaset = self.sets.get(*key)
        if replicaset is None:
            return None
        now = self.context.clock.now()
        spec = spec_of(replicaset)
        owned = self.pods.indexed("owner", uid_of(replicaset))
        active = [pod for pod in owned if is_active(pod)]
        ready = [pod for pod in active if is_ready(pod)]
        waits = [available_in(pod, int(spec.get("minReadySeconds") or 0), now) for pod in ready]
        template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        changed = copied(replicaset)
        status = changed.setdefault("status", {})
        status["replicas"] = len(active)
        status["fullyLabeledReplicas"] = sum(1 for pod in active if template_labels.items() <= labels_of(pod).items())
        status["readyReplicas"] = len(ready)
        status["availableReplicas"] = sum(1 for wait in waits if wait == 0)
        status["terminatingReplicas"] = sum(1 for pod in owned if is_deleting(pod) and not is_finished(pod))
        status["observedGeneration"] = generation_of(replicaset)
        for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
            if not status[name]:
                del status[name]
        if failure is not None:
            set_condition(changed, "ReplicaFailure", True, "FailedCreate", failure.message, now=now)
        elif status.get("conditions"):
            status["conditions"] = [c for c in status["conditions"] if c.get("type") != "ReplicaFailure"]
            if not status["conditions"]:
                del status["conditions"]
        if status != status_of(replicaset):
            self.sets.observe(await self.client.update_status(changed))
        return min((wait for wait in waits if wait), default=None)

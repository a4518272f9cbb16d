"""Deployment: moves pods from one template to the next through ReplicaSets, one per template.

Each pass looks at the world and takes every step that is safe now; the rest follows when ReplicaSets report.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers import rollout
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.deployment_status import report
from regional.kube.controllers.history import (
    DESIRED,
    MAX,
    REVISION,
    inherited_annotations,
    newest_revision,
    revision_of_set,
    same_template,
    template_hash,
    with_revision,
)
from regional.kube.controllers.pods import is_finished
from regional.kube.objects import (
    Key,
    Obj,
    annotations_of,
    copied,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    matches,
    metadata_of,
    name_of,
    namespace_of,
    owner_of,
    owner_reference,
    spec_of,
    status_of,
    uid_of,
)

COMPONENT = "deployment-controller"
HASH_LABEL = "pod-template-hash"


class DeploymentController(Controller):
    name = "deployment"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.deployments = context.informers.of("apps/v1", "Deployment")
        self.sets = context.informers.of("apps/v1", "ReplicaSet")
        self.pods = context.informers.of("v1", "Pod")
        self.deployments.add_handler(lambda _, obj: self.queue.add(key_of(obj)))
        self.sets.add_listener(self._set_changed)
        self.pods.add_handler(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        return list(self.deployments.objects)

    def _set_changed(self, _kind: str, replicaset: Obj, old: Obj | None) -> None:
        for version in (replicaset, old):
            owner = owner_of(version) if version is not None else None
            if owner is not None:
                if owner.get("kind") == "Deployment":
                    self.queue.add((namespace_of(replicaset), owner["name"]))
            elif version is not None:
                for candidate in self.deployments.in_namespace(namespace_of(version)):
                    if matches(spec_of(candidate).get("selector"), labels_of(version)):
                        self.queue.add(key_of(candidate))

    def _pod_changed(self, kind: str, pod: Obj) -> None:
        """Recreate waits for the very last old pod; everything else is told by the ReplicaSets' status."""
        owner = owner_of(pod) if kind == "DELETED" else None
        replicaset = self.sets.get(namespace_of(pod), owner["name"]) if owner is not None else None
        holder = owner_of(replicaset) if replicaset is not None else None
        if holder is not None and holder.get("kind") == "Deployment":
            self.queue.add((namespace_of(pod), holder["name"]))

    async def reconcile(self, key: Key) -> float | None:
        deployment = self.deployments.get(*key)
        if deployment is None or not spec_of(deployment).get("selector"):
            return None
        sets = await claim(self.context, deployment, self.sets)
        if is_deleting(deployment):
            return None
        sets = [rs for rs in sets if not is_deleting(rs)]
        new = next((rs for rs in _oldest_first(sets) if same_template(deployment, rs)), None)
        old = [rs for rs in sets if rs is not new]
        known = new
        if spec_of(deployment).get("paused"):
            await self._rescale(deployment, new, old)
        elif self._scale_changed(deployment, sets):
            new = await self._current(deployment, new, old) if new is not None else None
            await self._rescale(deployment, new, old)
        elif (spec_of(deployment).get("strategy") or {}).get("type") == "Recreate":
            new = await self._recreate(deployment, new, old)
        else:
            new = await self._current(deployment, new, old)
            await self._roll(deployment, new, old)
        return await self._finish(key, new, old, made=known is None and new is not None)

    # -- the new ReplicaSet ------------------------------------------------------------------------------------------

    async def _current(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> Obj:
        """The ReplicaSet of the present template, made if need be, with the newest revision number."""
        revision = str(newest_revision(old) + 1)
        if new is None:
            new = await self._make(deployment, old, revision)
        else:
            wanted = copied(new)
            annotations = annotations_of(wanted) | inherited_annotations(deployment)
            if revision_of_set(new) < int(revision):
                annotations = with_revision(annotations, revision)
            wanted["metadata"]["annotations"] = annotations
            least = int(spec_of(deployment).get("minReadySeconds") or 0)
            if annotations != annotations_of(new) or least != int(spec_of(new).get("minReadySeconds") or 0):
                wanted["spec"].pop("minReadySeconds", None)
                if least:
                    wanted["spec"]["minReadySeconds"] = least
                new = await self.client.update(wanted)
                self.sets.observe(new)
        number = annotations_of(new).get(REVISION, revision)
        if annotations_of(deployment).get(REVISION) != number:
            patch = {"metadata": {"annotations": {REVISION: number}}}
            changed = await self.client.patch(
                "apps/v1", "Deployment", name_of(deployment), namespace_of(deployment), patch
            )
            self.deployments.observe(changed)
        return new

    async def _make(self, deployment: Obj, old: list[Obj], revision: str) -> Obj:
        spec = spec_of(deployment)
        collisions = int(status_of(deployment).get("collisionCount") or 0)
        digest = template_hash(spec.get("template") or {}, collisions)
        template = copied(spec.get("template") or {})
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH_LABEL] = digest
        selector = copied(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH_LABEL] = digest
        surge = rollout.bounds(deployment).surge
        room = rollout.desired(deployment) + surge - rollout.total(old)
        size = rollout.desired(deployment)
        if (spec.get("strategy") or {}).get("type") != "Recreate":
            size = max(0, min(size, room))
        replicaset: Obj = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{name_of(deployment)}-{digest}",
                "namespace": namespace_of(deployment),
                "labels": dict(template["metadata"]["labels"]),
                "annotations": inherited_annotations(deployment)
                | {
                    REVISION: revision,
                    DESIRED: str(rollout.desired(deployment)),
                    MAX: str(rollout.desired(deployment) + surge),
                },
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            replicaset["spec"]["minReadySeconds"] = int(spec["minReadySeconds"])
        try:
            made = await self.client.create(replicaset)
        except ApiError as error:
            if not error.exists:
                raise
            made = await self._met_namesake(deployment, replicaset, error)
        self.sets.observe(made)
        if size:
            self._tell_scaled(deployment, made, 0, size)
        return made

    async def _met_namesake(self, deployment: Obj, wanted: Obj, error: ApiError) -> Obj:
        """The name is taken: by ourselves a moment ago, or by another template that hashes alike."""
        present = await self.client.get("apps/v1", "ReplicaSet", name_of(wanted), namespace_of(wanted))
        owner = owner_of(present)
        if owner is not None and owner["uid"] == uid_of(deployment) and same_template(deployment, present):
            return present
        changed = copied(deployment)
        status = changed.setdefault("status", {})
        status["collisionCount"] = int(status.get("collisionCount") or 0) + 1
        self.deployments.observe(await self.client.update_status(changed))
        raise error

    # -- strategies --------------------------------------------------------------------------------------------------

    async def _roll(self, deployment: Obj, new: Obj, old: list[Obj]) -> None:
        replicas = rollout.desired(deployment)
        if rollout.desired(new) > replicas:
            await self._resize(deployment, new, replicas)
            return
        size = rollout.grown_size(deployment, new, [*old, new])
        if size != rollout.desired(new) or self._sized_for(new) != replicas:
            await self._resize(deployment, new, size)
        current = self.sets.get(*key_of(new)) or new
        for name, smaller in rollout.shrunk_sizes(deployment, current, old).items():
            replicaset = next(rs for rs in old if name_of(rs) == name)
            await self._resize(deployment, replicaset, smaller)

    async def _recreate(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> Obj | None:
        for replicaset in old:
            if rollout.desired(replicaset):
                await self._resize(deployment, replicaset, 0)
        leftovers = [
            pod for replicaset in old for pod in self.pods.indexed("owner", uid_of(replicaset)) if not is_finished(pod)
        ]
        if leftovers:
            return new
        new = await self._current(deployment, new, old)
        if rollout.desired(new) != rollout.desired(deployment):
            await self._resize(deployment, new, rollout.desired(deployment))
        return new

    def _scale_changed(self, deployment: Obj, sets: list[Obj]) -> bool:
        """Somebody changed `replicas` while old and new ReplicaSets both have pods."""
        active = [rs for rs in sets if rollout.desired(rs)]
        return any(self._sized_for(rs) not in (None, rollout.desired(deployment)) for rs in active)

    @staticmethod
    def _sized_for(replicaset: Obj) -> int | None:
        text = annotations_of(replicaset).get(DESIRED, "")
        return int(text) if text.isdigit() else None

    async def _rescale(self, deployment: Obj, new: Obj | None, old: list[Obj]) -> None:
        everyone = [*old, new] if new is not None else old
        active = [rs for rs in everyone if rollout.desired(rs)]
        replicas = rollout.desired(deployment)
        if len(active) <= 1:
            # One ReplicaSet has all the pods (or none has, then the newest may have them).
            target = active[0] if active else (new or next(iter(_newest_first(old)), None))
            if target is not None and (
                rollout.desired(target) != replicas or self._sized_for(target) not in (None, replicas)
            ):
                await self._resize(deployment, target, replicas)
            return
        if new is not None and rollout.available(new) == replicas == rollout.desired(new):
            for replicaset in old:
                if rollout.desired(replicaset):
                    await self._resize(deployment, replicaset, 0)
            return
        if not self._scale_changed(deployment, active):
            return
        allowed = replicas + rollout.bounds(deployment).surge if replicas else 0
        sizes = rollout.proportional_sizes(deployment, active, allowed)
        for replicaset in active:
            await self._resize(deployment, replicaset, sizes.get(name_of(replicaset), rollout.desired(replicaset)))

    async def _resize(self, deployment: Obj, replicaset: Obj, size: int) -> None:
        replicas = rollout.desired(deployment)
        before = rollout.desired(replicaset)
        annotations = {DESIRED: str(replicas), MAX: str(replicas + rollout.bounds(deployment).surge)}
        if before == size and annotations.items() <= annotations_of(replicaset).items():
            return
        wanted = copied(self.sets.get(*key_of(replicaset)) or replicaset)
        wanted["metadata"]["annotations"] = annotations_of(wanted) | annotations
        wanted["spec"]["replicas"] = size
        self.sets.observe(await self.client.update(wanted))
        if before != size:
            self._tell_scaled(deployment, replicaset, before, size)

    def _tell_scaled(self, deployment: Obj, replicaset: Obj, before: int, size: int) -> None:
        direction = "up" if size > before else "down"
        self.context.recorder.normal(
            COMPONENT,
            deployment,
            "ScalingReplicaSet",
            f"Scaled {direction} replica set {name_of(replicaset)} from {before} to {size}",
        )

    # -- afterwards --------------------------------------------------------------------------------------------------

    async def _finish(self, key: Key, new: Obj | None, old: list[Obj], *, made: bool) -> float | None:
        """Report, and forget the oldest history once the rollout is through."""
        deployment = self.deployments.get(*key)
        if deployment is None:
            return None
        new = self.sets.get(*key_of(new)) if new is not None else None
        old = [current for rs in old if (current := self.sets.get(*key_of(rs))) is not None]
        changed, again, complete = report(deployment, new, old, self.context.clock.now(), made=made)
        if status_of(changed) != status_of(deployment):
            self.deployments.observe(await self.client.update_status(changed))
        if complete:
            await self._trim_history(deployment, old)
        return again

    async def _trim_history(self, deployment: Obj, old: list[Obj]) -> None:
        limit = spec_of(deployment).get("revisionHistoryLimit")
        limit = 10 if limit is None else int(limit)
        idle = [
            rs
            for rs in old
            if not rollout.desired(rs)
            and not status_of(rs).get("replicas")
            and generation_of(rs) <= int(status_of(rs).get("observedGeneration") or 0)
        ]
        idle.sort(key=revision_of_set)
        for replicaset in idle[: max(0, len(idle) - limit)]:
            await self.context.delete_child(self.sets, replicaset)


def _oldest_first(sets: list[Obj]) -> list[Obj]:
    return sorted(sets, key=lambda rs: (metadata_of(rs).get("creationTimestamp", ""), name_of(rs)))


def _newest_first(sets: list[Obj]) -> list[Obj]:
    return _oldest_first(sets)[::-1]

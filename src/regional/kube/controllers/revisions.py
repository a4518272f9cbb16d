"""ControllerRevision: the history of templates for owners that have no ReplicaSets (StatefulSet, DaemonSet)."""

from __future__ import annotations

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context
from regional.kube.controllers.history import template_hash
from regional.kube.objects import Obj, copied, labels_of, name_of, namespace_of, owner_reference, spec_of, uid_of

HASH_LABEL = "controller-revision-hash"


class Revisions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._revisions = context.informers.of("apps/v1", "ControllerRevision")

    async def current(self, owner: Obj) -> Obj:
        """The revision of the owner's present template, made or renumbered if need be."""
        template = spec_of(owner).get("template") or {}
        digest = template_hash(template)
        known = self._of(owner)
        newest = max((int(revision.get("revision") or 0) for revision in known), default=0)
        present = next((revision for revision in known if labels_of(revision).get(HASH_LABEL) == digest), None)
        if present is None:
            return await self._make(owner, template, digest, newest + 1)
        if int(present.get("revision") or 0) < newest:
            changed = copied(present)
            changed["revision"] = newest + 1
            present = await self._context.client.update(changed)
            self._revisions.observe(present)
        return present

    async def _make(self, owner: Obj, template: Obj, digest: str, number: int) -> Obj:
        revision: Obj = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{name_of(owner)}-{digest}",
                "namespace": namespace_of(owner),
                "labels": ((template.get("metadata") or {}).get("labels") or {}) | {HASH_LABEL: digest},
                "ownerReferences": [owner_reference(owner)],
            },
            "data": {"spec": {"template": copied(template) | {"$patch": "replace"}}},
            "revision": number,
        }
        try:
            made = await self._context.client.create(revision)
        except ApiError as error:
            if not error.exists:
                raise
            made = await self._context.client.get(
                "apps/v1", "ControllerRevision", name_of(revision), namespace_of(owner)
            )
        self._revisions.observe(made)
        return made

    def named(self, namespace: str, name: str) -> Obj | None:
        return self._revisions.get(namespace, name)

    async def trim(self, owner: Obj, in_use: set[str]) -> None:
        limit = spec_of(owner).get("revisionHistoryLimit")
        idle = [revision for revision in self._of(owner) if name_of(revision) not in in_use]
        idle.sort(key=lambda revision: int(revision.get("revision") or 0))
        for revision in idle[: max(0, len(idle) - (10 if limit is None else int(limit)))]:
            await self._context.delete_child(self._revisions, revision)

    def _of(self, owner: Obj) -> list[Obj]:
        return self._revisions.indexed("owner", uid_of(owner))

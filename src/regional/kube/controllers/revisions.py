"""ControllerRevision: the history of templates for owners that have no ReplicaSets (StatefulSet, DaemonSet)."""

from __future__ import annotations

from typing import Any

from regional.kube.client import ApiError
from regional.kube.controllers.adoption import claim
from regional.kube.controllers.context import Context
from regional.kube.controllers.history import template_hash
from regional.kube.objects import (
    Obj,
    copied,
    name_of,
    namespace_of,
    owner_of,
    owner_reference,
    spec_of,
    status_of,
    uid_of,
)

HASH_LABEL = "controller-revision-hash"
"""On pods. A DaemonSet writes the hash there, a StatefulSet the revision's name."""


class Revisions:
    def __init__(self, context: Context, *, label: str = HASH_LABEL) -> None:
        self._context, self._label = context, label
        self._revisions = context.informers.of("apps/v1", "ControllerRevision")

    async def current(self, owner: Obj) -> Obj:
        """The revision of the owner's present template, made or renumbered if need be."""
        template = spec_of(owner).get("template") or {}
        known = await claim(self._context, owner, self._revisions)
        newest = max((_number(revision) for revision in known), default=0)
        alike = [revision for revision in known if _same(template_of(revision), template)]
        present = max(alike, key=_number, default=None)
        if present is None:
            return await self._make(owner, template, newest + 1)
        if _number(present) < newest:
            changed = copied(present)
            changed["revision"] = newest + 1
            present = await self._context.client.update(changed)
            self._revisions.observe(present)
        return present

    async def _make(self, owner: Obj, template: Obj, number: int) -> Obj:
        digest = template_hash(template, int(status_of(owner).get("collisionCount") or 0))
        revision: Obj = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{name_of(owner)}-{digest}",
                "namespace": namespace_of(owner),
                "labels": ((template.get("metadata") or {}).get("labels") or {}) | {self._label: digest},
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
            made = await self._met_namesake(owner, revision, template, error)
        self._revisions.observe(made)
        return made

    async def _met_namesake(self, owner: Obj, wanted: Obj, template: Obj, error: ApiError) -> Obj:
        """The name is taken: by ourselves a moment ago, or by something else; then the next try takes another name."""
        client = self._context.client
        present = await client.get("apps/v1", "ControllerRevision", name_of(wanted), namespace_of(owner))
        holder = owner_of(present)
        if holder is not None and holder["uid"] == uid_of(owner) and _same(template_of(present), template):
            return present
        changed = copied(owner)
        status = changed.setdefault("status", {})
        status["collisionCount"] = int(status.get("collisionCount") or 0) + 1
        sets = self._context.informers.of(owner["apiVersion"], owner["kind"])
        sets.observe(await client.update_status(changed))
        raise error

    def named(self, namespace: str, name: str) -> Obj | None:
        return self._revisions.get(namespace, name)

    async def trim(self, owner: Obj, in_use: set[str]) -> None:
        limit = spec_of(owner).get("revisionHistoryLimit")
        idle = [revision for revision in self._of(owner) if name_of(revision) not in in_use]
        idle.sort(key=_number)
        for revision in idle[: max(0, len(idle) - (10 if limit is None else int(limit)))]:
            await self._context.delete_child(self._revisions, revision)

    def _of(self, owner: Obj) -> list[Obj]:
        return self._revisions.indexed("owner", uid_of(owner))


def template_of(revision: Obj) -> Obj:
    kept = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in kept.items() if name != "$patch"}


def _same(kept: Obj, template: Obj) -> bool:
    return bool(_without_empty(kept) == _without_empty(template))


def _without_empty(value: Any) -> Any:
    """Written by another controller-manager, a revision may spell out what ours leaves out, such as a null time."""
    if isinstance(value, dict):
        trimmed = {key: _without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in trimmed.items() if inner not in (None, {}, [])}
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def _number(revision: Obj) -> int:
    return int(revision.get("revision") or 0)

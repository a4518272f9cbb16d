"""The garbage collector: nothing outlives all of its owners.

Background: children go after the owner is gone. Foreground: the owner waits (finalizer `foregroundDeletion`) for the
children that block it. Orphan: children are cut loose first (finalizer `orphan`). An owner counts as absent only after
the server itself said so, by name and uid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.ownership import Owned, Owner, Ownership, live_uid
from regional.kube.objects import Key, Obj, copied, finalizers_of, owners_of, uid_of

log = logging.getLogger(__name__)
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector(Controller):
    """Keys are ("", uid)."""

    name = "garbage"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.graph = Ownership(context.client, context.informers, self._changed)
        self.definitions = context.informers.of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        self.definitions.add_listener(self._definition_changed)
        self._gone: list[Callable[[Owned], None]] = []

    def on_gone(self, listener: Callable[[Owned], None]) -> None:
        """Told about every object of any kind that left the server."""
        self._gone.append(listener)

    def keys(self) -> Iterable[Key]:
        return [("", owned.uid) for owned in self.graph if owned.owners or owned.deleting] + [REDISCOVER]

    async def prepare(self) -> None:
        await self.graph.refresh()
        await self.graph.ready()

    def _definition_changed(self, kind: str, definition: Obj, old: Obj | None) -> None:
        if kind == "DELETED" or _served(definition) != (_served(old) if old is not None else None):
            self.queue.add(REDISCOVER)

    def _changed(self, kind: str, owned: Owned, before: Owned | None) -> None:
        if kind == "DELETED":
            for listener in self._gone:
                listener(owned)
            for child in self.graph.children(owned.uid):
                self.queue.add(("", child.uid))
        elif owned.owners or owned.deleting:
            self.queue.add(("", owned.uid))
        # An owner that waits for its children looks again whenever one of them changes or leaves.
        for owner in owned.owners + (before.owners if before is not None else ()):
            present = self.graph.get(owner.uid)
            if present is not None and present.deleting:
                self.queue.add(("", owner.uid))

    async def reconcile(self, key: Key) -> float | None:
        if key == REDISCOVER:
            await self.graph.refresh()
            return None
        owned = self.graph.get(key[1])
        if owned is None:
            return None
        if owned.deleting:
            if ORPHAN in owned.finalizers:
                return await self._orphan_children(owned)
            if FOREGROUND in owned.finalizers:
                return await self._await_children(owned)
            return None
        if owned.owners:
            return await self._judge(owned)
        return None

    # -- an owner that is going --------------------------------------------------------------------------------------

    async def _orphan_children(self, owned: Owned) -> float | None:
        for child in self.graph.children(owned.uid):
            await self._strip_owners(child, {owned.uid})
        await self._remove_finalizer(owned, ORPHAN)
        return None

    async def _await_children(self, owned: Owned) -> float | None:
        blocking = False
        for child in self.graph.children(owned.uid):
            if not child.deleting:
                self.queue.add(("", child.uid))
            blocks = any(owner.uid == owned.uid and owner.blocks for owner in child.owners)
            if blocks and not (child.deleting and self.graph.is_cycle(child.uid, owned.uid)):
                blocking = True
        if not blocking:
            await self._remove_finalizer(owned, FOREGROUND)
        return None

    # -- a child -----------------------------------------------------------------------------------------------------

    async def _judge(self, owned: Owned) -> float | None:
        solid, waiting, dangling = False, False, set()
        for owner in owned.owners:
            present = self.graph.get(owner.uid)
            if present is not None and _is_at(present, owner, owned):
                if present.deleting and FOREGROUND in present.finalizers:
                    waiting = True
                else:
                    solid = True
                continue
            verdict = await self._is_absent(owner, owned)
            if verdict is None:
                # An owner of a kind that cannot be resolved, or out of reach: not for us to decide.
                return None
            if verdict:
                dangling.add(owner.uid)
            else:
                solid = True
        if solid:
            leaving = {o.uid for o in owned.owners if self._is_waiting(o.uid)} if waiting else set()
            if dangling or leaving:
                await self._strip_owners(owned, dangling | leaving)
        elif waiting:
            # Its own children must go first, or the chain above would be cut in the middle.
            await self._delete(owned, "Foreground" if self.graph.children(owned.uid) else "Background")
        elif dangling:
            await self._delete(owned, _policy(owned))
        return None

    def _is_waiting(self, uid: str) -> bool:
        present = self.graph.get(uid)
        return present is not None and present.deleting and FOREGROUND in present.finalizers

    async def _is_absent(self, owner: Owner, owned: Owned) -> bool | None:
        try:
            resource = await self.client.resource_for(owner.api_version, owner.kind)
        except ApiError as error:
            if error.not_found:
                return None
            raise
        if resource.namespaced and not owned.namespace:
            return None
        found = await live_uid(self.client, resource, owned.namespace if resource.namespaced else "", owner.name)
        return found != owner.uid

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _delete(self, owned: Owned, propagation: str) -> None:
        try:
            await self.client.delete(
                owned.resource.api_version,
                owned.resource.kind,
                owned.name,
                owned.namespace or None,
                propagation=propagation,
                uid=owned.uid,
            )
        except ApiError as error:
            if not (error.not_found or error.status == 409):
                raise
        log.debug("collected", extra={"object": f"{owned.resource.id} {owned.namespace}/{owned.name}"})

    async def _read(self, owned: Owned) -> Obj | None:
        obj = await self.client.get_or_none(
            owned.resource.api_version, owned.resource.kind, owned.name, owned.namespace or None
        )
        return copied(obj) if obj is not None and uid_of(obj) == owned.uid else None

    async def _strip_owners(self, owned: Owned, uids: set[str]) -> None:
        obj = await self._read(owned)
        if obj is None:
            return
        left = [owner for owner in owners_of(obj) if owner.get("uid") not in uids]
        if left != owners_of(obj):
            await self._patch(owned, obj, {"ownerReferences": left or None})

    async def _remove_finalizer(self, owned: Owned, finalizer: str) -> None:
        obj = await self._read(owned)
        if obj is None or finalizer not in finalizers_of(obj):
            return
        await self._patch(owned, obj, {"finalizers": [name for name in finalizers_of(obj) if name != finalizer]})

    async def _patch(self, owned: Owned, obj: Obj, metadata: Obj) -> None:
        metadata |= {"uid": owned.uid, "resourceVersion": obj["metadata"]["resourceVersion"]}
        try:
            await self.client.patch(
                owned.resource.api_version,
                owned.resource.kind,
                owned.name,
                owned.namespace or None,
                {"metadata": metadata},
            )
        except ApiError as error:
            if not error.not_found:
                raise


REDISCOVER: Key = ("", "")


def _policy(owned: Owned) -> str:
    """What the object itself was asked to do with its children, should it ever go."""
    if ORPHAN in owned.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in owned.finalizers else "Background"


def _is_at(present: Owned, owner: Owner, child: Owned) -> bool:
    """The owner's reference names it truly, in a place the child may refer to."""
    reachable = present.namespace in ("", child.namespace)
    return reachable and present.name == owner.name and present.resource.kind == owner.kind


def _served(definition: Obj) -> tuple[object, ...]:
    spec = definition.get("spec") or {}
    conditions = (definition.get("status") or {}).get("conditions") or []
    established = any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
    versions = tuple((v.get("name"), v.get("served")) for v in spec.get("versions") or [])
    return (established, versions)

"""The graph of who owns whom, over every resource the server serves, custom ones included.

Fed by informers that keep only metadata. New CRDs are picked up as soon as they appear in discovery; a removed CRD
takes its objects out of the graph.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from regional.kube.client import ApiError, Client, Informer, Resource
from regional.kube.controllers.context import Informers
from regional.kube.objects import Obj, finalizers_of, is_deleting, name_of, namespace_of, owners_of, uid_of

log = logging.getLogger(__name__)
# Events own nothing and are owned by nothing; they are the bulk of all writes.
IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})


class Owner(msgspec.Struct, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool


class Owned(msgspec.Struct, frozen=True):
    """One object in the graph."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    owners: tuple[Owner, ...]
    finalizers: tuple[str, ...]
    deleting: bool


class Ownership:
    def __init__(
        self, client: Client, informers: Informers, changed: Callable[[str, Owned, Owned | None], None]
    ) -> None:
        """`changed(type, object, before)` is told about every step of the graph."""
        self._client, self._informers, self._changed = client, informers, changed
        self._objects: dict[str, Owned] = {}
        self._children: dict[str, set[str]] = {}
        self._population: Counter[tuple[str, Resource]] = Counter()
        self._watched: dict[Resource, Informer] = {}

    def get(self, uid: str) -> Owned | None:
        return self._objects.get(uid)

    def children(self, uid: str) -> list[Owned]:
        return [self._objects[child] for child in self._children.get(uid, ()) if child in self._objects]

    def population(self, namespace: str, resource: Resource) -> int:
        """How many objects of one kind a namespace holds, as far as the informers have heard."""
        return self._population[namespace, resource]

    def is_empty(self, namespace: str) -> bool:
        return not any(place[0] == namespace for place in self._population)

    def __iter__(self) -> Iterator[Owned]:
        return iter(list(self._objects.values()))

    async def refresh(self) -> None:
        """Follow what the server serves now: one informer per resource, whichever version it is served in."""
        served: dict[tuple[str, str], Resource] = {}
        for entry in await self._client.resources():
            place = (entry.resource.group, entry.resource.plural)
            if place in IGNORED or not {"list", "watch", "delete"} <= entry.verbs:
                continue
            if place not in served or entry.preferred:
                served[place] = entry.resource
        wanted = set(served.values())
        for resource in [known for known in self._watched if known not in wanted]:
            del self._watched[resource]
            await self._informers.forget(resource)
            self._drop(resource)
        for resource in wanted - self._watched.keys():
            informer = self._informers.metadata_of(resource)
            self._watched[resource] = informer
            for obj in informer:
                self._note("ADDED", resource, obj)
            informer.add_handler(partial(self._heard_of, resource, informer))
            informer.start()

    async def ready(self, patience: float = 10.0) -> None:
        """All first lists are in. One resource that cannot be listed must not hold up all the others for ever."""
        waiting = [asyncio.ensure_future(informer.synced()) for informer in self._watched.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=patience)
            for future in late:
                future.cancel()

    def _heard_of(self, resource: Resource, informer: Informer, kind: str, obj: Obj) -> None:
        if self._watched.get(resource) is informer:
            self._note(kind, resource, obj)

    def _drop(self, resource: Resource) -> None:
        for owned in self:
            if owned.resource == resource:
                self._remove(owned)

    def _note(self, kind: str, resource: Resource, obj: Obj) -> None:
        owned = Owned(
            resource,
            namespace_of(obj),
            name_of(obj),
            uid_of(obj),
            tuple(
                Owner(
                    o.get("apiVersion", ""),
                    o.get("kind", ""),
                    o.get("name", ""),
                    o.get("uid", ""),
                    bool(o.get("blockOwnerDeletion")),
                )
                for o in owners_of(obj)
            ),
            tuple(finalizers_of(obj)),
            is_deleting(obj),
        )
        if kind == "DELETED":
            self._remove(owned)
            return
        before = self._objects.get(owned.uid)
        if before == owned:
            return
        self._unlink(before)
        if before is None:
            self._population[owned.namespace, resource] += 1
        self._objects[owned.uid] = owned
        for owner in owned.owners:
            self._children.setdefault(owner.uid, set()).add(owned.uid)
        self._changed(kind, owned, before)

    def _remove(self, owned: Owned) -> None:
        before = self._objects.pop(owned.uid, None)
        self._unlink(before)
        if before is not None:
            place = (before.namespace, before.resource)
            self._population[place] -= 1
            if not self._population[place]:
                del self._population[place]
            self._changed("DELETED", owned, before)

    def _unlink(self, before: Owned | None) -> None:
        for owner in before.owners if before is not None else ():
            siblings = self._children.get(owner.uid)
            if siblings is not None:
                siblings.discard(before.uid)  # type: ignore[union-attr]
                if not siblings:
                    del self._children[owner.uid]

    def is_cycle(self, start: str, goal: str) -> bool:
        """Whether `goal` is among the descendants of `start` that are waiting to go as well."""
        seen: set[str] = set()
        todo = [start]
        while todo:
            for child in self.children(todo.pop()):
                if child.uid == goal:
                    return True
                if child.deleting and child.uid not in seen:
                    seen.add(child.uid)
                    todo.append(child.uid)
        return False


async def live_uid(client: Client, resource: Resource, namespace: str, name: str) -> str:
    """The uid under this name right now, "" if there is nothing; the cache must not decide about a deletion."""
    try:
        obj = await client.get(resource.api_version, resource.kind, name, namespace or None)
    except ApiError as error:
        if error.not_found:
            return ""
        raise
    return uid_of(obj)

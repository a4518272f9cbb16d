"""The end of a namespace: everything in it goes, pods first, and only then the name itself.

The server marks a namespace Terminating and lets nothing new in. What is left is found by discovery and listed from
the server, never from a cache, because the last step cannot be taken back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import msgspec

from regional.kube.client import ApiError, Resource
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.garbage import GarbageCollector
from regional.kube.controllers.ownership import Owned
from regional.kube.objects import (
    Key,
    Obj,
    copied,
    finalizers_of,
    is_deleting,
    key_of,
    name_of,
    set_condition,
    spec_of,
    status_of,
    uid_of,
)

FINALIZER = "kubernetes"
# Conditions that the real controller reports too; here discovery is local and cannot fail.
_ALWAYS_WELL = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
)
FIRST_LOOK, TROUBLE_LOOK, LAST_LOOK = 0.1, 0.5, 5.0


class Ending(msgspec.Struct):
    """How far one namespace is. Nothing new gets in, so a resource once found empty stays empty."""

    uid: str
    wait: float = FIRST_LOOK
    empty: set[Resource] = msgspec.field(default_factory=set)


class Remains(msgspec.Struct):
    """What is still in the namespace."""

    objects: Counter[str]
    finalizers: Counter[str]
    problems: list[str]


class NamespaceController(Controller):
    name = "namespace"
    workers = 4

    def __init__(self, context: Context, garbage: GarbageCollector) -> None:
        super().__init__(context)
        self.namespaces = context.informers.of("v1", "Namespace")
        self.namespaces.add_handler(self._namespace_changed)
        self._graph = garbage.graph
        self._ending: dict[str, Ending] = {}
        garbage.on_gone(self._left)

    def keys(self) -> Iterable[Key]:
        return [key_of(namespace) for namespace in self.namespaces if is_deleting(namespace)]

    def _namespace_changed(self, kind: str, namespace: Obj) -> None:
        if kind == "DELETED":
            self._ending.pop(name_of(namespace), None)
        elif is_deleting(namespace):
            self.queue.add(key_of(namespace))

    def _left(self, owned: Owned) -> None:
        # One look when the last of a kind has left, not one for each of a thousand.
        if owned.namespace in self._ending and not self._graph.population(owned.namespace, owned.resource):
            self.queue.add(("", owned.namespace))

    async def reconcile(self, key: Key) -> float | None:
        name = key[1]
        namespace = self.namespaces.get("", name)
        if namespace is None or not is_deleting(namespace):
            return None
        if FINALIZER not in (spec_of(namespace).get("finalizers") or []):
            return None
        ending = self._ending.get(name)
        if ending is None or ending.uid != uid_of(namespace):
            ending = self._ending[name] = Ending(uid_of(namespace))
        remains = await self._empty(name, ending)
        if remains.objects or remains.problems:
            wait, ending.wait = ending.wait, min(LAST_LOOK, ending.wait * 2)
            await self._explain(name, remains)
            return min(wait, TROUBLE_LOOK) if remains.problems else wait
        if not self._graph.is_empty(name):
            # The caches still hold something that the lists did not show: one of the two is a moment behind.
            ending.empty.clear()
            wait, ending.wait = ending.wait, min(LAST_LOOK, ending.wait * 2)
            return wait
        await self._finalize(name)
        return None

    async def _empty(self, namespace: str, ending: Ending) -> Remains:
        """Delete everything once more and say what stays."""
        served: dict[tuple[str, str], Resource] = {}
        deletable: dict[str, bool] = {}
        for entry in await self.client.resources():
            place = (entry.resource.group, entry.resource.plural)
            if not entry.resource.namespaced or not {"list", "delete"} <= entry.verbs:
                continue
            if place not in served or entry.preferred:
                served[place] = entry.resource
                deletable[entry.resource.id] = "deletecollection" in entry.verbs
        served = {place: resource for place, resource in served.items() if resource not in ending.empty}
        remains = Remains(Counter(), Counter(), [])
        pods = served.pop(("", "pods"), None)
        if pods is not None:
            await self._empty_one(pods, namespace, ending, remains, collection=deletable[pods.id])
        if remains.objects or remains.problems:
            return remains
        await asyncio.gather(
            *(
                self._empty_one(resource, namespace, ending, remains, collection=deletable[resource.id])
                for resource in served.values()
            )
        )
        return remains

    async def _empty_one(
        self, resource: Resource, namespace: str, ending: Ending, remains: Remains, *, collection: bool
    ) -> None:
        try:
            left = await self._listed(resource, namespace)
            doomed = [obj for obj in left if not is_deleting(obj)]
            if doomed:
                await self._delete(resource, namespace, doomed, collection=collection)
                left = await self._listed(resource, namespace)
        except ApiError as error:
            if not error.not_found:
                remains.problems.append(f"{resource.id}: {error.message}")
            return
        if left:
            remains.objects[resource.id] += len(left)
        else:
            ending.empty.add(resource)
        for obj in left:
            remains.finalizers.update(finalizers_of(obj))

    async def _listed(self, resource: Resource, namespace: str) -> list[Obj]:
        return await self.client.list(resource.api_version, resource.kind, namespace)

    async def _delete(self, resource: Resource, namespace: str, doomed: list[Obj], *, collection: bool) -> None:
        if collection:
            await self.client.delete_all(resource.api_version, resource.kind, namespace, propagation="Background")
            return
        for obj in doomed:
            await self.client.delete(
                resource.api_version,
                resource.kind,
                name_of(obj),
                namespace,
                propagation="Background",
                missing_ok=True,
            )

    async def _finalize(self, name: str) -> None:
        namespace = await self.client.get_or_none("v1", "Namespace", name)
        if namespace is None or not is_deleting(namespace):
            return
        left = [finalizer for finalizer in spec_of(namespace).get("finalizers") or [] if finalizer != FINALIZER]
        namespace["spec"] = spec_of(namespace) | {"finalizers": left}
        await self.client.update(namespace, subresource="finalize")

    async def _explain(self, name: str, remains: Remains) -> None:
        namespace = self.namespaces.get("", name)
        if namespace is None:
            return
        changed = copied(namespace)
        now = self.context.clock.now()
        for kind, value, reason, message in _words(remains):
            set_condition(changed, kind, value, reason, message, now=now)
        if status_of(changed) != status_of(namespace):
            self.namespaces.observe(await self.client.update_status(changed))


def _words(remains: Remains) -> list[tuple[str, bool, str, str]]:
    """(condition, status, reason, message) of each of the five, in the words that people search for."""
    problems = "; ".join(remains.problems)[:1000]
    objects = ", ".join(f"{_dotted(resource)} has {n} resource instances" for resource, n in _sorted(remains.objects))
    finalizers = ", ".join(f"{finalizer} in {n} resource instances" for finalizer, n in _sorted(remains.finalizers))
    return [
        (
            "NamespaceDeletionDiscoveryFailure",
            False,
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            bool(problems),
            "ContentDeletionFailed" if problems else "ContentDeleted",
            problems or "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            bool(objects),
            "SomeResourcesRemain" if objects else "ContentRemoved",
            f"Some resources are remaining: {objects}" if objects else "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            bool(finalizers),
            "SomeFinalizersRemain" if finalizers else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {finalizers}"
            if finalizers
            else "All content-preserving finalizers finished",
        ),
    ]


def _dotted(resource: str) -> str:
    """`configmaps.`, `deployments.apps`: a resource of the core group keeps its dot."""
    return resource if "." in resource else f"{resource}."


def _sorted(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items())

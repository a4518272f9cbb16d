"""An Application's manifests made ready for its cluster: in their namespaces, tracked, no object twice."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from regional.gitops.inventory import digest
from regional.gitops.manifests import ObjectKey, group_of, place, track
from regional.gitops.sources import Revisions, Sources
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, name_of, spec_of

REMEMBERED = 3  # renderings per Application: now, before, and a pin that goes back


@dataclass(slots=True)
class Targets:
    revisions: Revisions
    objects: list[Obj]
    types: list[str]
    repeated: list[str] = field(default_factory=list)


class TargetState:
    def __init__(self, client: Client, sources: Sources) -> None:
        self._client = client
        self.sources = sources
        self._known: dict[str, OrderedDict[str, Targets]] = {}

    def forget(self, application: str) -> None:
        self._known.pop(application, None)

    async def of(self, application: Obj, revisions: Revisions | None = None) -> Targets:
        """Raises ComparisonError. What an Application wants at given commits never changes, so it is kept."""
        revisions = revisions or await self.sources.resolve(application)
        name, spec = name_of(application), spec_of(application)
        wanted = {
            "sources": spec.get("sources") or spec.get("source"),
            "destination": spec.get("destination"),
            "commits": revisions.commits,
        }
        asked = digest(wanted)
        known = self._known.setdefault(name, OrderedDict())
        if asked in known:
            known.move_to_end(asked)
            return known[asked]
        rendering = await self.sources.render(application, revisions)
        objects, complete = await self._prepared(name, rendering.objects, spec)
        single, repeated = _without_repeats(objects)
        targets = Targets(revisions, single, rendering.types, repeated)
        if complete:
            known[asked] = targets
            while len(known) > REMEMBERED:
                known.popitem(last=False)
        return targets

    async def _prepared(self, application: str, rendered: Sequence[Obj], spec: Obj) -> tuple[list[Obj], bool]:
        """False in second place if a kind's scope had to be guessed, because the API does not know it yet."""
        namespace = (spec.get("destination") or {}).get("namespace") or ""
        scopes = _brought_scopes(rendered)
        objects, complete = [], True
        for source in rendered:
            obj = copy.deepcopy(source)
            namespaced = await self._namespaced(obj, scopes)
            complete = complete and namespaced is not None
            place(obj, namespaced is not False, namespace)
            obj.pop("status", None)
            # Hooks too: they are not compared, and not pruned, but go with their Application.
            track(obj, application, namespace)
            objects.append(obj)
        return objects, complete

    async def _namespaced(self, obj: Obj, scopes: dict[tuple[str, str], bool]) -> bool | None:
        brought = scopes.get((group_of(obj), obj["kind"]))
        if brought is not None:
            return brought
        try:
            return (await self._client.resource_for(obj["apiVersion"], obj["kind"])).namespaced
        except ApiError as error:
            if error.not_found:
                return None
            raise


def _brought_scopes(rendered: Sequence[Obj]) -> dict[tuple[str, str], bool]:
    found = {}
    for obj in rendered:
        if obj["kind"] == "CustomResourceDefinition":
            spec = spec_of(obj)
            kind = (spec.get("names") or {}).get("kind", "")
            found[spec.get("group", ""), kind] = spec.get("scope") == "Namespaced"
    return found


def _without_repeats(objects: Sequence[Obj]) -> tuple[list[Obj], list[str]]:
    """The last of several with one identity wins, as in Argo CD, and the Application says so."""
    last: dict[object, Obj] = {}
    seen: Counter[ObjectKey] = Counter()
    for number, obj in enumerate(objects):
        key = ObjectKey.of(obj)
        last[key if key.name else number] = obj  # hooks with generateName are named later
        seen[key] += 1
    repeated = [
        f"Resource {'/'.join((key.group, key.kind, key.namespace, key.name))} appeared {times} times "
        "among application resources."
        for key, times in seen.items()
        if times > 1 and key.name
    ]
    return list(last.values()), repeated

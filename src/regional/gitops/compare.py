"""Is the cluster as Git wants it? Asked of the API itself: a dry-run server-side apply, compared with what is there.

Defaults, quantities, list merge keys and fields dropped from Git all come out right this way, because the server that
answers is the one that would apply. Each answer is remembered by what was asked (the wanted object's digest) and of
what (the live object's content), so a cluster at rest is asked nothing.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from regional.gitops.health import MISSING, Health, has_health, health_of, worst
from regional.gitops.inventory import Inventory, content, digest
from regional.gitops.manifests import ObjectKey, tracked_by, version_part
from regional.gitops.operation import FIELD_MANAGER
from regional.gitops.waves import hook_phases, options_of, wave_of
from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Obj, annotations_of, is_deleting

SYNCED, OUT_OF_SYNC, UNKNOWN = "Synced", "OutOfSync", "Unknown"
IGNORE_HEALTH = "argocd.argoproj.io/ignore-healthcheck"
COMPARE_OPTIONS = "argocd.argoproj.io/compare-options"


@dataclass(slots=True)
class Compared:
    key: ObjectKey
    version: str
    target: Obj | None
    live: Obj | None
    status: str
    requires_pruning: bool = False
    health: Health | None = None

    def fields(self) -> Obj:
        """An entry of status.resources."""
        wave = wave_of(self.target or self.live or {})
        return (
            ({"group": self.key.group} if self.key.group else {})
            | {"version": self.version, "kind": self.key.kind}
            | ({"namespace": self.key.namespace} if self.key.namespace else {})
            | {"name": self.key.name, "status": self.status}
            | ({"health": self.health.fields()} if self.health else {})
            | ({"requiresPruning": True} if self.requires_pruning else {})
            | ({"syncWave": wave} if wave else {})
        )


@dataclass(slots=True)
class Comparison:
    resources: list[Compared] = field(default_factory=list)
    prunable: list[Obj] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        out = any(r.status == OUT_OF_SYNC and not _ignored(r) for r in self.resources)
        return OUT_OF_SYNC if out else SYNCED

    @property
    def health(self) -> Health:
        return worst(
            r.health
            for r in self.resources
            if r.health is not None and annotations_of(r.target or r.live or {}).get(IGNORE_HEALTH) != "true"
        )

    def out_of_sync(self) -> list[Compared]:
        return [r for r in self.resources if r.status == OUT_OF_SYNC]


def _ignored(compared: Compared) -> bool:
    """`IgnoreExtraneous`: an object that only waits to be pruned does not make the Application OutOfSync."""
    options = annotations_of(compared.live or {}).get(COMPARE_OPTIONS, "")
    return compared.requires_pruning and "IgnoreExtraneous" in options


class Comparer:
    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory
        self._answers: dict[tuple[str, ObjectKey], tuple[str, str, bool]] = {}

    def forget(self, application: str) -> None:
        for known in [known for known in self._answers if known[0] == application]:
            del self._answers[known]

    def applied(self, application: str, target: Obj, live: Obj) -> None:
        """The server's answer to an apply is by definition in sync with what was applied."""
        key = ObjectKey.of(target)
        self._answers[application, key] = (digest(target), self._inventory.content_digest(live), True)

    async def compare(self, application: str, targets: Sequence[Obj], ignore: Sequence[Obj] = ()) -> Comparison:
        wanted = [target for target in targets if not hook_phases(target)]
        hooks = {ObjectKey.of(target) for target in targets if hook_phases(target)}
        keys = {ObjectKey.of(target) for target in wanted}
        # A few at a time: each is a request to a server that has other clients.
        gate = asyncio.Semaphore(4)

        async def one(target: Obj) -> Compared:
            async with gate:
                return await self._one(application, target, ignore)

        result = Comparison(list(await asyncio.gather(*(one(target) for target in wanted))))
        for key, live in sorted(self._inventory.tracked(application).items()):
            if key in keys or key in hooks or hook_phases(live):
                continue
            result.prunable.append(live)
            result.resources.append(
                Compared(
                    key, version_part(live), None, live, OUT_OF_SYNC, requires_pruning=True, health=health_of(live)
                )
            )
        result.shared = _shared(application, result.resources)
        return result

    async def _one(self, application: str, target: Obj, ignore: Sequence[Obj]) -> Compared:
        key = ObjectKey.of(target)
        live = self._inventory.get(key)
        found = Compared(key, version_part(target), target, live, OUT_OF_SYNC)
        if live is None:
            found.health = Health(MISSING) if has_health(key.group, key.kind) else None
            return found
        found.health = health_of(live)
        if await self._same(application, key, target, live, ignore):
            found.status = SYNCED
        return found

    async def _same(self, application: str, key: ObjectKey, target: Obj, live: Obj, ignore: Sequence[Obj]) -> bool:
        asked, of = digest(target), self._inventory.content_digest(live)
        known = self._answers.get((application, key))
        if known and known[:2] == (asked, of):
            return known[2]
        try:
            predicted = await self._client.apply(target, field_manager=FIELD_MANAGER, force=True, dry_run=True)
        except ApiUnreachable:
            raise
        except ApiError:
            # It cannot be applied as it is; the sync that follows says why.
            same = False
        else:
            pointers = list(_pointers(ignore, key))
            same = _without(content(predicted), pointers) == _without(content(live), pointers)
        self._answers[application, key] = (asked, of, same)
        return same


def _pointers(ignore: Sequence[Obj], key: ObjectKey) -> Iterable[str]:
    for rule in ignore:
        fits = rule.get("group", "") in ("*", key.group) and rule.get("kind") in ("*", key.kind)
        fits = fits and rule.get("name", key.name) == key.name
        if fits and rule.get("namespace", key.namespace) == key.namespace:
            yield from rule.get("jsonPointers") or []


def _without(obj: Obj, pointers: Sequence[str]) -> Obj:
    if not pointers:
        return obj
    trimmed = copy.deepcopy(obj)
    for pointer in pointers:
        drop_pointer(trimmed, pointer)
    return trimmed


def drop_pointer(obj: Obj, pointer: str) -> None:
    """Remove what a JSON pointer names, if it is there."""
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]] or [""]
    place: Any = obj
    for part in path:
        place = _child(place, part)
    if isinstance(place, dict):
        place.pop(last, None)
    elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
        del place[int(last)]


def _child(place: Any, part: str) -> Any:
    if isinstance(place, dict):
        return place.get(part)
    if isinstance(place, list) and part.isdigit() and int(part) < len(place):
        return place[int(part)]
    return None


def _shared(application: str, resources: Sequence[Compared]) -> list[str]:
    found = []
    for resource in resources:
        owner = tracked_by(resource.live) if resource.live else None
        if owner and owner != application and resource.live and not is_deleting(resource.live):
            found.append(f"{resource.key.kind}/{resource.key.name} is part of applications {application} and {owner}")
    return found


def prune_allowed(obj: Obj) -> bool:
    return options_of(obj).get("Prune") != "false"

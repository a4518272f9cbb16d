"""Is the cluster as Git wants it? Asked of the API itself: a dry-run server-side apply, compared with what is there.

Defaults, quantities, list merge keys and fields dropped from Git all come out right this way, because the server that
answers is the one that would apply. Each answer is remembered by what was asked (the wanted object's digest) and of
what (the live object's content), so a cluster at rest is asked nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from regional.gitops.health import MISSING, Health, has_health, health_of, worst
from regional.gitops.ignoring import managers_of, rules_for, without_ignored
from regional.gitops.inventory import CRD_KIND, Inventory, content, digest
from regional.gitops.manifests import ObjectKey, tracked_by, version_part
from regional.gitops.operation import FIELD_MANAGER
from regional.gitops.waves import hook_phases, spared, wave_of
from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Obj, annotations_of, is_deleting, name_of, namespace_of

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
        self._answers: dict[tuple[str, ObjectKey], tuple[str, str, str, bool]] = {}

    def forget(self, application: str) -> None:
        for known in [known for known in self._answers if known[0] == application]:
            del self._answers[known]

    def applied(self, application: str, target: Obj, live: Obj, ignore: Sequence[Obj] = ()) -> None:
        """The server's answer to an apply is by definition in sync with what was applied."""
        key = ObjectKey.of(target)
        rules = digest({"rules": rules_for(ignore, key)})
        self._answers[application, key] = (digest(target), self._inventory.content_digest(live), rules, True)

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
            # A definition that left Git stays, with all objects of its kind; to Argo CD it is nobody's, too.
            if key in keys or key in hooks or hook_phases(live) or key.kind == CRD_KIND:
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
        rules = rules_for(ignore, key)
        question = (digest(target), self._inventory.content_digest(live), digest({"rules": rules}))
        known = self._answers.get((application, key))
        if known and known[:3] == question:
            return known[3]
        try:
            predicted = await self._client.apply(target, field_manager=FIELD_MANAGER, force=True, dry_run=True)
            managed = await self._managed(target, rules)
        except ApiUnreachable:
            raise
        except ApiError:
            # It cannot be applied as it is; the sync that follows says why.
            same = False
        else:
            wanted, there = (without_ignored(content(obj), rules, managed) for obj in (predicted, live))
            same = wanted == there
        self._answers[application, key] = (*question, same)
        return same

    async def _managed(self, target: Obj, rules: Sequence[Obj]) -> Sequence[Obj]:
        """Who manages what of the live object: asked for only if a rule wants to know, since caches do not keep it."""
        if not managers_of(rules):
            return ()
        live = await self._client.get_or_none(
            target["apiVersion"], target["kind"], name_of(target), namespace_of(target) or None
        )
        return ((live or {}).get("metadata") or {}).get("managedFields") or ()


def _shared(application: str, resources: Sequence[Compared]) -> list[str]:
    found = []
    for resource in resources:
        owner = tracked_by(resource.live) if resource.live else None
        if owner and owner != application and resource.live and not is_deleting(resource.live):
            found.append(f"{resource.key.kind}/{resource.key.name} is part of applications {application} and {owner}")
    return found


def prune_allowed(obj: Obj) -> bool:
    return not spared(obj, "Prune")

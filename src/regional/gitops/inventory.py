"""What the cluster holds, of the kinds that Applications use: one informer per kind, started when first needed.

Objects that carry a tracking mark are found by their Application. Kinds that the API does not know (yet) are
remembered, so that the arrival of their CRD can wake those who wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable

import msgspec

from regional.gitops.manifests import ObjectKey, tracked_by
from regional.kube.client import ApiError, Client, Informer, without_managed_fields
from regional.kube.objects import Obj, is_true, owners_of, uid_of, version_of

CRD_VERSION = "apiextensions.k8s.io/v1"
CRD_KIND = "CustomResourceDefinition"
_TRACKED = "application"
Changed = Callable[[ObjectKey, set[str]], None]
"""(which object, the Applications it is or was tracked by)"""

_VOLATILE = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_encoder = msgspec.json.Encoder(order="deterministic")


def content(obj: Obj) -> Obj:
    """An object without what the server alone decides: two of these are equal when nothing has to be applied."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _VOLATILE}
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")} | {"metadata": metadata}


def digest(obj: Obj) -> str:
    return hashlib.sha256(_encoder.encode(obj)).hexdigest()


class Inventory:
    def __init__(self, client: Client, changed: Changed) -> None:
        self._client = client
        self._changed = changed
        self._informers: dict[tuple[str, str], Informer] = {}
        self._starting: dict[tuple[str, str], asyncio.Lock] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._on_kinds: list[Callable[[], None]] = []

    async def start(self) -> None:
        """The CRDs are always watched: a new one may be what somebody waits for."""
        informer = await self.ensure(CRD_VERSION, CRD_KIND)
        assert informer is not None
        informer.add_listener(self._definition_changed)

    async def close(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))

    def on_new_kinds(self, listener: Callable[[], None]) -> None:
        self._on_kinds.append(listener)

    async def ensure(self, api_version: str, kind: str) -> Informer | None:
        """The informer of a kind, in sync; None if the API does not serve that kind."""
        place = (api_version.rpartition("/")[0], kind)
        async with self._starting.setdefault(place, asyncio.Lock()):
            informer = self._informers.get(place)
            if informer is None:
                try:
                    await self._client.resource_for(api_version, kind)
                except ApiError as error:
                    if error.not_found:
                        return None
                    raise
                informer = Informer(self._client, api_version, kind, keep=without_managed_fields)
                informer.index(_TRACKED, _tracking)
                informer.add_listener(self._heard)
                informer.start()
                self._informers[place] = informer
        await informer.synced()
        return informer

    def serves(self, group: str, kind: str) -> bool:
        return (group, kind) in self._informers

    def get(self, key: ObjectKey) -> Obj | None:
        informer = self._informers.get((key.group, key.kind))
        return informer.get(key.namespace, key.name) if informer else None

    def tracked(self, application: str) -> dict[ObjectKey, Obj]:
        """Objects of an Application. One that has an owner is its owner's business, whatever it is marked with."""
        found = {}
        for informer in self._informers.values():
            for obj in informer.indexed(_TRACKED, application):
                if not owners_of(obj):
                    found[ObjectKey.of(obj)] = obj
        return found

    def observe(self, obj: Obj) -> None:
        key = ObjectKey.of(obj)
        if informer := self._informers.get((key.group, key.kind)):
            informer.observe(obj)

    def content_digest(self, obj: Obj) -> str:
        """Kept per version of the object, because status changes come often and change nothing here."""
        uid, version = uid_of(obj), version_of(obj)
        known = self._digests.get(uid)
        if known and known[0] == version:
            return known[1]
        found = digest(content(obj))
        self._digests[uid] = (version, found)
        return found

    async def drop_kind(self, group: str, kind: str) -> None:
        if informer := self._informers.pop((group, kind), None):
            await informer.stop()

    def _heard(self, kind: str, obj: Obj, old: Obj | None) -> None:
        applications = {name for name in (tracked_by(obj), tracked_by(old) if old else None) if name}
        if kind == "DELETED":
            self._digests.pop(uid_of(obj), None)
        self._changed(ObjectKey.of(obj), applications)

    def _definition_changed(self, kind: str, obj: Obj, old: Obj | None) -> None:
        spec = obj.get("spec") or {}
        if kind == "DELETED":
            # Its objects went with it; a watch on a path that is gone would only fail for ever.
            names = spec.get("names") or {}
            self._dropping = asyncio.get_running_loop().create_task(
                self.drop_kind(spec.get("group", ""), names.get("kind", ""))
            )
        elif is_true(obj, "Established") and not (old and is_true(old, "Established")):
            for listener in self._on_kinds:
                listener()


def _tracking(obj: Obj) -> Iterable[str]:
    application = tracked_by(obj)
    return (application,) if application else ()

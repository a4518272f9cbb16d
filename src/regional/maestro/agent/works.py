"""Works in memory: the newest spec of each bundle of this consumer, and what became of it.

Only a newer spec replaces a spec, only the deletion of what we have or of something newer ends it, and nothing takes
back a deletion: a work that is being deleted stays so until it is gone, whatever else arrives or is still under way.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.maestro.protocol.bundles import (
    DEEPEST,
    LARGEST_BUNDLE,
    ManifestBundle,
    decode_data,
    is_deep,
    without_nulls,
)
from regional.maestro.protocol.events import DATA_TYPE, Event, MalformedEvent, moment
from regional.maestro.protocol.tracing import request_id_of

FINALIZER = "cluster.open-cluster-management.io/manifest-work-cleanup"
ORIGINAL_SOURCE = "cloudevents.open-cluster-management.io/originalsource"
_DATA_TYPE = "cloudevents.open-cluster-management.io/datatype"
GRAVES = 4096
GRAVE_SECONDS = 60.0


class Ref(msgspec.Struct, frozen=True):
    """An object on the cluster. `resource` is the plural; "" if the cluster does not know the kind."""

    api_version: str
    kind: str
    namespace: str
    name: str
    resource: str = ""

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


class Result(msgspec.Struct, frozen=True):
    """What came of one manifest. `fault` is "" when it is applied."""

    ref: Ref
    uid: str = ""
    fault: str = ""
    retry: bool = False
    """Whether trying again soon may help."""
    denied: bool = False
    """By the rights of the bundle's executor: asked again after a while."""
    digest: str = ""
    """Of what was applied; with the object's revision after it. While both stay, all is as it was left."""
    revision: str = ""
    content: str = ""
    """The hash of the manifest alone, if it is one that can be complete."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of one generation of a work, manifest by manifest in their order."""

    generation: int
    results: tuple[Result, ...]

    @property
    def complete(self) -> bool:
        return not any(result.fault for result in self.results)


class Work(msgspec.Struct, kw_only=True):
    id: str
    name: str
    generation: int
    source: str
    metadata: Obj
    request_id: str
    bundle: ManifestBundle | None
    """None if only the deletion of the work was ever heard of."""
    deletion: str = ""
    received: float = 0.0
    outcome: Outcome | None = None
    failures: int = 0
    conditions: list[Obj] = []
    resource_status: list[Obj] = []
    sent_hash: str = ""
    sequence: int = 0
    """Of the last status that was sent. A clock that has gone back over a restart must not begin below it."""
    status_due: bool = False
    """The server asked, or has sent again what we have: it lacks our status."""
    resync: bool = False
    deleting_said: bool = False

    def object_meta(self, consumer: str) -> Obj:
        labels = (self.metadata.get("labels") or {}) | {ORIGINAL_SOURCE: self.source}
        annotations = (self.metadata.get("annotations") or {}) | {_DATA_TYPE: DATA_TYPE}
        meta: Obj = {
            "name": self.name,
            "namespace": consumer,
            "uid": self.id,
            "generation": self.generation,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [FINALIZER],
        }
        if created := self.metadata.get("creationTimestamp"):
            meta["creationTimestamp"] = created
        if self.deletion:
            meta["deletionTimestamp"] = self.deletion
        return meta


class Taken(enum.Enum):
    """What an event did to the works."""

    NEWS = "news"
    REPEATED = "repeated"
    OUTDATED = "outdated"
    DELETION = "deletion"


class Works:
    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._graves: OrderedDict[str, tuple[int, str, float]] = OrderedDict()

    def get(self, work_id: str) -> Work | None:
        return self._works.get(work_id)

    def __iter__(self) -> Iterator[Work]:
        return iter(list(self._works.values()))

    def __len__(self) -> int:
        return len(self._works)

    def names(self) -> set[str]:
        return {work.name for work in self._works.values()}

    def take(self, event: Event, now: float) -> Taken:
        """Raises MalformedEvent; nothing has changed then."""
        if not event.resource_id:
            raise MalformedEvent("no resourceid")
        deletion = event.extensions.get("deletiontimestamp", "")
        known = self._works.get(event.resource_id)
        if deletion:
            return self._delete(event, known, deletion, now)
        if known is not None:
            if known.deletion or 0 < event.version < known.generation:
                return Taken.OUTDATED
            if event.version == known.generation:
                known.status_due = True
                return Taken.REPEATED
        elif self._is_ghost(event, now):
            return Taken.OUTDATED
        bundle = checked_bundle(event.data)
        fresh = self._made(event, bundle, now)
        if known is not None:
            fresh.outcome, fresh.conditions, fresh.resource_status = (
                known.outcome,
                known.conditions,
                known.resource_status,
            )
            fresh.sent_hash, fresh.sequence = known.sent_hash, known.sequence
            fresh.name = known.name  # that of its record on the cluster, whatever the new metadata calls it
        self._works[event.resource_id] = fresh
        return Taken.NEWS

    def _delete(self, event: Event, known: Work | None, deletion: str, now: float) -> Taken:
        if known is None:
            bundle = None
            if event.data:
                try:
                    bundle = checked_bundle(event.data)
                except MalformedEvent:
                    bundle = None  # the record on the cluster says what to delete
            known = self._made(event, bundle, now)
            self._works[event.resource_id] = known
        elif known.deletion:
            known.status_due = True
            known.generation = max(known.generation, event.version)
            return Taken.REPEATED
        elif 0 < event.version < known.generation:
            return Taken.OUTDATED  # of a former life: a bundle made anew under its old id goes on counting
        known.deletion = deletion
        known.generation = max(known.generation, event.version)
        known.request_id = request_id_of(event.extensions) or known.request_id
        return Taken.DELETION

    def _made(self, event: Event, bundle: ManifestBundle | None, now: float) -> Work:
        metadata = _metadata(event)
        return Work(
            id=event.resource_id,
            name=str(metadata.get("name") or event.resource_id),
            generation=event.version,
            source=event.source,
            metadata=metadata,
            request_id=request_id_of(event.extensions),
            bundle=bundle,
            received=now,
        )

    def put_back(self, work: Work, now: float) -> None:
        """A work that was kept over a restart."""
        work.received, work.failures, work.deleting_said = now, 0, False
        self._works[work.id] = work

    def gone(self, work: Work, now: float) -> None:
        if self._works.get(work.id) is work:
            del self._works[work.id]
        self._graves[work.id] = (work.generation, work.deletion, now)
        self._graves.move_to_end(work.id)
        while len(self._graves) > GRAVES:
            self._graves.popitem(last=False)

    def _is_ghost(self, event: Event, now: float) -> bool:
        """A spec sent before a deletion that we have carried out already: applying it would bring the dead back.

        A bundle made anew under the same id is told from it by its version or its time; and a grave is kept for a
        minute only, so that clocks that disagree delay such a bundle and do not stop it.
        """
        grave = self._graves.get(event.resource_id)
        if grave is None:
            return False
        generation, deletion, dug = grave
        if now - dug > GRAVE_SECONDS or event.version > generation or not event.time:
            return False
        try:
            return moment(event.time) <= moment(deletion)
        except MalformedEvent:
            return False


def _metadata(event: Event) -> Obj:
    text = event.extensions.get("metadata", "")
    try:
        decoded: Any = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedEvent(f"metadata: {error}") from None
    if not isinstance(decoded, dict):
        return {}
    for field in ("labels", "annotations"):
        if not isinstance(decoded.get(field) or {}, dict):
            raise MalformedEvent(f"metadata: {field} is not a map")
    return decoded


def _decoded(data: bytes) -> ManifestBundle:
    """Options in which something is null are those without it. Manifests are left as they are."""
    try:
        bundle: ManifestBundle = decode_data(data, ManifestBundle)
    except MalformedEvent:
        raw: dict[str, Any] = decode_data(data, dict[str, Any])
        options = {name: raw.get(name) for name in ("deleteOption", "manifestConfigs", "executer")}
        if b"null" not in data or is_deep(options):
            raise
        bundle = decode_data(msgspec.json.encode(raw | without_nulls(options)), ManifestBundle)
    return bundle


def checked_bundle(data: bytes) -> ManifestBundle:
    if len(data) > LARGEST_BUNDLE:
        raise MalformedEvent(f"the bundle has {len(data)} bytes, more than {LARGEST_BUNDLE}")
    bundle = _decoded(data)
    if not bundle.manifests:
        raise MalformedEvent("the bundle has no manifest")
    for index, manifest in enumerate(bundle.manifests):
        if is_deep(manifest):
            raise MalformedEvent(f"manifest {index} is nested deeper than {DEEPEST} levels")
        metadata = manifest.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        identity = (manifest.get("apiVersion"), manifest.get("kind"), metadata.get("name"))
        if not all(isinstance(part, str) and part for part in identity):
            raise MalformedEvent(f"manifest {index} has no apiVersion, kind or name")
        if not isinstance(metadata.get("namespace") or "", str):
            raise MalformedEvent(f"manifest {index} has a namespace that is no text")
        if metadata.get("generateName"):
            raise MalformedEvent(f"manifest {index} has a generateName")
    return bundle

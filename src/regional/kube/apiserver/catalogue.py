"""What this cluster serves right now: the built-in kinds and those of its CRDs.

A CRD is served the moment it is stored (the catalogue observes the store), so a client that has its answer can use the
new kind with its next request. `generation` counts changes; discovery and OpenAPI documents are cached against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec

from regional.kube.apiserver.entries import Key, Obj
from regional.kube.apiserver.errors import PageNotFound, no_such_resource
from regional.kube.apiserver.shelf import Event
from regional.kube.apiserver.store import SelectableFields, Store
from regional.kube.objects import is_true
from regional.kube.schema.registry import BUILTINS, Kind, by_kind, by_plural, custom_kinds, group_versions, kinds_of
from regional.kube.schema.types import Schema, from_crd, schema_of

CRDS = "customresourcedefinitions.apiextensions.k8s.io"

# Equality on these is how clients find the few objects that concern them: describe's events, a node's pods.
_INDEXED = {"events": ("involvedObject.uid", "involvedObject.name"), "pods": ("spec.nodeName",)}


def store_name(kind: Kind) -> str:
    """The shelf that holds a kind's objects: `pods`, `widgets.demo.io`."""
    group, plural = kind.store
    return f"{plural}.{group}" if group else plural


_SPECS_KEPT = 256
_specs: dict[bytes, Obj] = {}


def shared_spec(crd: Obj) -> Obj:
    """The CRD with an equal spec that this process knows already, if it does: in memory a spec may have megabytes,
    and most clusters of a process have the same ones. Nobody may change it."""
    digest = hashlib.blake2b(msgspec.json.encode(crd["spec"]), digest_size=16).digest()
    if digest not in _specs and len(_specs) >= _SPECS_KEPT:
        _specs.pop(next(iter(_specs)))
    return crd | {"spec": _specs.setdefault(digest, crd["spec"])}


class Custom:
    """One CRD as served: its kinds by version, and from which revision on its objects need no second look."""

    def __init__(self, crd: Obj, revision: int) -> None:
        spec = crd["spec"]
        self.crd = crd
        self.group: str = spec["group"]
        self.plural: str = spec["names"]["plural"]
        self.kinds = {kind.version: kind for kind in custom_kinds(crd)}
        self.schemas: dict[str, Schema] = {}
        self.deleting = bool(crd["metadata"].get("deletionTimestamp"))
        schemas = [version.get("schema") for version in spec["versions"]]
        self.one_schema = all(schema == schemas[0] for schema in schemas)
        self.settled = revision
        self.storage: str = next(version["name"] for version in spec["versions"] if version.get("storage"))
        self._stored: Schema | None = None

    @property
    def stored_schema(self) -> Schema:
        """Of the version that objects are kept in, served or not."""
        if self._stored is None:
            declared = next(version for version in self.crd["spec"]["versions"] if version["name"] == self.storage)
            self._stored = from_crd((declared.get("schema") or {}).get("openAPIV3Schema"))
        return self._stored

    def schema(self, kind: Kind) -> Schema:
        if kind.version not in self.schemas:
            self.schemas[kind.version] = schema_of(kind)
        return self.schemas[kind.version]

    def clean(self, revision: int) -> bool:
        """Objects written after the last change of the CRD are as this schema wants them already."""
        return self.one_schema and revision > self.settled


class Catalogue:
    def __init__(self) -> None:
        self._customs: dict[tuple[str, str], Custom] = {}
        self._store: Store | None = None
        self.generation = 1

    def selectable(self, resource: str) -> SelectableFields:
        plural, _, group = resource.partition(".")
        if group and (custom := self._customs.get((group, plural))) is not None:
            fields = dict.fromkeys(path for kind in custom.kinds.values() for path in kind.selectable_fields)
            return SelectableFields(tuple(fields))
        for kind in BUILTINS:
            if kind.store == (group, plural) and (kind.group, kind.plural) == kind.store:
                return SelectableFields(kind.selectable_fields, _INDEXED.get(resource, ()))
        return SelectableFields()

    def attach(self, store: Store) -> None:
        self._store = store
        for entry in store.shelf(CRDS).entries.values():
            self._learn(entry.key, entry.obj(), entry.revision)
        store.observe(self._follow)

    def _follow(self, resource: str, event: Event) -> None:
        if resource == CRDS:
            self._learn(event.entry.key, None if event.type == "DELETED" else event.entry.obj(), event.revision)

    def _learn(self, key: Key, crd: Obj | None, revision: int) -> None:
        plural, _, group = key[1].partition(".")
        before = self._customs.get((group, plural))
        crd = shared_spec(crd) if crd is not None else None
        if crd is None or not is_true(crd, "Established"):
            self._customs.pop((group, plural), None)
            if crd is None and before is not None and self._store is not None:
                self._store.shelf(f"{plural}.{group}").close_watches()
        elif before is None or before.crd["spec"] != crd["spec"]:
            self._customs[group, plural] = Custom(crd, revision)
        else:  # only status or metadata moved: what was compiled stays
            before.crd = crd
            before.deleting = bool(crd["metadata"].get("deletionTimestamp"))
            return
        self.generation += 1
        if self._store is not None:
            self._store.reselect(f"{plural}.{group}")

    # --- look-ups ------------------------------------------------------------------------------------------------

    def find(self, group: str, version: str, plural: str) -> Kind:
        kind = by_plural(group, version, plural)
        if kind is not None:
            return kind
        custom = self._customs.get((group, plural))
        if custom is not None and version in custom.kinds:
            return custom.kinds[version]
        if group in group_versions():
            raise no_such_resource()
        raise PageNotFound

    def by_kind(self, group: str, version: str, kind: str) -> Kind | None:
        found = by_kind(group, version, kind)
        if found is not None:
            return found
        for custom in self._customs.values():
            row = custom.kinds.get(version)
            if row is not None and row.group == group and row.kind == kind:
                return row
        return None

    def custom(self, kind: Kind) -> Custom | None:
        return self._customs.get((kind.group, kind.plural)) if kind.custom is not None else None

    def schema(self, kind: Kind) -> Schema:
        custom = self.custom(kind)
        return custom.schema(kind) if custom is not None else schema_of(kind)

    def served(self, kind: Kind) -> list[str]:
        """All apiVersions of a custom kind; none for built-in kinds, which have but one."""
        custom = self.custom(kind)
        return [each.api_version for each in custom.kinds.values()] if custom is not None else []

    def customs(self) -> Iterable[Custom]:
        return self._customs.values()

    # --- what discovery tells ------------------------------------------------------------------------------------

    def versions(self) -> dict[str, list[str]]:
        """Group → versions, preferred first; built-in groups first, then the CRDs' by name."""
        found = {group: list(versions) for group, versions in group_versions().items()}
        for group, _ in sorted(self._customs):
            versions = found.setdefault(group, [])
            for custom in self._customs.values():
                if custom.group == group:
                    versions += [version for version in custom.kinds if version not in versions]
            if group not in group_versions():
                versions.sort(key=version_priority)
        return {group: versions for group, versions in found.items() if versions}

    def kinds(self, group: str, version: str) -> list[Kind]:
        rows = list(kinds_of(group, version))
        customs = sorted(self._customs.values(), key=lambda each: each.plural)
        return rows + [each.kinds[version] for each in customs if each.group == group and version in each.kinds]


_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sorts v2, v1, v1beta2, v1beta1, v1alpha1, and after them everything that is no Kubernetes version."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match.group(2)]
    return (stage, -int(match.group(1)), -int(match.group(3) or 0), version)

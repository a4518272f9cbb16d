"""The kinds this API serves, and how to find them.

Behaviour that differs between kinds (scope, verbs, who bumps the generation, what a PUT may create) is read from rows
by code that is the same for all of them. Custom kinds get the same rows, made from their CustomResourceDefinition.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from regional.kube.objects import Obj
from regional.kube.schema.kind import ALL_VERBS, SCALE, STATUS, STATUS_VERBS, Kind, Subresource
from regional.kube.schema.kinds import BODY_KINDS, BUILTINS

__all__ = [
    "ALL_VERBS",
    "BODY_KINDS",
    "BUILTINS",
    "STATUS_VERBS",
    "Kind",
    "Subresource",
    "by_kind",
    "by_plural",
    "custom_kinds",
    "group_versions",
    "kinds_of",
]


@cache
def _plurals() -> dict[tuple[str, str, str], Kind]:
    return {(row.group, row.version, row.plural): row for row in BUILTINS}


@cache
def _kinds() -> dict[tuple[str, str, str], Kind]:
    return {(row.group, row.version, row.kind): row for row in (*BUILTINS, *BODY_KINDS)}


def by_plural(group: str, version: str, plural: str) -> Kind | None:
    return _plurals().get((group, version, plural))


def by_kind(group: str, version: str, kind: str) -> Kind | None:
    """Also finds the kinds of subresource bodies (Scale, TokenRequest, Eviction)."""
    return _kinds().get((group, version, kind))


@cache
def group_versions() -> dict[str, tuple[str, ...]]:
    """Group → its versions, preferred first."""
    versions: dict[str, dict[str, None]] = {}
    for row in BUILTINS:
        versions.setdefault(row.group, {})[row.version] = None
    return {group: tuple(found) for group, found in versions.items()}


@cache
def kinds_of(group: str, version: str) -> tuple[Kind, ...]:
    return tuple(row for row in BUILTINS if row.group == group and row.version == version)


# The same as of built-in kinds; only the order, in which discovery tells them, is another.
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def custom_kinds(crd: Obj) -> tuple[Kind, ...]:
    """One row per served version of a CustomResourceDefinition, in the order of its versions."""
    spec = crd["spec"]
    names = spec["names"]
    return tuple(_custom(spec, names, version) for version in spec["versions"] if version.get("served"))


def _custom(spec: Obj, names: Obj, version: Obj) -> Kind:
    subresources = []
    declared = version.get("subresources") or {}
    if declared.get("status") is not None:
        subresources.append(STATUS)
    if declared.get("scale") is not None:
        subresources.append(SCALE)
    subresources.sort(key=lambda entry: entry.name)
    warning = ""
    if version.get("deprecated"):
        default = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
        warning = version.get("deprecationWarning") or default
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=_CUSTOM_VERBS,
        subresources=tuple(subresources),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        generation=True,
        unconditional_update=False,
        store=(spec["group"], names["plural"]),
        selectable_fields=tuple(_selectable(version.get("selectableFields") or ())),
        custom=version,
        deprecation=warning,
    )


def _selectable(fields: Iterable[Obj]) -> Iterable[str]:
    for field in fields:
        yield field["jsonPath"].removeprefix(".")

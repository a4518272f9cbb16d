"""What a CustomResourceDefinition must satisfy before its kind is served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cel import compile_problems
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import forbidden, invalid, one_of, required
from regional.kube.schema.names import dns_1035_label, dns_label, dns_subdomain

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def validate_crd(crd: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    yield from _names(spec, names)
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if (crd.get("metadata") or {}).get("name") != wanted:
        yield invalid(
            "metadata.name", (crd.get("metadata") or {}).get("name"), 'must be spec.names.plural+"."+spec.group'
        )
    if spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema")
    yield from _versions(spec)
    if old is not None:
        yield from _update(spec, old.get("spec") or {})


def _names(spec: Obj, names: Obj) -> Iterator[FieldError]:
    group = spec.get("group")
    if not group:
        yield required("spec.group")
    else:
        for text in dns_subdomain(group):
            yield invalid("spec.group", group, text)
        if "." not in group:
            yield invalid("spec.group", group, "should be a domain with at least one dot")
    if not spec.get("scope"):
        yield required("spec.scope")
    else:
        yield from one_of("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field)
        if not value:
            yield required(f"spec.names.{field}")
            continue
        for text in dns_1035_label(value.lower()):
            yield invalid(f"spec.names.{field}", value, text)
        if field in ("plural", "singular") and value != value.lower():
            for text in dns_1035_label(value):
                yield invalid(f"spec.names.{field}", value, text)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _versions(spec: Obj) -> Iterator[FieldError]:
    versions = spec.get("versions") or []
    if not versions:
        yield required("spec.versions", "must have exactly one version marked as storage version")
        return
    stored = sum(bool(version.get("storage")) for version in versions)
    if stored != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    seen: set[str] = set()
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        name = version.get("name") or ""
        for text in dns_1035_label(name):
            yield invalid(f"{where}.name", name, text)
        if name in seen:
            yield invalid("spec.versions", name, "must contain unique version names")
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{where}.schema.openAPIV3Schema", "schemas are required")
        else:
            field = f"{where}.schema.openAPIV3Schema"
            yield from _structural(schema, field, root=True)
            yield from compile_problems(schema, field)
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            for key in ("jsonPath", "name", "type"):
                if not column.get(key):
                    yield required(f"{where}.additionalPrinterColumns[{number}].{key}")
    for name in spec.get("shortNames") or ():
        for text in dns_label(name):
            yield invalid("spec.names.shortNames", name, text)


def _structural(schema: Any, field: str, *, root: bool = False) -> Iterator[FieldError]:
    """Every value has one type, so that pruning and defaulting are never in doubt."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    loose = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if root and kind != "object":
        yield invalid(f"{field}.type", kind or "", "must be object at the root")
    elif not kind and not loose:
        yield required(f"{field}.type", "must not be empty for specified object fields")
    elif kind:
        yield from one_of(f"{field}.type", kind, _TYPES)
    if schema.get("properties") and schema.get("additionalProperties"):
        yield forbidden(f"{field}.additionalProperties", "additionalProperties and properties are mutually exclusive")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{field}.items", "must be specified")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{field}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    yield from _list_type(schema, field)
    for name, child in (schema.get("properties") or {}).items():
        if root and name == "metadata":
            continue
        yield from _structural(child, f"{field}.properties[{name}]")
    yield from _structural(schema.get("items"), f"{field}.items")
    yield from _structural(schema.get("additionalProperties"), f"{field}.additionalProperties")


def _list_type(schema: Obj, field: str) -> Iterator[FieldError]:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type is None:
        return
    yield from one_of(f"{field}.x-kubernetes-list-type", list_type, ("atomic", "map", "set"))
    if list_type != "map":
        return
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{field}.x-kubernetes-list-map-keys", text)
    items = schema.get("items") or {}
    for key in keys:
        if key not in (items.get("properties") or {}):
            text = "entries in x-kubernetes-list-map-keys must all be names of item properties"
            yield invalid(f"{field}.x-kubernetes-list-map-keys", keys, text)
        elif key not in (items.get("required") or ()) and "default" not in items["properties"][key]:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{field}.items.properties[{key}].default", text)


def _update(spec: Obj, before: Obj) -> Iterator[FieldError]:
    for path in ("group", "scope"):
        if spec.get(path) != before.get(path):
            yield invalid(f"spec.{path}", spec.get(path), "field is immutable")
    for path in ("kind", "plural"):
        value, earlier = (spec.get("names") or {}).get(path), (before.get("names") or {}).get(path)
        if value != earlier:
            yield invalid(f"spec.names.{path}", value, "field is immutable")


def version_priority(name: str) -> tuple[int, int, int, str]:
    """Sort key of version names, best first: v2, v1, v1beta2, v1alpha1, then others by name."""
    found = _VERSION.match(name)
    if found is None:
        return (3, 0, 0, name)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), name)

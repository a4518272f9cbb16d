"""What a CustomResourceDefinition must satisfy before its kind is served."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cel_budget import rule_problems
from regional.kube.schema.cel_functions import is_pattern
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import GoStruct, forbidden, invalid, one_of, required
from regional.kube.schema.names import dns_1035_label, dns_label, dns_subdomain
from regional.kube.schema.openapi_validation import NOTHING, SchemaValidator

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def validate_crd(crd: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if (crd.get("metadata") or {}).get("name") != wanted:
        yield invalid(
            "metadata.name", (crd.get("metadata") or {}).get("name"), 'must be spec.names.plural+"."+spec.group'
        )
    yield from _place(spec)
    if spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema")
    # What was accepted once, perhaps under other limits, stays acceptable.
    before = ((old or {}).get("spec") or {}).get("versions") or ()
    accepted = [(version.get("schema") or {}).get("openAPIV3Schema") for version in before]
    yield from _versions(spec, accepted)
    yield from _names(spec, names)
    if not any(version.get("storage") for version in spec.get("versions") or ()):
        yield invalid("status.storedVersions", None, "must have at least one stored version")
    if old is not None:
        yield from _update(spec, old.get("spec") or {})
        yield from _still_there((crd.get("status") or {}).get("storedVersions") or (), spec)


def _place(spec: Obj) -> Iterator[FieldError]:
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


def _names(spec: Obj, names: Obj) -> Iterator[FieldError]:
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


def _versions(spec: Obj, accepted: list[Any]) -> Iterator[FieldError]:
    versions = spec.get("versions") or []
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    # Inside the server a schema that all versions share is the CRD's own, and that is where errors are told.
    shared = all(schema == schemas[0] for schema in schemas)
    stored = sum(bool(version.get("storage")) for version in versions)
    if stored != 1:
        printed = [_go_version(version, shared) for version in versions] or None
        yield invalid("spec.versions", printed, "must have exactly one version marked as storage version")
    seen: set[str] = set()
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        name = version.get("name") or ""
        for text in dns_1035_label(name):
            yield invalid(f"{where}.name", name, text)
        if name in seen:
            yield invalid("spec.versions", name, "must contain unique version names")
        seen.add(name)
        schema = schemas[index]
        if schema is None:
            yield required(f"{where}.schema.openAPIV3Schema")
        elif not shared or index == 0:
            field = "spec.validation.openAPIV3Schema" if shared else f"{where}.schema.openAPIV3Schema"
            yield from _structural(schema, field, root=True)
            if schema not in accepted:
                yield from rule_problems(schema, field)
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            for key in ("jsonPath", "name", "type"):
                if not column.get(key):
                    yield required(f"{where}.additionalPrinterColumns[{number}].{key}")
    for name in spec.get("shortNames") or ():
        for text in dns_label(name):
            yield invalid("spec.names.shortNames", name, text)


_VERSION_FIELDS = ("deprecationWarning", "schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _go_version(version: Obj, shared: bool) -> Obj:
    """A version as the internal Go struct prints."""
    flags = {name.title(): version.get(name) or False for name in ("served", "storage", "deprecated")}
    rest = {name[0].upper() + name[1:]: version.get(name) for name in _VERSION_FIELDS}
    return GoStruct({"Name": version.get("name") or ""} | flags | rest | ({"Schema": None} if shared else {}))


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
        yield forbidden(f"{field}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required(f"{field}.items", "must be specified")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{field}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    if "pattern" in schema and (why := _pattern_problem(schema["pattern"])):
        yield invalid(f"{field}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: {why}")
    if "default" in schema and kind in _TYPES:
        for error in SchemaValidator().validate(schema["default"], NOTHING, schema, f"{field}.default"):
            yield FieldError(f"{field}.default", error.reason, error.message.replace(f"{field}.default", "", 1))
    yield from _list_type(schema, field)
    for name, child in (schema.get("properties") or {}).items():
        if root and name == "metadata":
            continue
        yield from _structural(child, f"{field}.properties[{name}]")
    yield from _structural(schema.get("items"), f"{field}.items")
    yield from _structural(schema.get("additionalProperties"), f"{field}.additionalProperties")


def _pattern_problem(pattern: str) -> str:
    """In the words of Go's parser for the mistakes people make; "" for a valid expression."""
    if is_pattern(pattern):
        return ""
    if pattern.count("[") > pattern.count("]"):
        return f"error parsing regexp: missing closing ]: `{pattern[pattern.index('[') :]}`"
    if pattern.count("(") != pattern.count(")"):
        missing = "missing closing )" if pattern.count("(") > pattern.count(")") else "unexpected )"
        return f"error parsing regexp: {missing}: `{pattern}`"
    return f"error parsing regexp: invalid expression: `{pattern}`"


def _list_type(schema: Obj, field: str) -> Iterator[FieldError]:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type is None:
        return
    yield from one_of(f"{field}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
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


def _still_there(stored: Iterable[str], spec: Obj) -> Iterator[FieldError]:
    """Objects may lie in the store as any version that was ever its own: without its schema nobody could read them."""
    declared = [version.get("name") for version in spec.get("versions") or ()]
    for index, name in enumerate(stored):
        if name not in declared:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield invalid(f"status.storedVersions[{index}]", name, why)


def version_priority(name: str) -> tuple[int, int, int, str]:
    """Sort key of version names, best first: v2, v1, v1beta2, v1alpha1, then others by name."""
    found = _VERSION.match(name)
    if found is None:
        return (3, 0, 0, name)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), name)

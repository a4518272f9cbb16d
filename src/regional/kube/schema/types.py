"""How each kind is typed: which maps are granular, which lists merge by key, what an unset field means.

Server-side apply, strategic merge patch and pruning all ask the same questions about a value's type. The answers come
from two sources (the packaged OpenAPI definitions, a CRD's structural schema) and are compiled once per kind into a
graph of `Type` nodes that the algorithms walk beside the value.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.kube.schema.registry import BODY_KINDS, BUILTINS, Kind

SCALAR, MAP, LIST, ANY = range(4)
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Type:
    """One node. ANY is typed by what is found: maps granular, lists atomic.

    A MAP has named `fields`, an `element` type for its other keys (None: no other keys), or both.
    A LIST is `atomic`, keyed (`keys`), or else a set of scalars.
    """

    __slots__ = (
        "atomic",
        "element",
        "fields",
        "format",
        "key_defaults",
        "keys",
        "merge",
        "merge_key",
        "name",
        "preserve",
        "retain_keys",
        "scalar",
        "shape",
        "zero",
    )

    def __init__(self, shape: int) -> None:
        self.shape = shape
        self.atomic = False
        self.fields: dict[str, Type] = {}
        self.element: Type | None = None
        self.keys: tuple[str, ...] = ()
        self.key_defaults: dict[str, Any] = {}
        # "string", "integer", "number", "boolean", "int-or-string", "quantity", "bytes" or "" for any scalar.
        self.scalar = ""
        self.format = ""
        # The definition's short name, for messages ("DeploymentSpec"); built-ins only.
        self.name = ""
        # A CRD's x-kubernetes-preserve-unknown-fields: undeclared keys survive pruning.
        self.preserve = False
        # Strategic merge patch: lists that merge, by which key; objects that drop the keys not named in $retainKeys.
        self.merge = False
        self.merge_key = ""
        self.retain_keys = False
        # The fields a Go value of this type writes even when unset (built-ins only).
        self.zero: Obj = {}

    def child(self, name: str) -> Type | None:
        """The type of a map's entry; None when the map has no such key."""
        found = self.fields.get(name)
        return found if found is not None else self.element


UNTYPED = Type(ANY)


class Schema:
    """The typing of one kind in one version."""

    __slots__ = ("digest", "root", "rules", "status", "structural", "zero")

    def __init__(self, root: Type, *, structural: Obj | None, status: bool, digest: str = "", zero: Obj | None = None):
        self.root = root
        # The CRD's openAPIV3Schema without descriptions; None for built-in kinds.
        self.structural = structural
        self.status = status
        self.digest = digest
        # The compiled CEL rules, filled by `cel` when they are first needed.
        self.rules: Any = None
        # What an object of this kind looks like before anything is set; creates are compared with it.
        self.zero: Obj = zero or {}


def schema_of(kind: Kind) -> Schema:
    """The schema of a built-in or custom row. For custom rows keep the result: finding it again hashes the schema."""
    if kind.custom is None:
        return _builtin_schema(kind.definition, kind.status)
    declared = (kind.custom.get("schema") or {}).get("openAPIV3Schema")
    return from_crd(declared, status=kind.status)


def from_crd(open_api_schema: Obj | None, *, status: bool = False) -> Schema:
    """The schema of a CRD version; compiled once per content, however many clusters have it."""
    content = msgspec.json.encode(open_api_schema or {})
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    found = _CUSTOM.get((digest, status))
    if found is None:
        structural = without_descriptions(open_api_schema or {"x-kubernetes-preserve-unknown-fields": True})
        root = _custom_type(structural)
        root.fields = {**root.fields, **_object_fields()}
        found = Schema(root, structural=structural, status=status, digest=digest)
        if len(_CUSTOM) >= _CUSTOM_LIMIT:
            _CUSTOM.pop(next(iter(_CUSTOM)))
        _CUSTOM[digest, status] = found
    return found


_CUSTOM: dict[tuple[str, bool], Schema] = {}
_CUSTOM_LIMIT = 512


@cache
def definitions() -> dict[str, Obj]:
    """The packaged OpenAPI definitions, without descriptions."""
    content = resources.files("regional.kube.schema").joinpath("data/types.json").read_bytes()
    decoded: dict[str, Obj] = msgspec.json.decode(content)
    return decoded


def preload() -> None:
    """Compile every built-in kind; the warm parent calls this so that its children share the result."""
    for kind in (*BUILTINS, *BODY_KINDS):
        schema_of(kind)


def without_descriptions(schema: Any) -> Any:
    """A copy of a JSON schema without its texts, which are most of a large CRD's size."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: (
            {name: without_descriptions(child) for name, child in value.items()}
            if key == "properties" and isinstance(value, dict)
            else value
            if key in ("default", "enum", "example")
            else without_descriptions(value)
        )
        for key, value in schema.items()
        if not (key in ("description", "externalDocs", "title") and not isinstance(value, dict))
    }


# --- built-in kinds ------------------------------------------------------------------------------------------------


@cache
def _builtin_schema(definition: str, status: bool) -> Schema:
    root = _definition_type(definition)
    return Schema(root, structural=None, status=status, digest=definition, zero=_zero_value(root))


_DEFINITIONS: dict[str, Type] = {}


def _definition_type(name: str) -> Type:
    found = _DEFINITIONS.get(name)
    if found is None:
        # Registered before it is filled: JSONSchemaProps contains itself.
        found = _DEFINITIONS[name] = Type(ANY)
        found.name = name.rpartition(".")[2]
        _fill_builtin(found, definitions()[name])
        if name.endswith((".RawExtension", ".FieldsV1")):
            found.shape, found.atomic, found.fields, found.element = MAP, True, {}, UNTYPED
    return found


def _builtin_type(node: Obj) -> Type:
    ref = node.get("$ref")
    if ref is None:
        built = Type(ANY)
        _fill_builtin(built, node)
        return built
    target = _definition_type(ref)
    if len(node) == 1:
        return target
    # The property says more than the definition it refers to (a patch strategy, atomicity).
    variant = Type(target.shape)
    for slot in Type.__slots__:
        setattr(variant, slot, getattr(target, slot))
    _read_extensions(variant, node)
    return variant


def _fill_builtin(built: Type, node: Obj) -> None:
    kind = node.get("type")
    if kind == "object" or "properties" in node:
        built.shape = MAP
        built.fields = {name: _builtin_type(child) for name, child in (node.get("properties") or {}).items()}
        if "additionalProperties" in node:
            built.element = _builtin_type(node["additionalProperties"])
        elif not built.fields:
            built.element = UNTYPED
    elif kind == "array":
        built.shape = LIST
        built.element = _builtin_type(node["items"])
        built.atomic = True
    elif kind is not None:
        built.shape = SCALAR
        built.format = node.get("format") or ""
        built.scalar = "bytes" if built.format == "byte" else kind
    elif node.get("format") in ("int-or-string", "quantity"):
        built.shape = SCALAR
        built.scalar = node["format"]
    _read_extensions(built, node)
    built.zero = node.get("x-zero") or {}


def _read_extensions(built: Type, node: Obj) -> None:
    list_type = node.get("x-kubernetes-list-type")
    if list_type is not None and built.shape == LIST:
        built.atomic = list_type == "atomic"
        if list_type == "map":
            built.keys = tuple(sorted(node.get("x-kubernetes-list-map-keys") or ()))
            fields = built.element.fields if built.element is not None else {}
            built.key_defaults = _builtin_key_defaults(node, built.keys) if fields else {}
    if node.get("x-kubernetes-map-type") == "atomic":
        built.atomic = True
    strategy = (node.get("x-kubernetes-patch-strategy") or "").split(",")
    built.merge = built.merge or "merge" in strategy
    built.retain_keys = built.retain_keys or "retainKeys" in strategy
    built.merge_key = node.get("x-kubernetes-patch-merge-key") or built.merge_key


def _builtin_key_defaults(node: Obj, keys: tuple[str, ...]) -> dict[str, Any]:
    """A missing key is its default, or else the zero of its Go type."""
    item = definitions()[node["items"]["$ref"]]
    properties, zero = item.get("properties") or {}, item.get("x-zero") or {}
    defaults = {key: properties.get(key, {}).get("default", zero.get(key)) for key in keys}
    return {key: value for key, value in defaults.items() if value is not None}


def _zero_value(node: Type) -> Obj:
    return {
        name: _zero_value(node.fields[name]) if value == {} else value
        for name, value in node.zero.items()
        if name in node.fields
    }


# --- custom kinds --------------------------------------------------------------------------------------------------


@cache
def _object_fields() -> dict[str, Type]:
    """What every object has at its top, whatever the CRD says."""
    return {"apiVersion": _string(), "kind": _string(), "metadata": _definition_type(OBJECT_META)}


def _string() -> Type:
    built = Type(SCALAR)
    built.scalar = "string"
    return built


def _custom_type(node: Obj) -> Type:
    preserve = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    kind = node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        built = Type(SCALAR)
        built.scalar = "int-or-string"
        return built
    if kind == "array":
        return _custom_list(node)
    if kind == "object" or "properties" in node or "additionalProperties" in node:
        return _custom_map(node, preserve)
    if kind is not None:
        built = Type(SCALAR)
        built.scalar = kind
        return built
    built = Type(ANY)
    built.preserve = preserve
    return built


def _custom_map(node: Obj, preserve: bool) -> Type:
    built = Type(MAP)
    built.atomic = node.get("x-kubernetes-map-type") == "atomic"
    built.fields = {name: _custom_type(child) for name, child in (node.get("properties") or {}).items()}
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        built.element = _custom_type(extra)
    elif extra:
        built.element = UNTYPED
    if preserve:
        built.preserve = True
        built.element = built.element or UNTYPED
    if node.get("x-kubernetes-embedded-resource"):
        built.fields = {**built.fields, **_object_fields()}
    return built


def _custom_list(node: Obj) -> Type:
    built = Type(LIST)
    items = node.get("items")
    built.element = _custom_type(items) if isinstance(items, dict) else UNTYPED
    list_type = node.get("x-kubernetes-list-type", "atomic")
    built.atomic = list_type == "atomic"
    if list_type == "map":
        built.keys = tuple(sorted(node.get("x-kubernetes-list-map-keys") or ()))
        properties = (items or {}).get("properties") or {}
        built.key_defaults = {
            key: properties[key]["default"] for key in built.keys if "default" in properties.get(key, {})
        }
    return built

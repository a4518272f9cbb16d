"""OpenAPI documents of the served kinds, as far as kubectl, Helm and Argo CD read them.

kubectl reads the v3 document of one group to explain a kind, to decide how to patch it and to find merge keys; Argo CD
reads the v2 definitions of everything, in protobuf. Documents are built on demand and not kept: the descriptions are
the largest data we have, and few processes are ever asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.kube.schema.registry import Kind
from regional.kube.schema.types import OBJECT_META, definitions

_SCHEMAS = "#/components/schemas/"
_DEFINITIONS = "#/definitions/"
_EXTENSIONS = (
    "x-kubernetes-group-version-kind",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
)
_INFO = {"title": "Kubernetes", "version": "v1.35.0"}


# --- version 3 -----------------------------------------------------------------------------------------------------


def v3_index(paths: Iterable[str], hashes: Mapping[str, str]) -> Obj:
    """The root document: for each of `api/v1`, `apis/apps/v1`, … where its document is."""
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashes[path]}"} for path in paths}}


def v3_document(group: str, version: str, kinds: Iterable[Kind]) -> Obj:
    """The document of one group version, with the kinds given (built-in and custom)."""
    paths: Obj = {}
    schemas: Obj = {}
    needed: set[str] = set()
    for kind in kinds:
        name = schema_name(kind)
        if kind.custom is None:
            needed.add(name)
        else:
            needed.add(OBJECT_META)
            schemas[name] = _custom_schema(kind, _SCHEMAS)
        paths.update(_paths(group, version, kind, name))
    texts = _descriptions()
    for name in _reachable(needed):
        schemas[name] = _definition(name, texts.get(name) or {})
    document: Obj = {"openapi": "3.0.0", "info": _INFO, "paths": paths}
    document["components"] = {"schemas": dict(sorted(schemas.items()))}
    return document


def schema_name(kind: Kind) -> str:
    """`io.k8s.api.apps.v1.Deployment`; for custom kinds the group reversed: `io.demo.v1.Widget`."""
    if kind.definition:
        return kind.definition
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _gvk(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(group: str, version: str, kind: Kind, name: str) -> Obj:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection, item = f"{root}{scope}/{kind.plural}", f"{root}{scope}/{kind.plural}/{{name}}"
    body = {"schema": {"$ref": _SCHEMAS + name}}
    paths: Obj = {}
    verbs = {verb: _operation(kind, verb, body) for verb in kind.verbs}
    on_collection = {"get": "list", "post": "create", "delete": "deletecollection"}
    on_item = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
    for path, methods in ((collection, on_collection), (item, on_item)):
        found = {method: verbs[verb] for method, verb in methods.items() if verb in verbs}
        if found:
            paths[path] = found
    for subresource in kind.subresources:
        if subresource.name == "status":
            paths[f"{item}/status"] = {
                method: _operation(kind, verb, body)
                for method, verb in (("get", "get"), ("put", "update"), ("patch", "patch"))
            }
    return paths


def _operation(kind: Kind, verb: str, body: Obj) -> Obj:
    action = {"create": "post", "update": "put"}.get(verb, verb)
    operation: Obj = {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": _gvk(kind)}
    if verb in ("create", "update", "patch"):
        names = ["dryRun", "fieldManager", "fieldValidation"] + (["force"] if verb == "patch" else [])
        operation["parameters"] = [_parameter(name) for name in names]
    if verb == "patch":
        formats = ["apply-patch+yaml", "json-patch+json", "merge-patch+json"]
        if kind.custom is None:
            formats.append("strategic-merge-patch+json")
        patch = {"schema": {"type": "object"}}
        operation["requestBody"] = {"content": {f"application/{name}": patch for name in formats}}
    elif verb in ("create", "update"):
        operation["requestBody"] = {"content": {"*/*": body}}
    operation["responses"] = {"200": {"description": "OK", "content": {"application/json": body}}}
    return operation


def _parameter(name: str) -> Obj:
    return {
        "name": name,
        "in": "query",
        "schema": {"type": "boolean" if name == "force" else "string", "uniqueItems": True},
    }


def _definition(name: str, texts: Mapping[str, str]) -> Obj:
    node = definitions()[name]
    out = _published(node, _SCHEMAS)
    if texts.get(""):
        out = {"description": texts[""], **out}
    for field, schema in (out.get("properties") or {}).items():
        text = texts.get(field)
        if text:
            out["properties"][field] = {"description": text, **schema}
    return out


def _published(node: Obj, prefix: str) -> Obj:
    """A stored schema node as documents show it."""
    out: Obj = {}
    for key, value in node.items():
        if key == "x-zero":
            continue
        if key == "$ref":
            # Beside other keywords a reference must be wrapped, or readers drop them.
            if len(node) == 1 or prefix == _DEFINITIONS:
                out["$ref"] = prefix + value
            else:
                out["allOf"] = [{"$ref": prefix + value}]
        elif key == "properties":
            out[key] = {name: _property(child, prefix) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = _published(value, prefix)
        else:
            out[key] = value
    return out


def _property(node: Obj, prefix: str) -> Obj:
    if list(node) == ["$ref"] and prefix == _SCHEMAS:
        return {"allOf": [{"$ref": prefix + node["$ref"]}]}
    return _published(node, prefix)


def _custom_schema(kind: Kind, prefix: str) -> Obj:
    declared = ((kind.custom or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    schema: Obj = dict(declared) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata: Obj = {"$ref": prefix + OBJECT_META}
    if prefix == _SCHEMAS:
        text = "Standard object's metadata."
        metadata = {"description": text, "allOf": [metadata]}
    own = {
        "apiVersion": {"type": "string", "description": "The versioned schema of this representation of an object."},
        "kind": {"type": "string", "description": "The REST resource this object represents."},
        "metadata": metadata,
    }
    schema["properties"] = {**(schema.get("properties") or {}), **own}
    schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    return schema


def _reachable(names: set[str]) -> list[str]:
    seen: set[str] = set()
    queue = sorted(names)
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue.extend(_references(definitions()[name]))
    return sorted(seen)


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            elif isinstance(value, (dict, list)) and key != "x-zero":
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _descriptions() -> dict[str, dict[str, str]]:
    content = resources.files("regional.kube.schema").joinpath("data/descriptions.json").read_bytes()
    texts: dict[str, dict[str, str]] = msgspec.json.decode(content)
    return texts


# --- version 2, in protobuf ----------------------------------------------------------------------------------------


def v2_protobuf(kinds: Iterable[Kind]) -> bytes:
    """The definitions of all kinds as an OpenAPI v2 message; no paths and no descriptions, which nobody reads there."""
    named: dict[str, Obj] = {}
    needed = {OBJECT_META}
    for kind in kinds:
        if kind.custom is None:
            needed.add(kind.definition)
        else:
            named[schema_name(kind)] = _custom_schema(kind, _DEFINITIONS)
    for name in _reachable(needed):
        named[name] = _published(definitions()[name], _DEFINITIONS)
    info = _text(1, _INFO["title"]) + _text(2, _INFO["version"])
    entries = b"".join(
        _bytes(1, _text(1, name) + _bytes(2, _schema_message(node))) for name, node in sorted(named.items())
    )
    return _text(1, "2.0") + _bytes(2, info) + _bytes(8, b"") + _bytes(9, entries)


def _schema_message(node: Obj) -> bytes:
    out = b""
    if "$ref" in node:
        out += _text(1, node["$ref"])
    if node.get("format"):
        out += _text(2, node["format"])
    for name in node.get("required") or ():
        out += _text(19, name)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        out += _bytes(21, _bytes(1, _schema_message(extra)))
    kind = node.get("type")
    if isinstance(kind, str):
        out += _bytes(22, _text(1, kind))
    items = node.get("items")
    if isinstance(items, dict):
        out += _bytes(23, _bytes(1, _schema_message(items)))
    properties = node.get("properties")
    if properties:
        out += _bytes(
            25,
            b"".join(
                _bytes(1, _text(1, name) + _bytes(2, _schema_message(child)))
                for name, child in sorted(properties.items())
            ),
        )
    for name in _EXTENSIONS:
        if name in node:
            # YAML reads JSON, so the value is written as JSON.
            value = msgspec.json.encode(node[name]).decode() + "\n"
            out += _bytes(31, _text(1, name) + _bytes(2, _text(2, value)))
    return out


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""A custom kind with one field of every sort, and short ways to make and apply objects of it."""

from __future__ import annotations

from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.apply import server_side_apply, track_update
from regional.kube.schema.registry import Kind, by_kind, custom_kinds
from regional.kube.schema.types import Schema, schema_of

NOW = "2026-11-15T20:06:20Z"
LATER = "2026-11-15T20:07:00Z"

PORTS: Obj = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port", "proto"],
    "items": {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "integer"},
            "proto": {"type": "string", "default": "TCP"},
            "note": {"type": "string"},
        },
    },
}
SPEC: Obj = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "conds": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "properties": {"type": {"type": "string"}, "v": {"type": "string"}}},
        },
        "ports": PORTS,
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        "args": {"type": "array", "items": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS: Obj = {"type": "object", "properties": {"phase": {"type": "string"}, "n": {"type": "integer"}}}


def crd(schema: Obj, *, status: bool = True, version: str = "v1", **extra: Any) -> Obj:
    entry: Obj = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **extra}
    if status:
        entry["subresources"] = {"status": {}}
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.demo.io"},
        "spec": {"group": "demo.io", "scope": "Namespaced", "names": names, "versions": [entry]},
    }


def kind_of(schema: Obj, **extra: Any) -> Kind:
    return custom_kinds(crd(schema, **extra))[0]


WIDGET = kind_of({"type": "object", "properties": {"spec": SPEC, "status": STATUS}})
SCHEMA = schema_of(WIDGET)


def widget(spec: Obj | None = None, **metadata: Any) -> Obj:
    obj: Obj = {"apiVersion": "demo.io/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "s1", **metadata}}
    if spec is not None:
        obj["spec"] = spec
    return obj


def apply(live: Obj | None, config: Obj, manager: str, *, schema: Schema = SCHEMA, now: str = NOW, **extra: Any) -> Obj:
    return server_side_apply(live, config, manager, schema=schema, api_version=config["apiVersion"], now=now, **extra)


def update(live: Obj | None, new: Obj, manager: str, *, schema: Schema = SCHEMA, now: str = NOW, **extra: Any) -> Obj:
    return track_update(live, new, manager, schema=schema, api_version=new["apiVersion"], now=now, **extra)


def builtin(api_version: str, kind: str) -> Kind:
    group, _, version = api_version.rpartition("/")
    found = by_kind(group, version, kind)
    assert found is not None
    return found


def owners(obj: Obj) -> dict[str, Obj]:
    """manager (operation, subresource) → fieldsV1"""
    return {
        "/".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }

"""The OpenAPI document, made from the same entities and schemas that the server checks with."""

from __future__ import annotations

import html
from typing import Any

import msgspec

from regional.clm.entities import Entity, Registry

BASE = "/api/hyperfleet/v1"
Json = dict[str, Any]

_TIME: Json = {"type": "string", "format": "date-time"}
_LABELS: Json = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}
_ID: Json = {"type": "string", "format": "uuid"}
_CONDITION: Json = {
    "type": "object",
    "required": [
        *("type", "status", "observed_generation", "created_time", "last_updated_time", "last_transition_time"),
    ],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False"]},
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "observed_generation": {"type": "integer", "minimum": 1},
        "created_time": _TIME,
        "last_updated_time": _TIME,
        "last_transition_time": _TIME,
    },
}
_REPORT_CONDITION: Json = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {"type": "string", "minLength": 1},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string"},
        "message": {"type": "string"},
    },
}
_REPORT: Json = {
    "type": "object",
    "required": ["adapter", "observed_generation", "conditions", "created_time", "last_report_time"],
    "properties": {
        "adapter": {"type": "string"},
        "observed_generation": {"type": "integer"},
        "conditions": {"type": "array", "items": _REPORT_CONDITION},
        "data": {"type": "object"},
        "metadata": {"type": "object"},
        "created_time": _TIME,
        "last_report_time": _TIME,
    },
}
_REPORT_REQUEST: Json = {
    "type": "object",
    "required": ["adapter", "observed_generation", "conditions"],
    "properties": {
        "adapter": {"type": "string", "minLength": 1, "maxLength": 100},
        "observed_generation": {"type": "integer", "minimum": 1},
        "observed_time": _TIME,
        "conditions": {"type": "array", "maxItems": 100, "items": _REPORT_CONDITION},
        "data": {"type": "object"},
        "metadata": {"type": "object"},
    },
}
_PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "timestamp", "instance", "trace_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "pattern": "^HYPERFLEET-[A-Z]{3}-[0-9]{3}$"},
        "timestamp": _TIME,
        "instance": {"type": "string"},
        "trace_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {
                    "field": {"type": "string"},
                    "message": {"type": "string"},
                    "value": {},
                    "constraint": {"type": "string"},
                },
            },
        },
    },
}
_HISTORY: Json = {
    "type": "object",
    "required": ["revision", "change", "generation", "time", "actor", "request_id", "document"],
    "properties": {
        "revision": {"type": "integer"},
        "change": {"type": "string"},
        "generation": {"type": "integer"},
        "time": _TIME,
        "actor": {"type": "string"},
        "request_id": {"type": "string"},
        "document": {"type": "object"},
    },
}
_PLACEMENT: Json = {
    "type": "object",
    "properties": {
        "management_cluster": {"type": "string"},
        "consumer": {"type": "string"},
        "reserved_time": _TIME,
        "reason": {"type": "string"},
    },
}


def document(registry: Registry) -> bytes:
    schemas: Json = {
        "Problem": _PROBLEM,
        "Condition": _CONDITION,
        "AdapterStatus": _REPORT,
        "AdapterStatusRequest": _REPORT_REQUEST,
        "HistoryEntry": _HISTORY,
        "ForceDeleteRequest": {
            "type": "object",
            "required": ["reason"],
            "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 1024}},
        },
        "ReconcileRequest": {"type": "object"},
        "Reconciling": {"type": "object", "properties": {"resources": {"type": "integer"}}},
        "AdapterStatusList": _list_of("AdapterStatus"),
        "HistoryList": _list_of("HistoryEntry"),
    }
    paths: Json = {}
    for entity in registry.all:
        schemas |= _schemas(registry, entity)
        parent = registry.parent(entity)
        if parent is None:
            paths |= _paths(entity, f"{BASE}/{entity.plural}", [], creates=True)
        else:
            owner = _path_parameter("parent_id", f"Id of the {parent.kind}")
            paths |= _paths(entity, f"{BASE}/{parent.plural}/{{parent_id}}/{entity.plural}", [owner], creates=True)
            paths |= _paths(entity, f"{BASE}/{entity.plural}", [], creates=False)
    paths[f"{BASE}/reconcile"] = {"post": _operation(202, "Reconciling", 400, 403, body="ReconcileRequest")}
    return msgspec.json.encode(
        {
            "openapi": "3.0.3",
            "info": {
                "title": "Cluster lifecycle manager",
                "version": "1.0.25",
                "description": "Resources of the region, their generations, what adapters report, and their history.",
            },
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "Tenant": {"type": "apiKey", "in": "header", "name": "X-Tenant"},
                    "System": {"type": "apiKey", "in": "header", "name": "X-System"},
                },
            },
            "security": [{"Tenant": []}, {"System": []}],
        }
    )


def page(registry: Registry) -> str:
    rows = "".join(
        f"<li><a href='{BASE}/{html.escape(entity.plural)}'>{html.escape(entity.kind)}</a></li>"
        for entity in registry.all
    )
    return (
        "<!doctype html><title>Cluster lifecycle manager</title><h1>Cluster lifecycle manager</h1>"
        f"<p><a href='{BASE}/openapi'>OpenAPI document</a></p><ul>{rows}</ul>"
    )


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(name: str) -> Json:
    return {
        "type": "object",
        "required": ["items", "page", "size", "total"],
        "properties": {
            "items": {"type": "array", "items": _ref(name)},
            "page": {"type": "integer"},
            "size": {"type": "integer"},
            "total": {"type": "integer"},
        },
    }


def _schemas(registry: Registry, entity: Entity) -> Json:
    kind = entity.kind
    shown: Json = {
        "id": _ID,
        "kind": {"type": "string", "enum": [kind]},
        "name": {"type": "string"},
        "href": {"type": "string"},
        "spec": _ref(f"{kind}Spec"),
        "labels": _LABELS,
        "tenancy": {"type": "object", "additionalProperties": {"type": "string"}},
        "generation": {"type": "integer", "minimum": 1},
        "created_time": _TIME,
        "created_by": {"type": "string"},
        "updated_time": _TIME,
        "updated_by": {"type": "string"},
        "deleted_time": _TIME,
        "deleted_by": {"type": "string"},
        "status": {
            "type": "object",
            "required": ["conditions"],
            "properties": {"conditions": {"type": "array", "items": _ref("Condition")}},
        },
        "placement": _PLACEMENT,
    }
    if registry.parent(entity) is not None:
        reference = {"id": _ID, "kind": {"type": "string"}, "href": {"type": "string"}}
        shown["owner_references"] = {"type": "object", "required": list(reference), "properties": reference}
    required = ["id", "kind", "name", "href", "spec", "generation", "status"]
    required += ["created_time", "created_by", "updated_time", "updated_by"]
    wanted = {"spec": _ref(f"{kind}Spec"), "labels": _LABELS}
    name = {
        "type": "string",
        "minLength": entity.name_min_len,
        "maxLength": entity.name_max_len,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    }
    return {
        f"{kind}Spec": entity.spec_schema,
        kind: {"type": "object", "required": required, "properties": shown},
        f"{kind}List": _list_of(kind),
        f"{kind}CreateRequest": {
            "type": "object",
            "required": ["kind", "name", "spec"],
            "properties": {"kind": {"type": "string", "enum": [kind]}, "name": name, **wanted},
        },
        f"{kind}PatchRequest": {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": wanted,
        },
    }


def _path_parameter(name: str, description: str, schema: Json | None = None) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema or _ID,
    }


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


_PAGING = [
    _query("page", {"type": "integer", "minimum": 1, "maximum": 100000, "default": 1}, "Counted from 1"),
    _query("size", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Resources on a page"),
]
_LISTING = [
    *_PAGING,
    _query("search", {"type": "string", "maxLength": 4096}, "A condition such as labels.env = 'dev'"),
    _query("order", {"type": "string"}, "Fields, each with asc or desc"),
    _query("fields", {"type": "string"}, "Fields to show"),
    _query("after", _ID, "Go on behind this resource, instead of by page"),
]


def _paths(entity: Entity, base: str, owner: list[Json], *, creates: bool) -> Json:
    kind = entity.kind
    tag = {"tags": [kind]}
    one = [*owner, _path_parameter("id", f"Id of the {kind}")]
    item = f"{base}/{{id}}"
    collection: Json = {"get": tag | _operation(200, f"{kind}List", 400, 403, 404, parameters=[*owner, *_LISTING])}
    codes = (400, 403, 404, 409, 413, 415)
    if creates:
        collection["post"] = tag | _operation(201, kind, *codes, parameters=owner, body=f"{kind}CreateRequest")
    else:
        collection["post"] = tag | _operation(422, "Problem", *codes, body=f"{kind}CreateRequest")
    if_match = {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"}}
    patch = _operation(200, kind, *codes, 412, parameters=[*one, if_match], body=f"{kind}PatchRequest")
    put = _operation(201, "AdapterStatus", *codes, parameters=one, body="AdapterStatusRequest")
    put["responses"]["204"] = {"description": "Older than what is known: discarded"}
    forced = _operation(204, "", *codes, parameters=one, body="ForceDeleteRequest")
    adapter = _path_parameter("adapter", "Name of the adapter", {"type": "string", "minLength": 1})
    return {
        base: collection,
        item: {
            "get": tag | _operation(200, kind, 403, 404, parameters=one),
            "patch": tag | patch,
            "delete": tag | _operation(202, kind, 403, 404, 409, parameters=one),
        },
        f"{item}/force-delete": {"post": tag | forced},
        f"{item}/statuses": {
            "get": tag | _operation(200, "AdapterStatusList", 400, 403, 404, parameters=[*one, *_PAGING]),
            "put": tag | put,
        },
        f"{item}/statuses/{{adapter}}": {
            "get": tag | _operation(200, "AdapterStatus", 403, 404, parameters=[*one, adapter])
        },
        f"{item}/history": {
            "get": tag | _operation(200, "HistoryList", 400, 403, 404, parameters=[*one, *_PAGING]),
        },
    }


def _operation(success: int, answer: str, *refusals: int, parameters: list[Json] | None = None, body: str = "") -> Json:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    found: Json = {"description": "Success"}
    if answer:
        media = "application/problem+json" if answer == "Problem" else "application/json"
        found["content"] = {media: {"schema": _ref(answer)}}
    responses: Json = {str(success): found}
    responses |= {str(code): {"description": "Refused", "content": problem} for code in refusals}
    responses["503"] = {"description": "The database is away", "content": problem}
    operation: Json = {"responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return operation

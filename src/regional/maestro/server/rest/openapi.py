"""The OpenAPI document, made from the structures that requests are checked with and bundles are shown by."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from regional import __version__
from regional.maestro.server.admission import BundleBody, BundlePatch, ConsumerBody, ConsumerPatch
from regional.maestro.server.rest.listing import LARGEST_PAGE
from regional.maestro.server.rest.views import BASE, BundleView, StatusView

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_TIME: Json = {"type": "string", "format": "date-time"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_REFERENCE: Json = {"id": _TEXT, "kind": _TEXT, "href": _TEXT}
_CONSUMER: Json = _REFERENCE | {
    "name": _TEXT,
    "labels": {"type": "object", "additionalProperties": _TEXT},
    "created_at": _TIME,
    "updated_at": _TIME,
    "last_seen_at": _TIME,
    "agent": _TEXT,
    "agent_version": _TEXT,
    "agent_certificate": _TEXT,
    "connected": {"type": "boolean"},
    "pending": _COUNT,
    "oldest_pending_at": _TIME,
    "cluster_unreachable": _TEXT,
    "cluster_unreachable_since": _TIME,
}
# What passes through as it was given, so that its structure tells nothing; and what is left out, not null.
_BUNDLE: Json = {
    "created_at": _TIME,
    "updated_at": _TIME,
    "deleted_at": _TIME,
    "manifests": {"type": "array", "items": {"type": "object"}},
    "delete_option": {"type": "object"},
    "manifest_configs": {"type": "array", "items": {"type": "object"}},
    "status": {"$ref": "#/components/schemas/ResourceBundleStatus"},
    "delivery": {"type": "object", "additionalProperties": _TEXT},
}
_HISTORY_ENTRY: Json = {
    "at": _TIME,
    "change": {"enum": ["accepted", "status", "redelivered", "deleting", "deleted"]},
    "version": {"type": "integer"},
    "request_id": _TEXT,
    "note": _TEXT,
}
_AGENT_WORK: Json = {
    "id": _TEXT,
    "kind": _TEXT,
    "consumer_name": _TEXT,
    "version": {"type": "integer"},
    "known_version": {"type": "integer"},
    "seen_at": _TIME,
}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(name: str) -> Json:
    head = {"kind": _TEXT, "page": {"type": "integer"}, "size": _COUNT, "total": _COUNT}
    return _object(head | {"items": {"type": "array", "items": _ref(name)}}, *head, "items")


def _schemas() -> Json:
    shown = {"BundleView": "ResourceBundle", "StatusView": "ResourceBundleStatus"}
    asked = {
        "ConsumerBody": "ConsumerRequest",
        "ConsumerPatch": "ConsumerPatchRequest",
        "BundleBody": "ResourceBundleRequest",
        "BundlePatch": "ResourceBundlePatchRequest",
    }
    names = shown | asked
    kinds = (BundleView, StatusView, ConsumerBody, ConsumerPatch, BundleBody, BundlePatch)
    _, made = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    text = msgspec.json.encode(made).decode()
    for name, public in names.items():
        text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{public}"')
    found: Json = {names[name]: schema | {"title": names[name]} for name, schema in msgspec.json.decode(text).items()}
    found["ResourceBundle"]["required"] = ["id"]  # in a list with `fields`, there is nothing else for certain
    found["ResourceBundle"]["properties"] |= _BUNDLE
    return found | {
        "Error": _object(_REFERENCE | {"type": _TEXT, "code": _TEXT, "reason": _TEXT, "operation_id": _TEXT}, "reason"),
        "ErrorList": _list_of("Error"),
        "Consumer": _object(_CONSUMER, "id"),
        "ConsumerList": _list_of("Consumer"),
        "ResourceBundleList": _list_of("ResourceBundle"),
        "ResourceBundleHistoryEntry": _object(_HISTORY_ENTRY, "at", "change", "version"),
        "ResourceBundleHistory": _object(
            {
                "kind": _TEXT,
                "id": _TEXT,
                "size": _COUNT,
                "items": {"type": "array", "items": _ref("ResourceBundleHistoryEntry")},
            },
            *("kind", "id", "size", "items"),
        ),
        "AgentWork": _object(_AGENT_WORK, "id", "kind", "consumer_name", "version", "seen_at"),
        "AgentWorkList": _list_of("AgentWork"),
    }


def _query(name: str, about: str, schema: Json | None = None) -> Json:
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema or _TEXT}


_ID: Json = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
_OPERATION_ID: Json = {
    "name": "X-Operation-ID",
    "in": "header",
    "required": False,
    "description": "Told again as operation_id if the request is refused",
    "schema": _TEXT,
}
_LISTING = [
    _query("page", "Counted from 1", {"type": "integer", "default": 1}),
    _query("size", f"At most {LARGEST_PAGE}", {"type": "integer", "default": 100}),
    _query("search", "name = 'a' and version > 2, or payload->'metadata'->'labels'->>'k' in ('a')"),
    _query("orderBy", "Fields, each with asc or desc"),
    _query("fields", "Only these, separated by commas; the id is always there"),
    _query("additions", "true: with what is not in the schema of other Maestro servers"),
]


def _operation(
    summary: str,
    answers: dict[int, str],
    *,
    parameters: list[Json] | None = None,
    body: str = "",
    media: str = "application/json",
) -> Json:
    """What goes wrong is always told as an Error; so is an id that is not even a path."""
    responses: Json = {}
    for status, schema in ({400: "Error", 404: "Error", 500: "Error", 503: "Error"} | answers).items():
        content: Json = {media if status < 300 else "application/json": {"schema": _ref(schema) if schema else {}}}
        responses[str(status)] = {"description": _SAID[status]} | ({} if status == 204 else {"content": content})
    made: Json = {"summary": summary, "parameters": [*(parameters or []), _OPERATION_ID], "responses": responses}
    if body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return made


_SAID = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "Done, or there was nothing to do",
    400: "The request is not valid",
    403: "The consumer has resource bundles",
    404: "There is no such thing",
    409: "It exists already, is under deletion, or has another version",
    410: "The cursor has expired",
    500: "Not the caller's fault",
    503: "The database cannot be reached; ask again",
}


def _paths() -> Json:
    return {
        "/api/maestro": {"get": _operation("The API", {200: ""})},
        BASE: {"get": _operation("This version of it", {200: ""})},
        f"{BASE}/openapi": {"get": _operation("This document", {200: ""})},
        f"{BASE}/errors": {"get": _operation("All codes of errors", {200: "ErrorList"})},
        f"{BASE}/errors/{{id}}": {"get": _operation("One code", {200: "Error"}, parameters=[_ID])},
        f"{BASE}/consumers": {
            "get": _operation("Consumers", {200: "ConsumerList"}, parameters=_LISTING),
            "post": _operation("Make a consumer", {201: "Consumer", 409: "Error"}, body="ConsumerRequest"),
        },
        f"{BASE}/consumers/{{id}}": {
            "get": _operation("One consumer", {200: "Consumer"}, parameters=[_ID]),
            "patch": _operation("Replace its labels", {200: "Consumer"}, parameters=[_ID], body="ConsumerPatchRequest"),
            "delete": _operation("Delete it", {204: "", 403: "Error"}, parameters=[_ID]),
        },
        f"{BASE}/resource-bundles": {
            "get": _operation("Resource bundles", {200: "ResourceBundleList"}, parameters=_LISTING),
            "post": _operation(
                "Make a resource bundle; 200 if it is there already",
                {200: "ResourceBundle", 201: "ResourceBundle", 409: "Error"},
                body="ResourceBundleRequest",
            ),
        },
        f"{BASE}/resource-bundles/watch": {
            "get": _operation(
                "Every bundle, then each change: a stream of lines without end",
                {200: "", 410: "Error"},
                parameters=[_query("source", "Only of this source"), _query("after", "The cursor to go on from")],
                media="application/x-ndjson",
            )
        },
        f"{BASE}/resource-bundles/{{id}}": {
            "get": _operation("One resource bundle", {200: "ResourceBundle"}, parameters=[_ID]),
            "patch": _operation(
                "Its next version",
                {200: "ResourceBundle", 409: "Error"},
                body="ResourceBundlePatchRequest",
                parameters=[_ID],
            ),
            "delete": _operation("Have it deleted; it is gone when its agent says so", {204: ""}, parameters=[_ID]),
        },
        f"{BASE}/resource-bundles/{{id}}/history": {
            "get": _operation(
                "What became of it, newest first",
                {200: "ResourceBundleHistory"},
                parameters=[_ID, _query("size", "At most 200", {"type": "integer", "default": 100})],
            )
        },
        f"{BASE}/resource-bundles/{{id}}/redeliver": {
            "post": _operation("Send it once more", {202: "ResourceBundle"}, parameters=[_ID])
        },
        f"{BASE}/agent-works": {
            "get": _operation(
                "Works that only agents know",
                {200: "AgentWorkList"},
                parameters=[_query("consumer_name", "Only of this consumer")],
            )
        },
        f"{BASE}/agent-works/ask": {"post": _operation("Ask all agents what they have", {202: ""})},
    }


@functools.cache
def document() -> bytes:
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "maestro Service API",
                "version": __version__,
                "description": "Resource bundles and the consumers that they are for.",
            },
            "paths": _paths(),
            "components": {"schemas": _schemas()},
        }
    )

"""The API's own description, made from the table of operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from regional import __version__
from regional.platform_api import shapes
from regional.platform_api.operations import BASE, Operation

_ALWAYS = {"account": (403, 503), "privileged": (403, 503), "caller": (403,), "anyone": ()}
_WORDS = {
    400: "The request is wrong; `errors` has every field that is.",
    403: "Not proven by the gateway, not provisioned, or not privileged.",
    404: "There is no such thing in this account.",
    409: "The name is taken, or the resource's state forbids it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    502: "Maestro cannot do it now; `code` is Maestro's.",
    503: "The region cannot answer at the moment.",
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(BASE + operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Regional Platform API",
            "version": __version__,
            "description": "Reached through the region's gateway, which checks AWS Signature Version 4 (execute-api).",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": shapes.ERROR},
            "securitySchemes": {"sigv4": {"type": "apiKey", "name": "Authorization", "in": "header"}},
        },
        "security": [{"sigv4": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation),
    }
    parameters: list[dict[str, Any]] = [
        {"name": p.name, "in": "query", "description": p.description, "schema": p.schema} for p in operation.query
    ]
    if "{id}" in operation.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        success["content"] = {operation.media: {"schema": operation.answer}}
    responses = {str(operation.success): success}
    if operation.name == "ready":
        responses["503"] = success
    refused = {*operation.refusals, *_ALWAYS[operation.who]}
    if operation.who != "anyone" or operation.body is not None:
        refused.add(400)
    if operation.body is not None:
        refused |= {413, 415}
    for status in sorted(refused):
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        responses[str(status)] = {"description": _WORDS[status], "content": content}
    return responses

"""Refusals as HTTP answers."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from regional.maestro.server.refusals import Refusal

HREF = "/api/maestro/v1/errors/"


def document(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Error", "id": str(code), "href": f"{HREF}{code}", "code": f"maestro-{code}", "reason": reason}


def operation_id(request: Request) -> str:
    return request.headers.get("x-operation-id") or request.headers.get("x-request-id") or uuid.uuid4().hex


def json_response(value: Any, status: int = 200) -> Response:
    headers = {"Content-Type": "application/json", "Vary": "Authorization"}
    return Response(value if isinstance(value, bytes) else msgspec.json.encode(value), status, headers=headers)


def refused(request: Request, error: Refusal) -> Response:
    body = document(error.code, error.reason) | {"operation_id": operation_id(request)}
    return json_response(body, error.status)


def unknown_path(request: Request) -> Response:
    """Also for a method that a path does not have; note `type`, where others have `kind`."""
    body = {
        "type": "Error",
        "id": "404",
        "href": f"{HREF}404",
        "code": "maestro-404",
        "reason": f"The requested resource '{request.url.path}' doesn't exist",
    }
    return json_response(body, 404)

"""Errors in Maestro's dialect: a catalogue of numbered codes, each with its HTTP status."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

HREF = "/api/maestro/v1/errors/"

CATALOGUE: dict[int, tuple[int, str]] = {
    1: (403, "Forbidden to perform this action for unknown reasons"),
    4: (403, "Forbidden to perform this action"),
    6: (409, "An entity with the specified unique values already exists"),
    7: (404, "Resource not found"),
    8: (400, "General validation failure"),
    9: (500, "Unspecified error"),
    10: (405, "HTTP Method not implemented for this endpoint"),
    11: (403, "Account is unauthorized to perform this action"),
    15: (401, "Account authentication could not be verified"),
    17: (400, "Unable to read request body"),
    21: (400, "Bad request"),
    23: (400, "Failed to parse search query"),
    26: (500, "Database advisory lock error"),
}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.status = status or CATALOGUE[code][0]


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

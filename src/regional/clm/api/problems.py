"""The API's refusals: RFC 9457 documents with HyperFleet's codes, every fault of a request in one answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from regional.clm.specs import Fault

_TYPES = "https://api.hyperfleet.io/errors/"


class Refusal(Exception):
    """Status, type, title and code come from the subclass or the table below; `detail` is for this one case."""

    status = 500
    slug = "internal-error"
    title = "Internal Server Error"
    code = "HYPERFLEET-INT-001"

    def __init__(self, detail: str, errors: Sequence[Fault] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)

    def document(self, instance: str, trace_id: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": _TYPES + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "timestamp": datetime.now(UTC),
            "instance": instance,
            "trace_id": trace_id,
        }
        if self.errors:
            body["errors"] = self.errors
        return body

    def response(self, instance: str, trace_id: str) -> Response:
        return Response(
            msgspec.json.encode(self.document(instance, trace_id)),
            status_code=self.status,
            media_type="application/problem+json",
        )


class Invalid(Refusal):
    status, slug, title, code = 400, "validation-error", "Validation Failed", "HYPERFLEET-VAL-000"

    @classmethod
    def because(cls, faults: Sequence[Fault], heading: str = "") -> Invalid:
        if len(faults) == 1 and not heading:
            return cls(faults[0].message, faults)
        return cls(heading or f"{len(faults)} fields are invalid", faults)


class BadRequest(Refusal):
    status, slug, title, code = 400, "bad-request", "Bad Request", "HYPERFLEET-VAL-005"


class Malformed(Refusal):
    status, slug, title, code = 400, "malformed-request", "Malformed Request", "HYPERFLEET-VAL-006"


class TooLarge(Malformed):
    status = 413


class WrongMediaType(Malformed):
    status = 415


class ChildKind(Refusal):
    status, slug, title, code = 422, "validation-error", "Validation Failed", "HYPERFLEET-VAL-000"


class Denied(Refusal):
    status, slug, title, code = 403, "permission-denied", "Permission Denied", "HYPERFLEET-AUZ-001"


class NoRoute(Refusal):
    status, slug, title, code = 404, "not-found", "Endpoint Not Found", "HYPERFLEET-NTF-000"


class NotFound(Refusal):
    status, slug, title, code = 404, "not-found", "Resource Not Found", "HYPERFLEET-NTF-001"


class Exists(Refusal):
    status, slug, title, code = 409, "conflict", "Resource Conflict", "HYPERFLEET-CNF-001"


class WrongState(Refusal):
    status, slug, title, code = 409, "conflict", "State Conflict", "HYPERFLEET-CNF-003"


class Overtaken(Refusal):
    """The caller named a revision (If-Match) that is no longer the current one."""

    status, slug, title, code = 412, "conflict", "Version Conflict", "HYPERFLEET-CNF-002"


class Unavailable(Refusal):
    status, slug, title, code = 503, "service-unavailable", "Service Unavailable", "HYPERFLEET-SVC-001"

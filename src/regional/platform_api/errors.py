"""Refusals of the API: `{"kind": "Error", "code", "reason"[, "errors"]}`, whoever refused, and never a bare 500."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from regional.clm.client import ClmError, ClmUnreachable
from regional.maestro.client import MaestroError, MaestroUnreachable
from regional.platform_api.schema import Fault


class ApiError(Exception):
    def __init__(self, status: int, code: str, reason: str, errors: Sequence[Fault] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason
        self.errors = list(errors)

    def response(self, headers: dict[str, str] | None = None) -> Response:
        body: dict[str, Any] = {"kind": "Error", "code": self.code, "reason": self.reason}
        if self.errors:
            body["errors"] = self.errors
        return Response(msgspec.json.encode(body), self.status, headers, "application/json")


def invalid(faults: Sequence[Fault], code: str = "invalid-request") -> ApiError:
    """Every fault at once; the reason names the first, for those who read no further."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return ApiError(400, code, f"{faults[0].message}{more}", faults)


def not_found(what: str, name: str) -> ApiError:
    return ApiError(404, "not-found", f"there is no {what} {name[:100]!r}")


def from_clm(error: ClmError) -> ApiError:
    if isinstance(error, ClmUnreachable):
        return ApiError(503, "unavailable", "the region cannot answer at the moment, ask again")
    if error.not_found:
        return ApiError(404, "not-found", error.detail)
    if error.exists:
        return ApiError(409, "already-exists", error.detail)
    if error.status in (409, 412):
        return ApiError(409, "conflict", error.detail)
    if error.status in (400, 413, 422):
        faults = [Fault(str(e.get("field", "")), str(e.get("message", ""))) for e in error.errors]
        return ApiError(400, "invalid-request", error.detail, faults)
    return ApiError(502, "clm-error", f"the cluster lifecycle manager answers {error.status}")


def from_maestro(error: MaestroError) -> ApiError:
    """With Maestro's own code. What the caller did wrong is a 4xx; what Maestro cannot do is a bad gateway."""
    if isinstance(error, MaestroUnreachable):
        return ApiError(502, "maestro-error", "Maestro cannot be reached at the moment, ask again")
    status = error.status if error.status in (400, 409) or error.not_found else 502
    return ApiError(status, error.code or "maestro-error", error.reason)

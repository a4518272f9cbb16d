"""A resource together with what its adapters say of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from regional.clm.client import ClmError
from regional.platform_api import views
from regional.platform_api.operations import Call


class Reported(NamedTuple):
    resource: dict[str, Any]
    report: dict[str, Any] | None
    """What the adapter that makes control planes last said."""
    reports: list[dict[str, Any]]


async def reported(call: Call, kind: str, identifier: str) -> Reported:
    """The resource first, so that reports are never older than it: asked for both at once, one could be Ready by a
    report that is not there yet."""
    resource = await call.clm.get(kind, identifier, request_id=call.request_id)
    try:
        reports = await call.clm.statuses(kind, identifier)
    except ClmError as error:
        if not error.not_found:
            raise
        reports = []  # gone since: this is its last picture
    return Reported(resource, next((found for found in reports if found["adapter"] == views.ADAPTER), None), reports)

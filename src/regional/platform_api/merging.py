"""Changing a spec: merged into what is there, and written only if nobody else wrote meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regional.clm.client import ClmError
from regional.platform_api.errors import ApiError
from regional.platform_api.operations import Call

_ATTEMPTS = 5
Document = dict[str, Any]


def merge(target: Document, patch: Document) -> Document:
    """RFC 7396."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = merge(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged


async def write_spec(call: Call, kind: str, resource_id: str, check: Callable[[Document], None]) -> Document:
    """The resource after its spec was merged with the call's. CLM replaces specs whole, so this reads one, and names
    the revision that it read."""
    for _ in range(_ATTEMPTS):
        found, etag = await call.clm.get_with_etag(kind, resource_id, request_id=call.request_id)
        wanted = merge(found["spec"], call.body["spec"])
        check(wanted)
        if wanted == found["spec"]:
            return found
        try:
            return await call.clm.patch(kind, resource_id, spec=wanted, if_match=etag, request_id=call.request_id)
        except ClmError as error:
            if error.status != 412:
                raise
    raise ApiError(409, "conflict", "others keep changing this resource: try again")

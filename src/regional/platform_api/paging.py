"""`limit` and `offset` over CLM's pages."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from regional.platform_api.operations import Call, Parameter
from regional.platform_api.schema import Schema

_NAME = re.compile(r"[a-z0-9-]{1,100}")
_COUNT: Schema = {"type": "string"}
PAGING = (
    Parameter("limit", "How many, 1 to 100; 50 if it is absent or something else.", _COUNT),
    Parameter("offset", "How many to skip; 0 if it is absent or something else.", _COUNT),
)
NUMBERED = (
    Parameter("page", "From 1; 1 if it is absent or something else.", _COUNT),
    Parameter("size", "1 to 100; 100 if it is absent or something else.", _COUNT),
)
_FARTHEST = 99_999  # CLM has so many pages


class Page(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]
    total: int
    limit: int
    offset: int

    def counters(self) -> dict[str, int]:
        return {"total": self.total, "limit": self.limit, "offset": self.offset}


async def page_of(call: Call, kind: str, parent_id: str = "", *, of_region: bool = False) -> Page:
    clm = call.clm_of_region if of_region else call.clm
    limit = call.number("limit", 50, 100)
    offset = call.number("offset", 0, _FARTHEST, 0)
    search = ""
    if (name := call.query.get("name")) is not None:
        if not is_name(name):
            return Page([], 0, limit, offset)
        search = f"name = '{name}'"
    first, skip = divmod(offset, limit)
    found = await clm.list(kind, page=first + 1, size=limit, search=search, parent_id=parent_id)
    items = found["items"][skip:]
    if skip and (first + 1) * limit < found["total"]:
        rest = await clm.list(kind, page=first + 2, size=limit, search=search, parent_id=parent_id)
        items += rest["items"][:skip]
    return Page(items, found["total"], limit, offset)


def is_name(text: str) -> bool:
    """Whether it can be put into CLM's search."""
    return _NAME.fullmatch(text) is not None

"""The parameters of a list, and the query that answers it.

Pages are counted (`page`, `size`) as the contract has it; `after=<id>` goes on behind a resource instead, which costs
the same on any page and does not shift when others are created meanwhile.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import msgspec
from starlette.datastructures import QueryParams

from regional.clm.api import search
from regional.clm.api.problems import BadRequest, Invalid
from regional.clm.api.representation import CONDITION_FIELDS, FIELDS, SELECT
from regional.clm.specs import Fault

MAX_PAGE, MAX_SIZE = 100_000, 100
_ORDER = re.compile(r"([a-z_][a-z0-9_]*)(?:\s+(asc|desc))?")
_ORDER_COLUMNS = {
    *("id", "kind", "name", "generation", "created_time", "created_by", "updated_time", "updated_by"),
    *("deleted_time", "deleted_by", "owner_id"),
}
_NEWEST_FIRST = "resources.created_time DESC, resources.id DESC"
_KNOWN = {"page", "size", "order", "fields", "search", "after"}


class Listing(msgspec.Struct, frozen=True):
    page: int = 1
    size: int = 20
    order: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    search: str = ""
    after: UUID | None = None


class Scope(msgspec.Struct, frozen=True):
    """Which resources are in view at all."""

    tenant: str = ""  # "": every tenant
    kind: str = ""  # "": every kind
    owner_id: UUID | None = None


def listing_of(
    query: QueryParams, also: frozenset[str] = frozenset(), without: frozenset[str] = frozenset()
) -> Listing:
    """Raises Invalid with every fault; an unknown parameter is one, so that a misspelt filter is not ignored."""
    faults = [
        Fault(name[:100], f"unknown parameter {name[:100]!r}", None, "enum")
        for name in dict.fromkeys(query.keys())
        if name not in (_KNOWN | also) - without
    ]
    size = _whole(query, "size", 20, MAX_SIZE, faults)
    page = _whole(query, "page", 1, MAX_PAGE, faults)
    after = None
    if "after" in query:
        try:
            after = UUID(query["after"])
        except ValueError:
            faults.append(Fault("after", "after must be the id of a resource", query["after"][:100], "format"))
    if faults:
        raise Invalid.because(faults)
    listing = Listing(page, size, _order(query), _fields(query), query.get("search", "").strip(), after)
    if after is not None and (listing.order or "page" in query):
        raise BadRequest("after goes with neither page nor order")
    return listing


def _whole(query: QueryParams, name: str, default: int, most: int, faults: list[Fault]) -> int:
    if name not in query:
        return default
    text = query[name]
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        faults.append(Fault(name, f"{name} must be an integer", text[:100], "format"))
        return default
    value = int(text)
    if not 1 <= value <= most:
        faults.append(Fault(name, f"{name} must be between 1 and {most}", value, "min" if value < 1 else "max"))
    return value


def _order(query: QueryParams) -> tuple[str, ...]:
    clauses = []
    for given in query.getlist("order"):
        for part in given.split(","):
            found = _ORDER.fullmatch(part.strip())
            if found is None:
                raise BadRequest(f"order {part[:100]!r} is not 'field', 'field asc' or 'field desc'")
            if found[1] not in _ORDER_COLUMNS:
                raise BadRequest(
                    f"order: there is no field {found[1]!r}; there are {', '.join(sorted(_ORDER_COLUMNS))}"
                )
            clauses.append(f"resources.{found[1]} {found[2] or 'asc'}")
    return tuple(dict.fromkeys(clauses))[:10]


def _fields(query: QueryParams) -> tuple[str, ...]:
    wanted = tuple(name.strip() for given in query.getlist("fields") for name in given.split(",") if name.strip())
    for name in wanted:
        inside = name.removeprefix("status.conditions.")
        known = name in FIELDS or name in ("status", "status.conditions")
        if not known and not (name != inside and inside in CONDITION_FIELDS):
            raise BadRequest(f"fields: there is no field {name[:100]!r}")
    return wanted


async def run(connection: Any, scope: Scope, listing: Listing) -> tuple[list[Any], int]:
    """The rows of the page, and how many there are in all."""
    parameters: list[Any] = []
    conditions: list[str] = []

    def bind(value: Any) -> str:
        parameters.append(value)
        return f"${len(parameters)}"

    if scope.tenant:
        conditions.append(f"resources.tenant = {bind(scope.tenant)}")
    if scope.kind:
        conditions.append(f"resources.kind = {bind(scope.kind)}")
    if scope.owner_id is not None:
        conditions.append(f"resources.owner_id = {bind(scope.owner_id)}")
    if listing.search:
        conditions.append(search.to_sql(listing.search, parameters))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    total = await connection.fetchval(f"SELECT count(*) FROM resources{where}", *parameters)
    offset = (listing.page - 1) * listing.size
    if total <= offset and listing.after is None:
        return [], total
    if listing.after is not None:
        behind = (
            "(resources.created_time, resources.id) <"
            f" (SELECT created_time, id FROM resources AS last WHERE last.id = {bind(listing.after)})"
        )
        where = f"{where} AND {behind}" if where else f" WHERE {behind}"
    order = ", ".join((*listing.order, "resources.id desc")) if listing.order else _NEWEST_FIRST
    statement = f"{SELECT}{where} ORDER BY {order} LIMIT {listing.size} OFFSET {offset}"
    return await connection.fetch(statement, *parameters), total

"""Lists: pages in a stable order, whatever their size, without holding a long one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regional.maestro.server.rest.errors import Refusal, json_response
from regional.maestro.server.rest.search import BadSearch, Table, order, where
from regional.maestro.server.rest.views import project

LARGEST_PAGE = 65500
CHUNK = 200
BAD_REQUEST = 21


class Page(msgspec.Struct, frozen=True):
    number: int
    size: int
    condition: str
    parameters: list[Any]
    order: str
    fields: list[str]

    @property
    def offset(self) -> int:
        return max(0, (self.number - 1) * self.size)


def page_of(request: Request, table: Table, default_order: str) -> Page:
    """Raises Refusal. Sizes and page numbers that make no sense are bent as Maestro bends them."""
    query = request.query_params
    search = query.get("search", "")
    parameters: list[Any] = []
    try:
        condition = where(search, table, parameters)
    except (BadSearch, RecursionError) as error:
        json_mode = "->>" in search or "@>" in search
        said = f"failed to parse the search query: {error}" if json_mode else f"Failed to parse search query: {search}"
        raise Refusal(BAD_REQUEST, said if json_mode else f"{said} ({error})") from None
    try:
        chosen = order(query.get("orderBy", ""), table, default_order)
    except BadSearch as error:
        raise Refusal(BAD_REQUEST, str(error)) from None
    size = _number(query.get("size"), 100)
    return Page(
        number=_number(query.get("page"), 1),
        size=LARGEST_PAGE if size < 0 or size > LARGEST_PAGE else size,
        condition=condition,
        parameters=parameters,
        order=chosen,
        fields=[field.strip() for field in query.get("fields", "").split(",") if field.strip()],
    )


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        return int(text) if len(text) < 10 else 0
    except ValueError:
        return 0


async def answer(
    pool: Any, page: Page, *, kind: str, table: str, columns: str, joins: str, show: Callable[[Any], bytes]
) -> Response:
    """One statement for a short page. Of a longer one the ids are chosen first and the rows read as they are sent."""

    def item(row: Any) -> bytes:
        return project(show(row), page.fields) if page.fields else show(row)

    select = f"SELECT {columns} FROM {table} r {joins} WHERE {page.condition} ORDER BY {page.order}"
    limit = f" LIMIT {page.size} OFFSET {page.offset}"
    try:
        total = await pool.fetchval(f"SELECT count(*) FROM {table} r WHERE {page.condition}", *page.parameters)
        if min(page.size, total - page.offset) > CHUNK:
            ids = f"SELECT r.id FROM {table} r WHERE {page.condition} ORDER BY {page.order}{limit}"
            chosen = [row["id"] for row in await pool.fetch(ids, *page.parameters)]
            rows = _rows(pool, f"SELECT {columns} FROM {table} r {joins} WHERE r.id = ANY($1)", chosen)
            return StreamingResponse(_streamed(kind, page, total, rows, item), media_type="application/json")
        found = await pool.fetch(select + limit, *page.parameters) if page.size and total else []
    except asyncpg.DataError as error:
        raise Refusal(BAD_REQUEST, f"bad search value: {error}") from None
    head = _head(kind, page, len(found), total)
    return json_response(head + b",".join(item(row) for row in found) + b"]}")


def _head(kind: str, page: Page, size: int, total: int) -> bytes:
    head = msgspec.json.encode({"kind": kind, "page": page.number, "size": size, "total": total})
    return head[:-1] + b',"items":['


async def _rows(pool: Any, statement: str, ids: list[str]) -> AsyncIterator[list[Any]]:
    """No connection is held while a slow reader reads. What has gone meanwhile is left out."""
    for start in range(0, len(ids), CHUNK):
        wanted = ids[start : start + CHUNK]
        found = {row["id"]: row for row in await pool.fetch(statement, wanted)}
        yield [found[row_id] for row_id in wanted if row_id in found]


async def _streamed(
    kind: str, page: Page, total: int, rows: AsyncIterator[list[Any]], item: Callable[[Any], bytes]
) -> AsyncIterator[bytes]:
    """`size` comes behind the items, when it is known."""
    head = msgspec.json.encode({"kind": kind, "page": page.number, "total": total})
    yield head[:-1] + b',"items":['
    size = 0
    async for chunk in rows:
        text = b",".join(item(row) for row in chunk)
        if chunk:
            yield b"," + text if size else text
        size += len(chunk)
    yield b'],"size":%d}' % size

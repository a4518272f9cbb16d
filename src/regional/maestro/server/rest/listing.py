"""Lists: pages in a stable order, whatever their size, without holding a long one in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import asyncpg
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regional.maestro.server.refusals import Refusal
from regional.maestro.server.rest.errors import json_response
from regional.maestro.server.rest.search import BadSearch, Table, order, where
from regional.maestro.server.rest.views import project

LARGEST_PAGE = 65500
FURTHEST = 10**12  # beyond every page, and within what PostgreSQL counts to
CHUNK = 100
PIECE = 128 * 1024  # bytes sent at a time: longer ones cost more to put together than to send
BAD_REQUEST = 21


class Page(msgspec.Struct, frozen=True):
    number: int
    size: int
    condition: str
    parameters: list[Any]
    order: str
    fields: list[str]
    additions: bool
    """Whether to show what Maestro's own schema does not have: its generated client refuses lists with such fields."""

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
    size = number(query.get("size"), 100)
    fields = [field.strip() for field in query.get("fields", "").split(",") if field.strip()]
    return Page(
        number=number(query.get("page"), 1),
        size=LARGEST_PAGE if size < 0 or size > LARGEST_PAGE else size,
        condition=condition,
        parameters=parameters,
        order=chosen,
        fields=fields,
        additions=bool(fields) or query.get("additions") == "true",
    )


def number(text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        return max(-FURTHEST, min(int(text), FURTHEST)) if len(text) < 20 else 0
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


async def _rows(pool: Any, statement: str, ids: list[str]) -> AsyncGenerator[list[Any]]:
    """While one chunk is being sent, the next is read. No connection is held while a slow reader reads. What has gone
    meanwhile is left out."""
    reading: asyncio.Task[list[Any]] | None = None
    try:
        for start in range(0, len(ids) + CHUNK, CHUNK):
            ready = await reading if reading is not None else []
            wanted = ids[start : start + CHUNK]
            reading = asyncio.create_task(_chosen(pool, statement, wanted)) if wanted else None
            if ready:
                yield ready
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _chosen(pool: Any, statement: str, wanted: list[str]) -> list[Any]:
    found = {row["id"]: row for row in await pool.fetch(statement, wanted)}
    return [found[row_id] for row_id in wanted if row_id in found]


async def _streamed(
    kind: str, page: Page, total: int, rows: AsyncGenerator[list[Any]], item: Callable[[Any], bytes]
) -> AsyncIterator[bytes]:
    """`size` comes behind the items, when it is known."""
    head = msgspec.json.encode({"kind": kind, "page": page.number, "total": total})
    yield head[:-1] + b',"items":['
    size = 0
    async with contextlib.aclosing(rows):
        async for chunk in rows:
            parts, length = [], 0
            for row in chunk:
                parts += [b"," if size else b"", item(row)]
                length += len(parts[-1])
                size += 1
                if length > PIECE:
                    yield b"".join(parts)
                    parts, length = [], 0
            if parts:
                yield b"".join(parts)
    yield b'],"size":%d}' % size

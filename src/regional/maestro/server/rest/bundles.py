"""Resource bundles over HTTP. What is accepted is on its way to the agent before the answer is sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regional.core.database import Database
from regional.maestro.server import admission
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.delivery import Delivery
from regional.maestro.server.faults import LARGEST_METADATA
from regional.maestro.server.feed import SCAN_SECONDS, Cursor, CursorExpired, Feed
from regional.maestro.server.history import MOST_ENTRIES, entries_of
from regional.maestro.server.model import CONTACT, QUALIFIED, Bundle, Contact, bundle_of, contact_of
from regional.maestro.server.refusals import Refusal
from regional.maestro.server.rest.bodies import body_of
from regional.maestro.server.rest.errors import json_response
from regional.maestro.server.rest.listing import answer, number, page_of
from regional.maestro.server.rest.search import RESOURCES
from regional.maestro.server.rest.views import bundle_view, delivery_of, now
from regional.maestro.server.source import Source
from regional.maestro.server.writes import Writes

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
LULL = 0.001
LONGEST_LULL = 0.02


class BundleRoutes:
    def __init__(
        self, database: Database, bundles: Bundles, writes: Writes, delivery: Delivery, feed: Feed, source: Source
    ) -> None:
        self._database, self._bundles, self._writes = database, bundles, writes
        self._delivery, self._feed, self._source = delivery, feed, source

    def _view(self, bundle: Bundle, contact: Contact) -> bytes:
        away = self._source.broker.dependency.reason
        note = self._delivery.note(bundle.consumer_name)
        return bundle_view(bundle, delivery_of(bundle, contact, note, away, now()))

    async def _shown(self, bundle_id: str) -> bytes:
        found = await self._bundles.get_seen(bundle_id)
        if found is None:
            raise Refusal(7, f"Resource with id='{bundle_id}' not found")
        return self._view(*found)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        started = time.monotonic()
        content = await self._body(request)
        new = admission.new_bundle(content, _request_id(request), self._writes.largest)
        bundle, contact, fresh = await self._writes.create(new, started)
        if fresh:
            return json_response(self._view(bundle, contact), 201)
        return json_response(await self._shown(bundle.id))

    async def patch(self, request: Request) -> Response:
        started = time.monotonic()
        patch = admission.checked_patch(await self._body(request))
        request_id, largest = _request_id(request), self._writes.largest
        bundle_id = request.path_params["id"]
        updated = await self._writes.update(
            bundle_id,
            patch.version,
            lambda bundle: admission.patched(bundle, patch, request_id, largest),
            started,
        )
        return json_response(self._view(*updated) if updated else await self._shown(bundle_id))

    async def delete(self, request: Request) -> Response:
        await self._writes.delete(request.path_params["id"], _request_id(request), time.monotonic())
        return Response(status_code=204, headers={"Content-Type": "application/json"})

    async def redeliver(self, request: Request) -> Response:
        bundle_id = request.path_params["id"]
        await self._writes.redeliver(bundle_id, _request_id(request), time.monotonic())
        return json_response(await self._shown(bundle_id), 202)

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, self._writes.largest + LARGEST_METADATA + 64 * 1024)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, request: Request) -> Response:
        return json_response(await self._shown(request.path_params["id"]))

    async def history(self, request: Request) -> Response:
        """Also of a bundle that is gone, for as long as that is remembered."""
        bundle_id = request.path_params["id"]
        size = min(number(request.query_params.get("size"), 100), MOST_ENTRIES)
        items = await entries_of(self._database, bundle_id, max(size, 0))
        if not items:
            await self._shown(bundle_id)
        return json_response({"kind": "ResourceBundleHistory", "id": bundle_id, "size": len(items), "items": items})

    async def list(self, request: Request) -> Response:
        page = page_of(request, RESOURCES, "r.created_at asc")

        def shown(row: Any) -> bytes:
            bundle = bundle_of(row)
            return self._view(bundle, contact_of(row)) if page.additions else bundle_view(bundle, None)

        return await answer(
            pool_of(self._database),
            page,
            kind="ResourceBundleList",
            table="resources",
            columns=f"{QUALIFIED}, {CONTACT}",
            joins="JOIN consumers c ON c.name = r.consumer_name",
            show=shown,
        )

    async def watch(self, request: Request) -> Response:
        source, after = request.query_params.get("source", ""), request.query_params.get("after", "")
        cursor = None
        if after:
            try:
                cursor = Cursor.parse(after)
                await self._feed.check(cursor)
            except ValueError as error:
                raise Refusal(21, str(error)) from None
            except CursorExpired:
                raise Refusal(21, "the cursor has expired; watch again without `after`", status=410) from None
        lines = self._lines(source, cursor)
        return StreamingResponse(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})

    async def _lines(self, source: str, cursor: Cursor | None) -> AsyncIterator[bytes]:
        try:
            if cursor is None:
                cursor = await self._feed.horizon()
                async for bundle, contact in self._feed.everything(source):
                    yield _line("", self._view(bundle, contact))
                yield _line(cursor)
            async for line in self._follow(source, cursor):
                yield line
        except FAILURES as error:
            # The client goes on from its cursor as soon as the database is back.
            log.info("a watch ends", extra={"source": source, "reason": str(error)})

    async def _follow(self, source: str, cursor: Cursor) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        spoke = loop.time()
        pause = 0.0
        with self._feed.watching(source) as woken:
            while True:
                woken.clear()
                changes, cursor, more = await self._feed.after(cursor, source)
                for change in changes:
                    yield _line(change.cursor, self._view(change.bundle, change.contact))
                if changes:
                    spoke = loop.time()
                elif loop.time() - spoke >= HEARTBEAT_SECONDS:
                    yield _line(cursor)
                    spoke = loop.time()
                # A change that is committed but stands behind a running transaction shows in a moment.
                pause = 0.0 if changes else min(0.05, pause * 2 or 0.002)
                if more:
                    await asyncio.sleep(pause)
                    continue
                if len(changes) > 1:  # where there are several, there are more to come, and one look finds them all
                    await asyncio.sleep(min(LONGEST_LULL, LULL * len(changes)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_SECONDS):
                        await woken.wait()


def _line(cursor: Cursor | str, bundle: bytes | None = None) -> bytes:
    head: dict[str, Any] = {"cursor": str(cursor)}
    return msgspec.json.encode(head | {"bundle": msgspec.Raw(bundle)} if bundle else head) + b"\n"


def _request_id(request: Request) -> str:
    return admission.checked_request_id(request.headers.get("x-request-id"))

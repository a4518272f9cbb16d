"""Resource bundles over HTTP. What is accepted is on its way to the agent before the answer is sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import prometheus_client
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from regional.core.database import Database
from regional.maestro.server.bundles import BundleExists, Bundles, StaleVersion, UnderDeletion, UnknownConsumer
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.delivery import Delivery
from regional.maestro.server.feed import SCAN_SECONDS, Cursor, CursorExpired, Feed
from regional.maestro.server.model import QUALIFIED, Bundle, bundle_of
from regional.maestro.server.rest import admission
from regional.maestro.server.rest.bodies import body_of
from regional.maestro.server.rest.errors import Refusal, json_response
from regional.maestro.server.rest.listing import answer, page_of
from regional.maestro.server.rest.search import RESOURCES
from regional.maestro.server.rest.views import bundle_view, delivery_of, now
from regional.maestro.server.source import Source

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
_accepted = prometheus_client.Counter(
    "maestro_server_accepted_total", "Changes of bundles that were accepted", ["change"]
)


class BundleRoutes:
    def __init__(
        self, database: Database, bundles: Bundles, delivery: Delivery, feed: Feed, source: Source, largest: int
    ) -> None:
        self._database, self._bundles, self._delivery = database, bundles, delivery
        self._feed, self._source, self._largest = feed, source, largest

    def _view(self, bundle: Bundle, seen: datetime | None) -> bytes:
        away = self._source.broker.dependency.reason
        note = self._delivery.note(bundle.consumer_name)
        return bundle_view(bundle, delivery_of(bundle, seen, note, away, now()))

    async def _shown(self, bundle_id: str) -> bytes:
        found = await self._bundles.get_seen(bundle_id)
        if found is None:
            raise Refusal(7, f"Resource with id='{bundle_id}' not found")
        return self._view(*found)

    def _accept(self, bundle: Bundle, change: str, started: float) -> None:
        """`started` is when the request came; what follows the commit is not in its span."""
        ms = round((time.monotonic() - started) * 1000, 3)
        self._delivery.offer(bundle)
        _accepted.labels(change).inc()
        log.info(
            "bundle accepted",
            extra={
                "change": change,
                "resource": bundle.id,
                "consumer": bundle.consumer_name,
                "version": bundle.version,
                "request_id": bundle.request_id,
                "span": "maestro.commit",
                "ms": ms,
            },
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        started = time.monotonic()
        content = await body_of(request, self._largest + admission.LARGEST_METADATA + 64 * 1024)
        new = admission.new_bundle(content, _request_id(request), self._largest)
        try:
            bundle, seen, fresh = await self._bundles.create(new)
        except UnknownConsumer as error:
            raise Refusal(7, str(error)) from None
        except (BundleExists, UnderDeletion) as error:
            raise Refusal(6, str(error)) from None
        if fresh:
            self._accept(bundle, "create", started)
            return json_response(self._view(bundle, seen), 201)
        return json_response(await self._shown(bundle.id))

    async def patch(self, request: Request) -> Response:
        started = time.monotonic()
        bundle_id = request.path_params["id"]
        content = await body_of(request, self._largest + admission.LARGEST_METADATA + 64 * 1024)
        patch = admission.checked_patch(content)
        while True:
            bundle = await self._bundles.get(bundle_id)
            if bundle is None:
                raise Refusal(7, f"Resource with id='{bundle_id}' not found")
            try:
                updated = await self._patched(bundle, patch, _request_id(request))
            except UnderDeletion as error:
                raise Refusal(6, str(error)) from None
            except StaleVersion as error:
                if patch.version is not None:
                    raise Refusal(6, str(error)) from None
                continue  # somebody was faster; without a version asked for, ours goes on top
            if updated.version != bundle.version:
                self._accept(updated, "update", started)
            return json_response(await self._shown(bundle_id))

    async def _patched(self, bundle: Bundle, patch: admission.BundlePatch, request_id: str) -> Bundle:
        if bundle.deleted_at is not None:
            raise UnderDeletion(bundle.id)
        if patch.version is not None and patch.version != bundle.version:
            raise StaleVersion(bundle.version)
        metadata, spec, request_id = admission.patched(bundle, patch, request_id, self._largest)
        return await self._bundles.update(bundle, metadata=metadata, spec=spec, request_id=request_id)

    async def delete(self, request: Request) -> Response:
        started = time.monotonic()
        bundle = await self._bundles.delete(request.path_params["id"], _request_id(request))
        if bundle is not None:
            self._accept(bundle, "delete", started)
        return Response(status_code=204, headers={"Content-Type": "application/json"})

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, request: Request) -> Response:
        return json_response(await self._shown(request.path_params["id"]))

    async def list(self, request: Request) -> Response:
        return await answer(
            pool_of(self._database),
            page_of(request, RESOURCES, "r.created_at asc"),
            kind="ResourceBundleList",
            table="resources",
            columns=f"{QUALIFIED}, c.last_seen_at",
            joins="JOIN consumers c ON c.name = r.consumer_name",
            show=lambda row: self._view(bundle_of(row), row["last_seen_at"]),
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
                async for bundle, seen in self._feed.everything(source):
                    yield _line("", self._view(bundle, seen))
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
        with self._feed.watching() as woken:
            while True:
                woken.clear()
                changes, cursor, more = await self._feed.after(cursor, source)
                for change in changes:
                    yield _line(change.cursor, self._view(change.bundle, change.seen))
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
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), SCAN_SECONDS)


def _line(cursor: Cursor | str, bundle: bytes | None = None) -> bytes:
    head: dict[str, Any] = {"cursor": str(cursor)}
    return msgspec.json.encode(head | {"bundle": msgspec.Raw(bundle)} if bundle else head) + b"\n"


def _request_id(request: Request) -> str:
    return admission.checked_request_id(request.headers.get("x-request-id"))

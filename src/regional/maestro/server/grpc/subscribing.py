"""What a subscriber hears: each status of its source's bundles, once for however many it missed, and a heartbeat.

It begins with now. Whoever needs what was before asks for it (a resync of statuses), as its clients do on connecting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from regional.maestro.protocol.events import STATUS, UPDATE, Event, event_type, timestamp
from regional.maestro.protocol.grpc_binding import encode, heartbeat
from regional.maestro.protocol.tracing import log_tracing
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.feed import SCAN_SECONDS, Change, Cursor, Feed
from regional.maestro.server.grpc.publishing import status_data
from regional.maestro.server.model import shown_metadata

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
_AWAY_SECONDS = 0.5


class Subscribing:
    def __init__(self, feed: Feed, source_id: str) -> None:
        self._feed, self._source_id = feed, source_id

    async def messages(self, source: str) -> AsyncIterator[Any]:
        """Without end. While the database is away there are heartbeats: the stream goes on where it was.

        Raises CursorExpired if what came meanwhile is not kept any more, or the database is another.
        """
        cursor: Cursor | None = None
        away = False
        beat = time.monotonic() + HEARTBEAT_SECONDS
        with self._feed.watching(source) as woken:
            while True:
                woken.clear()
                changes: list[Change] = []
                more = False
                try:
                    if cursor is None:
                        cursor = await self._feed.horizon()
                    if away:
                        await self._feed.check(cursor)
                        away = False
                    changes, cursor, more = await self._feed.after(cursor, source)
                    pause = SCAN_SECONDS
                except FAILURES as error:
                    log.debug("a subscriber waits for the database", extra={"source": source, "reason": str(error)})
                    pause, away = _AWAY_SECONDS, True
                for change in changes:
                    if change.status and change.bundle.status is not None:
                        yield encode(self._event(change))
                if time.monotonic() >= beat:
                    yield heartbeat()
                    beat = time.monotonic() + HEARTBEAT_SECONDS
                if more:
                    # A change that is committed but stands behind a running transaction shows in a moment.
                    await asyncio.sleep(0.0 if changes else 0.005)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await woken.wait()

    def _event(self, change: Change) -> Event:
        bundle = change.bundle
        return Event(
            source=bundle.consumer_name,
            type=event_type(STATUS, UPDATE),
            time=timestamp(bundle.status_at or bundle.deleted_at or bundle.updated_at),
            extensions={
                "clustername": bundle.consumer_name,
                "originalsource": self._source_id,
                "resourceid": bundle.id,
                "resourceversion": str(bundle.status_version or bundle.version),
                "sequenceid": str(bundle.status_sequence or 0),
                "statushash": bundle.status_hash or "",
                "metadata": msgspec.json.encode(shown_metadata(bundle), order="sorted").decode(),
                "logtracing": log_tracing(bundle.request_id),
            },
            data=status_data(bundle),
        )

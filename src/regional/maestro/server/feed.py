"""The change feed: every change of every bundle, in an order that a reader can go on from after any break.

Level, not edge: NOTIFY only says "look", and a reader looks every second anyway. A reader gets the bundle as it is now,
once for however many changes it missed. Cursors are `<transaction>-<event>`: a reader never passes a transaction that
still runs, because its changes would appear behind the reader's back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import msgspec

from regional.core.database import Database, still_wanted
from regional.maestro.server import history
from regional.maestro.server.bundles import CHANNEL
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.model import CONTACT, QUALIFIED, Bundle, Contact, bundle_of, contact_of

log = logging.getLogger(__name__)

PAGE = 500
SCAN_SECONDS = 1.0
KEEP_EVENTS = "2 hours"
KEEP_TOMBSTONES = "60 days"
_HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_EVENTS = f"""
WITH horizon AS ({_HORIZON} AS reached), page AS (
    SELECT e.xid, e.id, e.resource_id, e.kind, e.last FROM events e, horizon h
    WHERE (e.xid, e.id) > ($1, $2) AND e.xid < h.reached AND ($3 = '' OR e.source = $3)
    ORDER BY e.xid, e.id LIMIT {PAGE}
)
SELECT h.reached, coalesce((SELECT max(xid) FROM events), 0) >= h.reached AS hidden, p.*
FROM horizon h LEFT JOIN page p ON true ORDER BY p.xid, p.id
"""


class CursorExpired(Exception):
    """What followed this cursor is not kept any more: start over with everything."""


class Cursor(msgspec.Struct, frozen=True, order=True):
    transaction: int
    event: int

    def __str__(self) -> str:
        return f"{self.transaction}-{self.event}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises ValueError."""
        transaction, separator, event = text.partition("-")
        if not (separator and transaction.isdigit() and event.isdigit() and len(text) < 40):
            raise ValueError(f"{text[:40]!r} is not a cursor")
        return cls(int(transaction), int(event))


class Change(msgspec.Struct, frozen=True):
    cursor: Cursor
    bundle: Bundle
    contact: Contact
    gone: bool = False
    status: bool = False
    """Whether its status is among what has changed, or told again."""


class Feed:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: dict[asyncio.Event, str] = {}

    async def hear(self, connection: Any) -> None:
        """Wake watchers when something is committed anywhere; and in any case when listening begins anew."""
        await connection.add_listener(CHANNEL, lambda *said: self._wake(str(said[-1])))
        for watcher in self._watchers:
            watcher.set()

    def _wake(self, source: str) -> None:
        for watcher, watched in self._watchers.items():
            if watched in ("", source):
                watcher.set()

    @contextlib.contextmanager
    def watching(self, source: str) -> Iterator[asyncio.Event]:
        """Set whenever bundles of this source ("": of any) may have changed."""
        event = asyncio.Event()
        self._watchers[event] = source
        try:
            yield event
        finally:
            del self._watchers[event]

    async def horizon(self) -> Cursor:
        """Everything before is committed or never will be."""
        return Cursor(await pool_of(self._database).fetchval(_HORIZON), 0)

    async def check(self, cursor: Cursor) -> None:
        """Raises CursorExpired."""
        pool = pool_of(self._database)
        floor = await pool.fetchval("SELECT floor FROM feed")
        if cursor.transaction < floor or cursor.transaction > (await self.horizon()).transaction:
            raise CursorExpired(str(cursor))

    async def after(self, cursor: Cursor, source: str) -> tuple[list[Change], Cursor, bool]:
        """Changes behind a cursor, where to go on, and whether there is more to be had right now."""
        pool = pool_of(self._database)
        rows = await pool.fetch(_EVENTS, cursor.transaction, cursor.event, source)
        events = [row for row in rows if row["id"] is not None]
        reached = max(cursor, Cursor(rows[0]["reached"], 0))
        if not events:
            return [], reached, rows[0]["hidden"]
        latest = {event["resource_id"]: event for event in events}
        reported = {event["resource_id"] for event in events if event["kind"] in ("status", "deleted")}
        bundles = await pool.fetch(
            f"SELECT {QUALIFIED}, {CONTACT} FROM resources r JOIN consumers c ON c.name = r.consumer_name"
            " WHERE r.id = ANY($1)",
            list(latest),
        )
        found = {row["id"]: row for row in bundles}
        changes = [change for event in latest.values() if (change := _change(event, found, reported)) is not None]
        changes.sort(key=lambda change: change.cursor)
        if len(events) == PAGE:
            return changes, Cursor(events[-1]["xid"], events[-1]["id"]), True
        return changes, reached, rows[0]["hidden"]

    async def everything(self, source: str) -> AsyncIterator[tuple[Bundle, Contact]]:
        last = ""
        while True:
            rows = await pool_of(self._database).fetch(
                f"SELECT {QUALIFIED}, {CONTACT} FROM resources r JOIN consumers c ON c.name = r.consumer_name"
                " WHERE r.id > $1 AND ($2 = '' OR r.source = $2) ORDER BY r.id LIMIT 200",
                *(last, source),
            )
            for row in rows:
                yield bundle_of(row), contact_of(row)
            if len(rows) < 200:
                return
            last = rows[-1]["id"]

    async def keep_tidy(self, every: float = 600.0) -> None:
        """Old events and tombstones go. Events of the future are those of another server that was dumped into this."""
        while True:
            try:
                await self.tidy()
                await asyncio.sleep(every)
            except FAILURES:
                still_wanted()
                await asyncio.sleep(1.0)

    async def tidy(self, keep: str = KEEP_EVENTS) -> None:
        pool = pool_of(self._database)
        await pool.execute(
            "WITH gone AS (DELETE FROM events WHERE created_at < now() - $1::text::interval"
            " OR xid > pg_current_xact_id()::text::bigint RETURNING *),"
            " kept AS (INSERT INTO history SELECT resource_id, created_at, kind, version, request_id, note FROM gone"
            " WHERE version IS NOT NULL)"
            " UPDATE feed SET floor = greatest(floor, 1 + (SELECT max(xid) FROM gone"
            " WHERE xid <= pg_current_xact_id()::text::bigint)) WHERE EXISTS (SELECT 1 FROM gone)",
            keep,
        )
        await pool.execute("DELETE FROM tombstones WHERE deleted_at < now() - $1::text::interval", KEEP_TOMBSTONES)
        await history.trim(self._database)


def _change(event: Any, found: dict[str, Any], reported: set[str]) -> Change | None:
    cursor = Cursor(event["xid"], event["id"])
    row = found.get(event["resource_id"])
    if row is not None:
        return Change(cursor, bundle_of(row), contact_of(row), status=event["resource_id"] in reported)
    if event["kind"] != "deleted":
        return None  # gone meanwhile; the event that says so comes
    last = _last_seen_as(event["resource_id"], msgspec.json.decode(event["last"]))
    return Change(cursor, last, Contact(), gone=True, status=True)


def _last_seen_as(bundle_id: str, last: dict[str, Any]) -> Bundle:
    return Bundle(
        id=bundle_id,
        name=last["name"],
        source="",
        consumer_name=last["consumer_name"],
        version=last["version"],
        metadata=msgspec.json.encode(last["metadata"]).decode(),
        spec="{}",
        request_id=last["request_id"],
        created_at=datetime.fromisoformat(last["created_at"]),
        updated_at=datetime.fromisoformat(last["updated_at"]),
        deleted_at=datetime.fromisoformat(last["deleted_at"]),
        status=last["status"],
        status_version=last["version"],
        status_sequence=last["sequence"],
    )

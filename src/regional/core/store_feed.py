"""Reading the change feed of `core.store` without missing an entry, at any number of writers.

Numbers are given out before transactions commit, so "everything after the last number I saw" would skip an entry that
commits late. A reader's place is therefore a transaction: all entries of transactions below it have been handled. It
moves up to the oldest transaction still running; entries above are handled as soon as they are visible and remembered
until the place has passed them. Handling must be idempotent: after a crash the entries above the place come again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

PAGE = 500
_HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


class Change(msgspec.Struct, frozen=True):
    xid: int
    id: int
    resource_id: UUID
    kind: str
    tenant: str
    change: str
    generation: int
    revision: int
    request_id: str
    at: datetime


_PAGE = (
    f"SELECT {', '.join(Change.__struct_fields__)} FROM changes"
    f" WHERE (xid, id) > ($1::bigint, $2::bigint) ORDER BY xid, id LIMIT {PAGE}"
)


class Batch(msgspec.Struct, frozen=True):
    """Entries to handle, and the place that is reached by handling them. `more` says to read again at once."""

    changes: list[Change]
    place: int
    more: bool


class FeedReader:
    """One reader on one connection: `read`, write the consequences and `settle` in one transaction, and so on."""

    def __init__(self, connection: Any, reader: str) -> None:
        self._connection = connection
        self._reader = reader
        self._place = 0
        self._horizon = 0
        self._behind = (0, 0)  # the last entry of this sweep
        self._handled: dict[int, int] = {}

    async def open(self, now: datetime) -> bool:
        """Find the reader's place. False if it has none that fits this database: then look at everything once."""
        horizon = await self._connection.fetchval(_HORIZON)
        found = await self._connection.fetchval("SELECT xid FROM feed_cursors WHERE reader = $1", self._reader)
        # A database restored into another server counts its transactions anew, below the place that was kept.
        fits = found is not None and found <= horizon
        self._place = found if fits else horizon
        self._behind = (self._place, 0)
        if not fits:
            await self._keep(now)
        return fits

    async def read(self) -> Batch:
        if self._behind == (self._place, 0):
            self._horizon = await self._connection.fetchval(_HORIZON)
        rows = await self._connection.fetch(_PAGE, *self._behind)
        fresh = [Change(*row.values()) for row in rows if row["id"] not in self._handled]
        more = len(rows) == PAGE
        if more:
            self._behind = (rows[-1]["xid"], rows[-1]["id"])
        return Batch(fresh, min(self._horizon, self._behind[0]) if more else self._horizon, more)

    async def settle(self, batch: Batch, now: datetime) -> None:
        self._handled.update((change.id, change.xid) for change in batch.changes)
        self._place = max(self._place, batch.place)
        if batch.changes:
            await self._keep(now)
        if not batch.more:
            self._behind = (self._place, 0)
            self._handled = {entry: xid for entry, xid in self._handled.items() if xid >= self._place}

    async def _keep(self, now: datetime) -> None:
        await self._connection.execute(
            "INSERT INTO feed_cursors (reader, xid, moved_at) VALUES ($1, $2, $3)"
            " ON CONFLICT (reader) DO UPDATE SET xid = EXCLUDED.xid, moved_at = EXCLUDED.moved_at",
            self._reader,
            self._place,
            now,
        )


async def forget_changes(connection: Any, before: datetime, limit: int = 5000) -> int:
    """Drop entries that every reader has passed and that are older than `before`; history keeps them."""
    done = await connection.execute(
        "DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE at < $1"
        " AND xid < (SELECT min(xid) FROM feed_cursors) ORDER BY at LIMIT $2)",
        before,
        limit,
    )
    return int(done.rpartition(" ")[2])

"""Resource bundles in the database. A change of a bundle, its version and its event are one statement.

One statement is one transaction and one round trip; the change feed's listeners hear of it when it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from regional.core.database import Database
from regional.maestro.protocol.tracing import ANNOTATION
from regional.maestro.server.connection import pool_of
from regional.maestro.server.model import COLUMNS, QUALIFIED, Bundle, bundle_of

CHANNEL = "maestro_changes"
LEASE_SECONDS = 5
"""Whoever wrote a bundle sends it at once; only if it is not confirmed by then does a scan send it again."""

_CREATE = f"""
WITH made AS (
    INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, request_id, due_at)
    SELECT $1, $2, $3, $4, coalesce((SELECT version FROM tombstones WHERE id = $1), 0) + 1, $5, $6, $7,
        now() + interval '{LEASE_SECONDS} seconds'
    ON CONFLICT DO NOTHING
    RETURNING *
), told AS (
    INSERT INTO events (resource_id, source, kind) SELECT id, source, 'spec' FROM made
)
SELECT {COLUMNS}, pg_notify('{CHANNEL}', source),
    (SELECT c.last_seen_at FROM consumers c WHERE c.name = consumer_name) AS last_seen_at FROM made
"""
_UPDATE = f"""
WITH made AS (
    UPDATE resources SET version = version + 1, metadata = $3, spec = $4, request_id = $5, updated_at = now(),
        attempts = 0, due_at = now() + interval '{LEASE_SECONDS} seconds'
    WHERE id = $1 AND version = $2 AND deleted_at IS NULL
    RETURNING *
), told AS (
    INSERT INTO events (resource_id, source, kind) SELECT id, source, 'spec' FROM made
)
SELECT {COLUMNS}, pg_notify('{CHANNEL}', source) FROM made
"""
_DELETE = f"""
WITH made AS (
    UPDATE resources SET deleted_at = now(), attempts = 0, due_at = now() + interval '{LEASE_SECONDS} seconds',
        request_id = CASE WHEN $2 = '' THEN request_id ELSE $2 END
    WHERE id = $1 AND deleted_at IS NULL
    RETURNING *
), told AS (
    INSERT INTO events (resource_id, source, kind) SELECT id, source, 'deleting' FROM made
)
SELECT {COLUMNS}, pg_notify('{CHANNEL}', source) FROM made
"""
_CLAIM = f"""
UPDATE resources SET attempts = attempts + 1, due_at = now()
    + interval '1 second' * (0.75 + random() / 2) * least($1, {LEASE_SECONDS} * 2 ^ least(attempts + 1, 16))
WHERE id IN (
    SELECT id FROM resources WHERE due_at <= now() AND deleted_at IS {{state}} ORDER BY due_at
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING {COLUMNS}
"""
# Two conditions that match the two partial indexes; one over both would read the whole table.
_UNCONFIRMED = (
    "SELECT consumer_name, updated_at AS since FROM resources WHERE due_at IS NOT NULL AND deleted_at IS NULL"
    " UNION ALL"
    " SELECT consumer_name, deleted_at AS since FROM resources WHERE due_at IS NOT NULL AND deleted_at IS NOT NULL"
)


class UnknownConsumer(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"Consumer with name='{name}' not found")


class BundleExists(Exception):
    """Another bundle has this id or name."""


class UnderDeletion(Exception):
    def __init__(self, bundle_id: str) -> None:
        super().__init__(f"the resource is under deletion, id: {bundle_id}")


class StaleVersion(Exception):
    def __init__(self, latest: int) -> None:
        super().__init__(f"the resource version is not the latest, the latest version: {latest}")


class NewBundle(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    name: str
    source: str
    consumer_name: str
    metadata: str
    spec: str
    request_id: str


class Bundles:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _pool(self) -> Any:
        return pool_of(self._database)

    async def create(self, new: NewBundle) -> tuple[Bundle, datetime | None, bool]:
        """The bundle, when its consumer was last seen, and whether it is new: the same content twice is one bundle."""
        try:
            row = await self._pool.fetchrow(
                _CREATE, new.id, new.name, new.source, new.consumer_name, new.metadata, new.spec, new.request_id
            )
        except asyncpg.ForeignKeyViolationError:
            raise UnknownConsumer(new.consumer_name) from None
        if row is not None:
            return bundle_of(row), row["last_seen_at"], True
        existing = await self._in_the_way(new)
        if existing is None:  # it went away between the two statements
            return await self.create(new)
        if existing.deleted_at is not None:
            raise UnderDeletion(existing.id)
        if existing.id == new.id and _same(existing, new):
            return existing, None, False
        raise BundleExists("This Resource already exists")

    async def _in_the_way(self, new: NewBundle) -> Bundle | None:
        row = await self._pool.fetchrow(
            f"SELECT {COLUMNS} FROM resources WHERE id = $1 OR (source, consumer_name, name) = ($2, $3, $4)"
            " ORDER BY id <> $1 LIMIT 1",
            *(new.id, new.source, new.consumer_name, new.name),
        )
        return bundle_of(row) if row else None

    async def update(self, bundle: Bundle, *, metadata: str, spec: str, request_id: str) -> Bundle:
        """The next version of `bundle` as it was read; itself if nothing differs. Raises StaleVersion if it moved."""
        if same_metadata(bundle.metadata, metadata) and bundle.spec == spec:
            return bundle
        row = await self._pool.fetchrow(_UPDATE, bundle.id, bundle.version, metadata, spec, request_id)
        if row is not None:
            return bundle_of(row)
        now = await self.get(bundle.id)
        if now is not None and now.deleted_at is not None:
            raise UnderDeletion(bundle.id)
        raise StaleVersion(now.version if now is not None else 0)

    async def delete(self, bundle_id: str, request_id: str) -> Bundle | None:
        """None if it is unknown or being deleted already."""
        row = await self._pool.fetchrow(_DELETE, bundle_id, request_id)
        return bundle_of(row) if row else None

    async def get(self, bundle_id: str) -> Bundle | None:
        row = await self._pool.fetchrow(f"SELECT {COLUMNS} FROM resources WHERE id = $1", bundle_id)
        return bundle_of(row) if row else None

    async def get_seen(self, bundle_id: str) -> tuple[Bundle, datetime | None] | None:
        """The bundle and when its consumer was last seen."""
        row = await self._pool.fetchrow(
            f"SELECT {QUALIFIED}, c.last_seen_at FROM resources r JOIN consumers c ON c.name = r.consumer_name"
            " WHERE r.id = $1",
            bundle_id,
        )
        return (bundle_of(row), row["last_seen_at"]) if row else None

    async def some(self, ids: Sequence[str]) -> list[Bundle]:
        rows = await self._pool.fetch(f"SELECT {COLUMNS} FROM resources WHERE id = ANY($1)", ids)
        return [bundle_of(row) for row in rows]

    # -- the delivery queue ------------------------------------------------------------------------------------------

    async def claim_due(self, longest: float, limit: int, *, deletes: bool) -> list[Bundle]:
        """What nobody has confirmed in time. Claiming pushes the next time away, so replicas do not take the same."""
        statement = _CLAIM.format(state="NOT NULL" if deletes else "NULL")
        rows = await self._pool.fetch(statement, longest, limit)
        return [bundle_of(row) for row in rows]

    async def unconfirmed_consumers(self) -> list[str]:
        rows = await self._pool.fetch(f"SELECT DISTINCT consumer_name FROM ({_UNCONFIRMED}) AS r ORDER BY 1")
        return [row["consumer_name"] for row in rows]

    async def unconfirmed_after(self, consumer: str, bundle_id: str, limit: int, *, deletes: bool) -> list[Bundle]:
        state = "NOT NULL" if deletes else "NULL"
        rows = await self._pool.fetch(
            f"SELECT {COLUMNS} FROM resources WHERE due_at IS NOT NULL AND deleted_at IS {state}"
            " AND consumer_name = $1 AND id > $2 ORDER BY id LIMIT $3",
            *(consumer, bundle_id, limit),
        )
        return [bundle_of(row) for row in rows]

    async def backlog(self) -> tuple[int, float]:
        """How many bundles are not confirmed, and for how many seconds the oldest has waited."""
        row = await self._pool.fetchrow(
            "SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(since)), 0) AS oldest"
            f" FROM ({_UNCONFIRMED}) AS r"
        )
        return row["waiting"], float(row["oldest"])


def _same(existing: Bundle, new: NewBundle) -> bool:
    places = (existing.consumer_name, existing.source, existing.name) == (new.consumer_name, new.source, new.name)
    return places and existing.spec == new.spec and same_metadata(existing.metadata, new.metadata)


def same_metadata(first: str, second: str) -> bool:
    """Apart from the request's id: who asks twice for the same thing does not want a new version."""
    return _without_request(first) == _without_request(second)


def _without_request(metadata: str) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(metadata)
    annotations = {k: v for k, v in (document.pop("annotations", None) or {}).items() if k != ANNOTATION}
    return document | ({"annotations": annotations} if annotations else {})

"""Resource bundles in the database. A change of a bundle, its version and its event are one statement.

One statement is one transaction and one round trip, for as many bundles as have come meanwhile; the change feed's
listeners hear of it when it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from regional.core.database import Database
from regional.maestro.protocol.tracing import ANNOTATION
from regional.maestro.server.connection import pool_of
from regional.maestro.server.model import COLUMNS, CONTACT, QUALIFIED, Bundle, Contact, bundle_of, contact_of
from regional.maestro.server.together import Together

CHANNEL = "maestro_changes"
LEASE_SECONDS = 5
"""Whoever wrote a bundle sends it at once; only if it is not confirmed by then does a scan send it again."""

# An agent takes nothing older than what it has; a database that was emptied or restored has to count on from there.
_AT_AGENT = (
    "(SELECT a.version FROM agent_works a WHERE (a.consumer_name, a.id) = (resources.consumer_name, resources.id))"
)
# A row that is there is not waited for, though it may be going right now: its tombstone would be too young to be seen,
# and the count would begin anew.
_CREATE = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[])
        AS i (id, name, source, consumer_name, metadata, spec, request_id, version)
), made AS (
    INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, request_id, due_at)
    SELECT i.id, i.name, i.source, i.consumer_name,
        greatest(i.version, (SELECT t.version FROM tombstones t WHERE t.id = i.id) + 1,
            (SELECT a.version FROM agent_works a WHERE (a.consumer_name, a.id) = (i.consumer_name, i.id)) + 1),
        i.metadata::jsonb, i.spec, i.request_id, now() + interval '{LEASE_SECONDS} seconds'
    FROM incoming i WHERE EXISTS (SELECT 1 FROM consumers c WHERE c.name = i.consumer_name)
        AND NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = i.id)
    ON CONFLICT DO NOTHING
    RETURNING id, source, consumer_name, version, request_id, created_at, updated_at, due_at
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id)
    SELECT id, source, 'spec', version, request_id FROM made
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM made) AS sources
)
SELECT m.id, m.version, m.created_at, m.updated_at, m.due_at, {CONTACT}, (SELECT count(*) FROM heard)
FROM made m JOIN consumers c ON c.name = m.consumer_name
"""
_UPDATE = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[])
        AS i (id, version, metadata, spec, request_id)
), made AS (
    UPDATE resources SET version = greatest(resources.version, {_AT_AGENT}) + 1, metadata = i.metadata::jsonb,
        spec = i.spec, applied = applied AND resources.spec = i.spec, request_id = i.request_id, updated_at = now(),
        attempts = 0,
        due_at = now() + interval '{LEASE_SECONDS} seconds', expires_at = NULL
    FROM incoming i WHERE resources.id = i.id AND resources.version = i.version AND deleted_at IS NULL
    RETURNING resources.*
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id)
    SELECT id, source, 'spec', version, request_id FROM made
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM made) AS sources
)
SELECT {QUALIFIED}, {CONTACT}, (SELECT count(*) FROM heard) FROM made r JOIN consumers c ON c.name = r.consumer_name
"""
_DELETE = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bool[]) AS i (id, request_id, expired)
), made AS (
    UPDATE resources SET deleted_at = now(), version = greatest(version, {_AT_AGENT}), attempts = 0,
        due_at = now() + interval '{LEASE_SECONDS} seconds',
        request_id = CASE WHEN i.request_id = '' THEN resources.request_id ELSE i.request_id END
    FROM incoming i WHERE resources.id = i.id AND deleted_at IS NULL
        AND (NOT i.expired OR resources.expires_at <= now())
    RETURNING resources.*
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id)
    SELECT id, source, 'deleting', version, request_id FROM made
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM made) AS sources
)
SELECT {COLUMNS}, (SELECT count(*) FROM heard) FROM made
"""
_REDELIVER = f"""
WITH made AS (
    UPDATE resources SET attempts = 0, due_at = now() + interval '{LEASE_SECONDS} seconds',
        version = CASE WHEN {_AT_AGENT} > version THEN {_AT_AGENT} + 1 ELSE version END,
        applied = applied AND NOT coalesce({_AT_AGENT} > version, false),
        request_id = CASE WHEN $2 = '' THEN request_id ELSE $2 END
    WHERE id = $1
    RETURNING *
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id)
    SELECT id, source, 'redelivered', version, request_id FROM made
)
SELECT {COLUMNS}, pg_notify('{CHANNEL}', source) FROM made
"""
_CLAIM = f"""
UPDATE resources SET attempts = attempts + 1, due_at = now()
    + interval '1 second' * (0.75 + random() / 2) * least($1, {LEASE_SECONDS} * 2 ^ least(attempts + 1, 16))
WHERE id IN (
    SELECT id FROM resources WHERE due_at <= now() AND deleted_at IS {{state}}
        AND ($3::text[] IS NULL OR consumer_name = ANY($3)) ORDER BY due_at
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
    version: int = 1
    """To begin with; one that comes back after its deletion counts on from its former life, if that is more."""


_Update = tuple[str, int, str, str, str]
"""A bundle's id and version as it was read; metadata, spec and request id of the next."""


class Bundles:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._creates: Together[NewBundle, tuple[Bundle, Contact]] = Together(lambda new: new.id, self._create)
        self._updates: Together[_Update, tuple[Bundle, Contact]] = Together(lambda found: found[0], self._update)
        self._reads: Together[str, Bundle] = Together(str, self._read)
        self._deletes: Together[tuple[str, str, bool], Bundle] = Together(lambda found: found[0], self._delete)

    @property
    def _pool(self) -> Any:
        return pool_of(self._database)

    async def create(self, new: NewBundle) -> tuple[Bundle, Contact, bool]:
        """The bundle, how its consumer is reached, and whether it is new: the same content twice is one bundle."""
        while True:
            try:
                made = await self._creates.do(new)
            except asyncpg.ForeignKeyViolationError:
                raise UnknownConsumer(new.consumer_name) from None
            if made is not None:
                return *made, True
            existing = await self._in_the_way(new)
            if existing is not None:
                break
            if not await self._pool.fetchval("SELECT 1 FROM consumers WHERE name = $1", new.consumer_name):
                raise UnknownConsumer(new.consumer_name)
            # It went away between the two statements.
        if existing.deleted_at is not None:
            raise UnderDeletion(existing.id)
        if existing.id == new.id and _same(existing, new):
            return existing, Contact(), False
        raise BundleExists("This Resource already exists")

    async def _create(self, several: list[NewBundle]) -> dict[str, tuple[Bundle, Contact]]:
        columns = zip(*(_row_of(new) for new in several), strict=True)
        rows = {row["id"]: row for row in await self._pool.fetch(_CREATE, *(list(column) for column in columns))}
        return {new.id: (_made_of(new, rows[new.id]), contact_of(rows[new.id])) for new in several if new.id in rows}

    async def _in_the_way(self, new: NewBundle) -> Bundle | None:
        row = await self._pool.fetchrow(
            f"SELECT {COLUMNS} FROM resources WHERE id = $1 OR (source, consumer_name, name) = ($2, $3, $4)"
            " ORDER BY id <> $1 LIMIT 1",
            *(new.id, new.source, new.consumer_name, new.name),
        )
        return bundle_of(row) if row else None

    async def update(
        self, bundle: Bundle, *, metadata: str, spec: str, request_id: str
    ) -> tuple[Bundle, Contact] | None:
        """The next version of `bundle` as it was read, and how its consumer is reached; None if nothing differs.

        Raises StaleVersion if it moved.
        """
        if same_metadata(bundle.metadata, metadata) and bundle.spec == spec:
            return None
        made = await self._updates.do((bundle.id, bundle.version, metadata, spec, request_id))
        if made is not None:
            return made
        now = await self.get(bundle.id)
        if now is not None and now.deleted_at is not None:
            raise UnderDeletion(bundle.id)
        raise StaleVersion(now.version if now is not None else 0)

    async def _update(self, several: list[_Update]) -> dict[str, tuple[Bundle, Contact]]:
        columns = zip(*several, strict=True)
        rows = await self._pool.fetch(_UPDATE, *(list(column) for column in columns))
        return {row["id"]: (bundle_of(row), contact_of(row)) for row in rows}

    async def delete(self, bundle_id: str, request_id: str, *, expired: bool = False) -> Bundle | None:
        """None if it is unknown or being deleted already; with `expired`, also if its time has not passed any more."""
        return await self._deletes.do((bundle_id, request_id, expired))

    async def _delete(self, several: list[tuple[str, str, bool]]) -> dict[str, Bundle]:
        columns = zip(*several, strict=True)
        rows = await self._pool.fetch(_DELETE, *(list(column) for column in columns))
        return {row["id"]: bundle_of(row) for row in rows}

    async def redeliver(self, bundle_id: str, request_id: str) -> Bundle | None:
        """It counts as not confirmed again, above the agent's version if that is newer; None if it is unknown."""
        row = await self._pool.fetchrow(_REDELIVER, bundle_id, request_id)
        return bundle_of(row) if row else None

    async def get(self, bundle_id: str) -> Bundle | None:
        return await self._reads.do(bundle_id)

    async def _read(self, ids: list[str]) -> dict[str, Bundle]:
        return {bundle.id: bundle for bundle in await self.some(ids)}

    async def get_seen(self, bundle_id: str) -> tuple[Bundle, Contact] | None:
        """The bundle and how its consumer is reached."""
        row = await self._pool.fetchrow(
            f"SELECT {QUALIFIED}, {CONTACT} FROM resources r JOIN consumers c ON c.name = r.consumer_name"
            " WHERE r.id = $1",
            bundle_id,
        )
        return (bundle_of(row), contact_of(row)) if row else None

    async def some(self, ids: Sequence[str]) -> list[Bundle]:
        rows = await self._pool.fetch(f"SELECT {COLUMNS} FROM resources WHERE id = ANY($1)", ids)
        return [bundle_of(row) for row in rows]

    # -- the delivery queue ------------------------------------------------------------------------------------------

    async def claim_due(
        self, longest: float, limit: int, consumers: Sequence[str] | None = None, *, deletes: bool
    ) -> list[Bundle]:
        """What nobody has confirmed in time, of these consumers. Claiming pushes the next time away, so that not two
        take the same."""
        statement = _CLAIM.format(state="NOT NULL" if deletes else "NULL")
        rows = await self._pool.fetch(statement, longest, limit, consumers)
        return [bundle_of(row) for row in rows]

    async def hurry(self, consumers: Sequence[str]) -> None:
        """What was accepted but never sent a second time is due now: nobody may have heard of it."""
        for state in ("NULL", "NOT NULL"):
            await self._pool.execute(
                "UPDATE resources SET due_at = now() WHERE due_at > now() AND attempts = 0 AND consumer_name = ANY($1)"
                f" AND deleted_at IS {state}",
                consumers,
            )

    async def expired(self, consumers: Sequence[str], limit: int) -> list[str]:
        rows = await self._pool.fetch(
            "SELECT id FROM resources WHERE expires_at <= now() AND deleted_at IS NULL AND consumer_name = ANY($1)"
            " ORDER BY expires_at LIMIT $2",
            *(consumers, limit),
        )
        return [row["id"] for row in rows]

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


def _row_of(new: NewBundle) -> tuple[Any, ...]:
    """In the order of the statement's parameters."""
    places = (new.id, new.name, new.source, new.consumer_name)
    return (*places, new.metadata, new.spec, new.request_id, new.version)


def _made_of(new: NewBundle, row: Any) -> Bundle:
    return Bundle(
        id=new.id,
        name=new.name,
        source=new.source,
        consumer_name=new.consumer_name,
        version=row["version"],
        metadata=new.metadata,
        spec=new.spec,
        request_id=new.request_id,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        due_at=row["due_at"],
    )


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

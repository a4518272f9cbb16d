"""Versioned resources: the row, its history and its entry in the change feed are written by one statement.

A resource is a document with a name and a tenant. Every write gives it a new `revision` and is a compare-and-swap on
the one it was read with; `generation` counts only changes of what is wanted. History outlives the resource. The feed
tells readers (`core.store_feed`) that something changed; a NOTIFY on `CHANNEL` tells them when to look.

The functions take a connection, so that a caller's own tables change in the same transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

CHANNEL = "store_changes"

SCHEMA = """
CREATE TABLE resources (
    id uuid PRIMARY KEY,
    kind text NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    owner_id uuid REFERENCES resources (id),
    owner_kind text,
    generation integer NOT NULL,
    revision bigint NOT NULL,
    spec jsonb NOT NULL,
    labels jsonb NOT NULL,
    conditions jsonb NOT NULL,
    request_id text NOT NULL,
    created_time timestamptz NOT NULL,
    created_by text NOT NULL,
    updated_time timestamptz NOT NULL,
    updated_by text NOT NULL,
    deleted_time timestamptz,
    deleted_by text
);
CREATE UNIQUE INDEX resources_root_name ON resources (kind, tenant, name)
    WHERE owner_id IS NULL AND deleted_time IS NULL;
CREATE UNIQUE INDEX resources_child_name ON resources (owner_id, kind, name)
    WHERE owner_id IS NOT NULL AND deleted_time IS NULL;
CREATE INDEX resources_by_age ON resources (kind, created_time DESC, id DESC);
CREATE INDEX resources_by_name ON resources (kind, name, tenant);
CREATE INDEX resources_of_tenant ON resources (tenant, kind, created_time DESC, id DESC);
CREATE INDEX resources_of_owner ON resources (owner_id, kind, created_time DESC, id DESC) WHERE owner_id IS NOT NULL;
CREATE INDEX resources_labels ON resources USING gin (labels jsonb_path_ops);
CREATE INDEX resources_conditions ON resources USING gin (conditions jsonb_path_ops);

CREATE TABLE resource_history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id uuid NOT NULL,
    kind text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    change text NOT NULL,
    generation integer NOT NULL,
    revision bigint NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    request_id text NOT NULL,
    document jsonb NOT NULL
);
CREATE INDEX resource_history_of ON resource_history (resource_id, id);
CREATE INDEX resource_history_by_age ON resource_history (at);

-- The transaction comes first, because a reader tells by it which entries may still be on their way (see store_feed).
CREATE TABLE changes (
    xid bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_id uuid NOT NULL,
    kind text NOT NULL,
    tenant text NOT NULL,
    change text NOT NULL,
    generation integer NOT NULL,
    revision bigint NOT NULL,
    request_id text NOT NULL,
    at timestamptz NOT NULL
);
CREATE INDEX changes_in_order ON changes (xid, id);
CREATE INDEX changes_by_age ON changes (at);

CREATE TABLE feed_cursors (
    reader text PRIMARY KEY,
    xid bigint NOT NULL,
    moved_at timestamptz NOT NULL
);
"""


class Stored(msgspec.Struct, frozen=True):
    """A resource as its row has it. `spec` and `conditions` are JSON that most readers only pass on."""

    id: UUID
    kind: str
    name: str
    tenant: str
    owner_id: UUID | None
    owner_kind: str | None
    generation: int
    revision: int
    spec: msgspec.Raw
    labels: dict[str, str]
    conditions: msgspec.Raw
    request_id: str
    created_time: datetime
    created_by: str
    updated_time: datetime
    updated_by: str
    deleted_time: datetime | None
    deleted_by: str | None


class NameTaken(Exception):
    """Another resource of this kind, tenant and owner has the name."""


class StaleRevision(Exception):
    """Somebody else wrote the resource since it was read."""


COLUMNS = ", ".join(f"resources.{field}" for field in Stored.__struct_fields__)
_NOTED = """
, noted AS (
    INSERT INTO resource_history
        (resource_id, kind, tenant, name, change, generation, revision, at, actor, request_id, document)
    SELECT id, kind, tenant, name, {change}, generation, revision, {at}, {actor}, {request_id}, {document} FROM made
), fed AS (
    INSERT INTO changes (resource_id, kind, tenant, change, generation, revision, request_id, at)
    SELECT id, kind, tenant, {change}, generation, revision, {request_id}, {at} FROM made
)
"""
_RESULT = f"SELECT made.*, pg_notify('{CHANNEL}', '') FROM made"
_WANTED = "jsonb_build_object('spec', spec, 'labels', labels)"
_NAMES = ", ".join(Stored.__struct_fields__)

_INSERT = (
    f"WITH made AS (INSERT INTO resources ({_NAMES}) VALUES ("
    + ", ".join(f"${number}" for number in range(1, len(Stored.__struct_fields__) + 1))
    + ") RETURNING *)"
    + _NOTED.format(
        change="'created'", at="created_time", actor="created_by", request_id="request_id", document=_WANTED
    )
    + _RESULT
)
_UPDATE = (
    "WITH made AS (UPDATE resources SET revision = revision + 1, generation = $3, spec = $4, labels = $5,"
    " conditions = $6, request_id = $7, updated_time = $8, updated_by = $9, deleted_time = $10, deleted_by = $11"
    " WHERE id = $1 AND revision = $2 RETURNING *)"
    + _NOTED.format(
        change="$12::text", at="updated_time", actor="updated_by", request_id="request_id", document=_WANTED
    )
    + _RESULT
)
_CONDITIONS = (
    "WITH made AS (UPDATE resources SET revision = revision + 1, conditions = $3"
    " WHERE id = $1 AND revision = $2 RETURNING *)"
    + _NOTED.format(
        change="'status'",
        at="$4::timestamptz",
        actor="$5::text",
        request_id="$6::text",
        document="jsonb_build_object('conditions', conditions) || $7::jsonb",
    )
    + _RESULT
)
_DELETE = (
    "WITH made AS (DELETE FROM resources WHERE id = $1 AND revision = $2 RETURNING *)"
    + _NOTED.format(
        change="'removed'",
        at="$3::timestamptz",
        actor="$4::text",
        request_id="$5::text",
        document=f"{_WANTED} || $6::jsonb",
    )
    + _RESULT
)
_NOTE = (
    "WITH made AS (SELECT * FROM resources WHERE id = $1)"
    + _NOTED.format(
        change="$2::text", at="$3::timestamptz", actor="$4::text", request_id="$5::text", document="$6::jsonb"
    )
    + _RESULT
)


def stored(row: Any) -> Stored:
    """From a row that has (at least) the columns of `COLUMNS`."""
    return Stored(
        row["id"],
        row["kind"],
        row["name"],
        row["tenant"],
        row["owner_id"],
        row["owner_kind"],
        row["generation"],
        row["revision"],
        msgspec.Raw(row["spec"].encode()),
        msgspec.json.decode(row["labels"], type=dict[str, str]),
        msgspec.Raw(row["conditions"].encode()),
        row["request_id"],
        row["created_time"],
        row["created_by"],
        row["updated_time"],
        row["updated_by"],
        row["deleted_time"],
        row["deleted_by"],
    )


async def insert(connection: Any, resource: Stored) -> Stored:
    """Raises NameTaken."""
    values = [_column(getattr(resource, field)) for field in Stored.__struct_fields__]
    values[Stored.__struct_fields__.index("labels")] = _text(resource.labels)
    return await _one(connection, _INSERT, values)


async def update(connection: Any, resource: Stored, change: str) -> Stored:
    """Write what is wanted of a resource (and its conditions); `revision` is the one it was read with.

    Raises StaleRevision, or NameTaken.
    """
    return await _one(
        connection,
        _UPDATE,
        [
            resource.id,
            resource.revision,
            resource.generation,
            _column(resource.spec),
            _text(resource.labels),
            _column(resource.conditions),
            resource.request_id,
            resource.updated_time,
            resource.updated_by,
            resource.deleted_time,
            resource.deleted_by,
            change,
        ],
    )


async def update_conditions(
    connection: Any,
    resource: Stored,
    conditions: msgspec.Raw,
    *,
    at: datetime,
    actor: str,
    request_id: str,
    beside: Any = None,
) -> Stored:
    """Write what is observed of a resource; history keeps `beside` (an object) with it. Raises StaleRevision."""
    values = [resource.id, resource.revision, _column(conditions), at, actor, request_id, _text(beside or {})]
    return await _one(connection, _CONDITIONS, values)


async def confirm_conditions(connection: Any, resource: Stored, conditions: msgspec.Raw) -> None:
    """The same was observed again: only times differ. No change, so neither history nor feed hears of it."""
    await connection.execute(
        "UPDATE resources SET conditions = $3 WHERE id = $1 AND revision = $2",
        resource.id,
        resource.revision,
        _column(conditions),
    )


async def remove(
    connection: Any, resource: Stored, *, at: datetime, actor: str, request_id: str, reason: str = ""
) -> None:
    """Take the row away for good; its history stays. Raises StaleRevision."""
    document = _text({"reason": reason} if reason else {})
    await _one(connection, _DELETE, [resource.id, resource.revision, at, actor, request_id, document])


async def note(
    connection: Any, resource_id: UUID, change: str, document: Any, *, at: datetime, actor: str, request_id: str
) -> bool:
    """History and feed of a change that is kept in another table. False if the resource is gone."""
    row = await connection.fetchrow(_NOTE, resource_id, change, at, actor, request_id, _text(document))
    return row is not None


async def forget_history(connection: Any, before: datetime, limit: int = 5000) -> int:
    """Drop what is older, except the last entry of a resource that is still there: it says how that came to be as it
    is. Returns how many entries; call again if it was the limit."""
    done = await connection.execute(
        "DELETE FROM resource_history WHERE id IN (SELECT id FROM resource_history AS old WHERE at < $1"
        " AND (NOT EXISTS (SELECT FROM resources WHERE resources.id = old.resource_id) OR EXISTS"
        " (SELECT FROM resource_history AS newer WHERE newer.resource_id = old.resource_id AND newer.id > old.id))"
        " ORDER BY at LIMIT $2)",
        before,
        limit,
    )
    return int(done.rpartition(" ")[2])


async def _one(connection: Any, statement: str, values: list[Any]) -> Stored:
    import asyncpg

    try:
        row = await connection.fetchrow(statement, *values)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name in ("resources_root_name", "resources_child_name"):
            raise NameTaken from None
        raise
    if row is None:
        raise StaleRevision
    return stored(row)


def _column(value: Any) -> Any:
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else value


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Maestro's tables, as numbered migrations.

`resources.spec` and `resources.status` are text: the payload of the message that carries or carried them, byte for
byte, so that neither delivering nor listing has to take them apart. `due_at` is the whole delivery queue: it is set
while the agent has not confirmed the newest version (or the deletion), and says when to send again.
"""

from __future__ import annotations

from regional.core.database import Migration

_BUNDLES = """
CREATE TABLE consumers (
    id text PRIMARY KEY,
    name text NOT NULL UNIQUE,
    labels jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz,
    agent text
);
CREATE TABLE resources (
    id text PRIMARY KEY,
    name text NOT NULL,
    source text NOT NULL,
    consumer_name text NOT NULL
        CONSTRAINT fk_resources_consumers REFERENCES consumers (name) ON DELETE RESTRICT,
    version integer NOT NULL,
    type text NOT NULL DEFAULT '',
    metadata jsonb NOT NULL,
    spec text NOT NULL,
    request_id text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    status text,
    status_version integer,
    status_sequence bigint,
    status_hash text,
    status_at timestamptz,
    applied boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    due_at timestamptz
);
CREATE UNIQUE INDEX resources_name ON resources (source, consumer_name, name);
CREATE INDEX resources_consumer ON resources (consumer_name, id);
CREATE INDEX resources_created ON resources (created_at, id);
CREATE INDEX resources_labels ON resources USING gin ((metadata -> 'labels') jsonb_path_ops);
CREATE INDEX resources_due ON resources (due_at) WHERE due_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX resources_due_deletes ON resources (due_at) WHERE due_at IS NOT NULL AND deleted_at IS NOT NULL;

-- The change feed. An id is given out before its transaction commits, so ids alone would let a reader pass by a
-- change that commits late; readers go by (xid, id) and stop below the oldest transaction that still runs.
CREATE TABLE events (
    xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    resource_id text NOT NULL,
    source text NOT NULL,
    kind text NOT NULL,
    last text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (xid, id)
);
CREATE INDEX events_created ON events (created_at);
CREATE TABLE feed (floor bigint NOT NULL);
INSERT INTO feed VALUES (0);

-- What was deleted for good: a bundle that comes back under its old id goes on counting, so that a late message of
-- its former life fits to no version.
CREATE TABLE tombstones (
    id text PRIMARY KEY,
    consumer_name text NOT NULL,
    version integer NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tombstones_deleted ON tombstones (deleted_at);
"""

MIGRATIONS: tuple[Migration, ...] = (Migration(1, "consumers, resource bundles and their change feed", _BUNDLES),)

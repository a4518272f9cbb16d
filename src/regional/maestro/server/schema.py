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

# What is added here is nullable or has a default: a replica of the release before goes on working until it is replaced.
_LIVENESS = """
ALTER TABLE consumers
    ADD COLUMN agent_version text,
    ADD COLUMN absent_since timestamptz,
    ADD COLUMN cluster_unreachable text,
    ADD COLUMN cluster_unreachable_since timestamptz;

-- Who holds which consumer. A lease is worth as much as its holder's life: without that row, it is gone.
CREATE TABLE replicas (
    id text PRIMARY KEY,
    fit boolean NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE leases (
    consumer_name text PRIMARY KEY,
    holder text NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX leases_holder ON leases (holder);

-- The feed's events tell a bundle's history; when the feed needs them no more they move to a table of their own.
ALTER TABLE events
    ADD COLUMN version integer,
    ADD COLUMN request_id text,
    ADD COLUMN note text;
CREATE INDEX events_resource ON events (resource_id);
CREATE TABLE history (
    resource_id text NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    version integer,
    request_id text,
    note text
);
CREATE INDEX history_resource ON history (resource_id, at);
CREATE INDEX history_at ON history (at);

ALTER TABLE resources ADD COLUMN expires_at timestamptz;
CREATE INDEX resources_expires ON resources (expires_at) WHERE expires_at IS NOT NULL AND deleted_at IS NULL;
UPDATE resources
SET expires_at = now()
    + interval '1 second' * (spec::jsonb #>> '{deleteOption,ttlSecondsAfterFinished}')::double precision
WHERE spec LIKE '%ttlSecondsAfterFinished%' AND status_version = version AND deleted_at IS NULL
    AND jsonb_path_exists(status::jsonb, '$.conditions[*] ? (@.type == "Complete" && @.status == "True")');
"""

# What agents have that this database does not know, or knows in an older version only.
_AGENT_WORKS = """
CREATE TABLE agent_works (
    consumer_name text NOT NULL,
    id text NOT NULL,
    version integer NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_name, id)
);
"""

_CERTIFICATES = "ALTER TABLE consumers ADD COLUMN agent_certificate text"

# Who deletes a work knows its id, and not always whose it is.
_AGENT_WORKS_BY_ID = "CREATE INDEX agent_works_id ON agent_works (id);"

MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "consumers, resource bundles and their change feed", _BUNDLES),
    Migration(2, "leases of consumers, their liveness, history and expiry of bundles", _LIVENESS),
    Migration(3, "works that only agents know", _AGENT_WORKS),
    Migration(4, "the certificates that agents come in with", _CERTIFICATES),
    Migration(5, "works that only agents know, by id", _AGENT_WORKS_BY_ID),
)

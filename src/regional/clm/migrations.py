"""CLM's tables, in numbered steps. A step that has been released is never edited; the next one changes what it made."""

from __future__ import annotations

from regional.core.database import Migration
from regional.core.store import SCHEMA

_STATUSES = """
CREATE TABLE adapter_statuses (
    resource_id uuid NOT NULL REFERENCES resources (id) ON DELETE CASCADE,
    adapter text NOT NULL,
    observed_generation integer NOT NULL,
    conditions jsonb NOT NULL,
    data jsonb NOT NULL,
    metadata jsonb,
    created_time timestamptz NOT NULL,
    last_report_time timestamptz NOT NULL,
    PRIMARY KEY (resource_id, adapter)
);
"""

# `used` is kept beside the reservations, so that choosing costs the number of management clusters, not of clusters.
_PLACEMENT = """
CREATE TABLE management_cluster_capacity (
    id uuid PRIMARY KEY REFERENCES resources (id) ON DELETE CASCADE,
    name text NOT NULL,
    consumer text NOT NULL,
    capacity integer NOT NULL CHECK (capacity >= 0),
    used integer NOT NULL DEFAULT 0 CHECK (used >= 0),
    accepting boolean NOT NULL
);
CREATE TABLE placements (
    cluster_id uuid PRIMARY KEY REFERENCES resources (id) ON DELETE CASCADE,
    management_cluster_id uuid REFERENCES management_cluster_capacity (id),
    reserved_time timestamptz,
    waiting_since timestamptz NOT NULL,
    reason text NOT NULL
);
CREATE INDEX placements_waiting ON placements (waiting_since) WHERE management_cluster_id IS NULL;
CREATE INDEX placements_on ON placements (management_cluster_id) WHERE management_cluster_id IS NOT NULL;
"""

# One row for a resource and an adapter, however often it was found to need work: the queue cannot outgrow the truth.
_QUEUE = """
CREATE SEQUENCE event_sequence;
CREATE TABLE events (
    resource_id uuid NOT NULL,
    adapter text NOT NULL,
    kind text NOT NULL,
    sequence bigint NOT NULL,
    event jsonb NOT NULL,
    request_id text NOT NULL,
    urgent boolean NOT NULL,
    enqueued_at timestamptz NOT NULL,
    available_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    leased_by text,
    leased_until timestamptz,
    PRIMARY KEY (resource_id, adapter)
);
CREATE INDEX events_available ON events (adapter, urgent DESC, available_at);
CREATE INDEX events_leased ON events (leased_by) WHERE leased_by IS NOT NULL;

CREATE TABLE pulses (
    resource_id uuid PRIMARY KEY REFERENCES resources (id) ON DELETE CASCADE,
    due timestamptz NOT NULL
);
CREATE INDEX pulses_due ON pulses (due);

CREATE TABLE watch_cursors (
    watcher text PRIMARY KEY,
    position text NOT NULL
);
"""

_OUTLIVED = """
CREATE TABLE outlived_bundles (
    bundle_id text NOT NULL,
    watcher text NOT NULL,
    resource_id uuid NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bundle_id, watcher)
);
"""

MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "resources, their history and the change feed", SCHEMA),
    Migration(2, "what adapters report", _STATUSES),
    Migration(3, "capacity and placements", _PLACEMENT),
    Migration(4, "events for adapters, and when to look again", _QUEUE),
    Migration(5, "bundles that outlived their resources", _OUTLIVED),
)

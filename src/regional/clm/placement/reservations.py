"""Slots on management clusters: reserved, given back, and handed to those who wait.

Reservations take turns (an advisory lock held until the commit), so that each sees the load that the one before left
behind: the least loaded management cluster is chosen even when many clusters are created at once, and none gets more
than its capacity. Locks are always taken in this order, so that no two transactions wait for each other: resources,
the turn, placements, capacity.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from regional.core import store

CLUSTER = "Cluster"
MANAGEMENT_CLUSTER = "ManagementCluster"
CHANNEL = "clm_placement"
DEFAULT_CAPACITY = 100
FILL_BATCH = 50

_TURN = "SELECT pg_advisory_xact_lock(hashtext('clm placement'))"
_CHOOSE = """
UPDATE management_cluster_capacity SET used = used + 1
WHERE accepting AND used < capacity AND id = (
    SELECT id FROM management_cluster_capacity WHERE accepting AND used < capacity
    ORDER BY used::float8 / capacity, used, name LIMIT 1
)
"""
_WAITING = """
SELECT cluster_id, resources.request_id FROM placements JOIN resources ON resources.id = cluster_id
WHERE management_cluster_id IS NULL AND resources.deleted_time IS NULL
"""
# A new cluster does not overtake those who wait. The one statement does it all, because others wait for their turn.
_RESERVE = f"""
WITH chosen AS ({_CHOOSE} AND NOT EXISTS ({_WAITING}) RETURNING id, name, consumer), reserved AS (
    INSERT INTO placements (cluster_id, management_cluster_id, reserved_time, waiting_since, reason)
    SELECT $1, id, $2, $2, '' FROM chosen
), noted AS (
    INSERT INTO resource_history
        (resource_id, kind, tenant, name, change, generation, revision, at, actor, request_id, document)
    SELECT $1, $3, $4, $5, 'placed', $6, $7, $2, 'placement', $8, jsonb_build_object('placement',
        jsonb_build_object('management_cluster', name, 'consumer', consumer, 'reserved_time', $9::text))
    FROM chosen
)
SELECT name, consumer FROM chosen
"""
_WAIT = """
INSERT INTO placements (cluster_id, management_cluster_id, reserved_time, waiting_since, reason)
VALUES ($1, NULL, NULL, $2, $3)
"""
_RELEASE = """
WITH freed AS (DELETE FROM placements WHERE cluster_id = $1 RETURNING management_cluster_id)
UPDATE management_cluster_capacity SET used = used - 1 FROM freed
WHERE management_cluster_capacity.id = freed.management_cluster_id
RETURNING pg_notify('clm_placement', '')
"""


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a cluster is hosted, or why it is not yet."""

    management_cluster: str | None = None
    consumer: str | None = None
    reserved_time: datetime | None = None
    reason: str | None = None


COLUMNS = (
    "placements.cluster_id AS placement_of, placements.reserved_time, placements.reason AS placement_reason,"
    " management_cluster_capacity.name AS placement_name, management_cluster_capacity.consumer AS placement_consumer"
)
JOIN = (
    "LEFT JOIN placements ON placements.cluster_id = resources.id"
    " LEFT JOIN management_cluster_capacity ON management_cluster_capacity.id = placements.management_cluster_id"
)


def placement_of(row: Any) -> Placement | None:
    """From a row with `COLUMNS`; None for a resource that needs no place."""
    if row["placement_of"] is None:
        return None
    if row["placement_name"] is None:
        return Placement(reason=row["placement_reason"])
    return Placement(row["placement_name"], row["placement_consumer"], row["reserved_time"])


async def reserve(connection: Any, cluster: store.Stored, now: datetime) -> Placement:
    """A slot on the least loaded management cluster, or a place in the queue with the reason for it; and history."""
    await connection.execute(_TURN)
    chosen = await connection.fetchrow(
        _RESERVE,
        cluster.id,
        now,
        cluster.kind,
        cluster.tenant,
        cluster.name,
        cluster.generation,
        cluster.revision,
        cluster.request_id,
        msgspec.to_builtins(now),
    )
    if chosen is not None:
        return Placement(chosen["name"], chosen["consumer"], now)
    placement = Placement(reason=await _why_none(connection))
    await connection.execute(_WAIT, cluster.id, now, placement.reason)
    # Not only for the record: the feed makes the adapter say in the cluster's status what it waits for.
    await store.note(
        connection,
        cluster.id,
        "waiting",
        {"placement": placement},
        at=now,
        actor="placement",
        request_id=cluster.request_id,
    )
    await connection.execute(f"SELECT pg_notify('{CHANNEL}', '')")
    return placement


async def release(connection: Any, cluster_id: UUID) -> None:
    await connection.execute(_TURN)
    await connection.execute(_RELEASE, cluster_id)


async def fill(connection: Any, now: datetime) -> int:
    """Give free slots to the clusters that wait longest. Returns how many were placed; call again if it was a batch."""
    async with connection.transaction():
        await connection.execute(_TURN)
        waiting = await connection.fetch(
            f"{_WAITING} ORDER BY waiting_since, cluster_id LIMIT {FILL_BATCH} FOR UPDATE OF placements SKIP LOCKED"
        )
        placed = 0
        for row in waiting:
            chosen = await connection.fetchrow(f"{_CHOOSE} RETURNING id, name, consumer")
            if chosen is None:
                await _renew_reasons(connection)
                break
            await connection.execute(
                "UPDATE placements SET management_cluster_id = $2, reserved_time = $3, reason = ''"
                " WHERE cluster_id = $1",
                row["cluster_id"],
                chosen["id"],
                now,
            )
            await store.note(
                connection,
                row["cluster_id"],
                "placed",
                {"placement": Placement(chosen["name"], chosen["consumer"], now)},
                at=now,
                actor="placement",
                request_id=row["request_id"],
            )
            placed += 1
        return placed


async def is_waiting(connection: Any) -> bool:
    return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM placements WHERE management_cluster_id IS NULL)"))


class StillHosts(Exception):
    """Clusters are known to their management cluster by its consumer: it cannot change under them."""


async def enrol(connection: Any, resource: store.Stored) -> None:
    """Capacity as the management cluster's spec has it now; those who wait are told. Raises StillHosts."""
    spec = msgspec.json.decode(resource.spec)
    capacity, accepting = spec.get("capacity"), spec.get("accepting")
    consumer = spec.get("consumer") or resource.name
    await connection.execute(_TURN)
    hosted = await connection.fetchval(
        "SELECT used FROM management_cluster_capacity WHERE id = $1 AND used > 0 AND consumer <> $2",
        resource.id,
        consumer,
    )
    if hosted:
        raise StillHosts(f"{hosted} clusters are hosted there: spec.consumer cannot be changed")
    await connection.execute(
        "INSERT INTO management_cluster_capacity (id, name, consumer, capacity, accepting) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (id) DO UPDATE SET consumer = EXCLUDED.consumer, capacity = EXCLUDED.capacity,"
        " accepting = EXCLUDED.accepting",
        resource.id,
        resource.name,
        consumer,
        DEFAULT_CAPACITY if capacity is None else capacity,
        accepting is not False,
    )
    await connection.execute(f"SELECT pg_notify('{CHANNEL}', '')")


async def _renew_reasons(connection: Any) -> None:
    await connection.execute(
        "UPDATE placements SET reason = $1 WHERE management_cluster_id IS NULL AND reason <> $1",
        await _why_none(connection),
    )


async def hosted_by(connection: Any, management_cluster_id: UUID) -> int:
    """How many clusters hold a slot there; none is added before the transaction ends."""
    await connection.execute(_TURN)
    used = await connection.fetchval(
        "SELECT used FROM management_cluster_capacity WHERE id = $1", management_cluster_id
    )
    return int(used or 0)


async def _why_none(connection: Any) -> str:
    row = await connection.fetchrow(
        "SELECT count(*) AS known, count(*) FILTER (WHERE accepting) AS open,"
        " count(*) FILTER (WHERE accepting AND used < capacity) AS free FROM management_cluster_capacity"
    )
    if not row["known"]:
        return "no management cluster is registered"
    if not row["open"]:
        return f"none of {row['known']} management clusters accepts clusters"
    if row["free"]:
        return "other clusters wait for a place before it"
    return f"all {row['open']} management clusters that accept clusters are full"

"""The queue between sentinel and adapters: CloudEvents in a table, one row for a resource and an adapter.

A newer event replaces the one that waits. Work is taken with a lease; an event that came while its resource was being
worked on has a newer sequence and is worked on again. An adapter that dies loses its leases: at once if its pod starts
again under the same name, else when they run out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from regional.core.identifiers import uuid7

CHANNEL = "clm_events"


class Subject(msgspec.Struct, frozen=True):
    """The resource that an event is about."""

    id: UUID
    kind: str
    generation: int
    request_id: str
    href: str
    owner: dict[str, str] | None = None


class Work(msgspec.Struct, frozen=True):
    """An event that was taken from the queue."""

    resource_id: UUID
    kind: str
    sequence: int
    event: dict[str, Any]
    request_id: str
    attempts: int
    waited: float  # seconds between the event and its being taken


def cloud_event(subject: Subject, source: str, now: datetime) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": str(subject.id),
        "kind": subject.kind,
        "href": subject.href,
        "generation": subject.generation,
    }
    if subject.owner is not None:
        data["owner_references"] = subject.owner
    return {
        "specversion": "1.0",
        "id": str(uuid7()),
        "type": f"com.redhat.hyperfleet.{subject.kind.lower()}.reconcile",
        "source": source,
        "time": now,
        "datacontenttype": "application/json",
        "requestid": subject.request_id,
        "data": data,
    }


async def enqueue(
    connection: Any, subjects: Sequence[tuple[Subject, str]], *, source: str, now: datetime, urgent: bool = True
) -> None:
    """An event for each (subject, adapter). What is not urgent waits behind all that is: somebody may be waiting."""
    if not subjects:
        return
    # In order, so that no two who write several at once wait for each other.
    latest = {(found.id, adapter): found for found, adapter in sorted(subjects, key=lambda pair: pair[0].id)}
    await connection.execute(
        "WITH made AS (INSERT INTO events"
        " (resource_id, adapter, kind, sequence, event, request_id, urgent, enqueued_at, available_at)"
        " SELECT resource_id, adapter, kind, nextval('event_sequence'), event::jsonb, request_id, $6, now(), now()"
        " FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])"
        " AS given (resource_id, adapter, kind, event, request_id)"
        " ON CONFLICT (resource_id, adapter) DO UPDATE SET sequence = EXCLUDED.sequence, event = EXCLUDED.event,"
        " request_id = EXCLUDED.request_id, urgent = events.urgent OR EXCLUDED.urgent,"
        " enqueued_at = EXCLUDED.enqueued_at, available_at = EXCLUDED.available_at"
        f" RETURNING 1) SELECT pg_notify('{CHANNEL}', '') FROM made LIMIT 1",
        [resource_id for resource_id, _ in latest],
        [adapter for _, adapter in latest],
        [subject.kind for subject in latest.values()],
        [msgspec.json.encode(cloud_event(subject, source, now)).decode() for subject in latest.values()],
        [subject.request_id for subject in latest.values()],
        urgent,
    )


class Queue:
    """One adapter's end of the queue; `owner` is the name of the pod that works."""

    def __init__(self, adapter: str, owner: str, lease: timedelta = timedelta(seconds=10)) -> None:
        self._adapter = adapter
        self._owner = owner
        self._lease = lease

    async def recover(self, connection: Any, running: Iterable[UUID] = ()) -> int:
        """Give back what a former life of this pod was working on, but not what is still `running` in this one."""
        done = await connection.execute(
            "UPDATE events SET leased_by = NULL, leased_until = NULL WHERE leased_by = $1 AND adapter = $2"
            " AND resource_id <> ALL($3)",
            self._owner,
            self._adapter,
            list(running),
        )
        return int(done.rpartition(" ")[2])

    async def take(self, connection: Any, limit: int) -> list[Work]:
        rows = await connection.fetch(
            "WITH due AS (SELECT resource_id FROM events WHERE adapter = $1 AND available_at <= now()"
            " AND (leased_until IS NULL OR leased_until < now()) ORDER BY urgent DESC, available_at LIMIT $2"
            " FOR UPDATE SKIP LOCKED)"
            " UPDATE events SET leased_by = $3, leased_until = now() + $4::interval, attempts = attempts + 1"
            " FROM due WHERE events.resource_id = due.resource_id AND events.adapter = $1"
            " RETURNING events.resource_id, kind, sequence, event, request_id, attempts,"
            " extract(epoch FROM clock_timestamp() - enqueued_at)::float8 AS waited",
            self._adapter,
            limit,
            self._owner,
            self._lease,
        )
        return [
            Work(
                row["resource_id"],
                row["kind"],
                row["sequence"],
                msgspec.json.decode(row["event"]),
                row["request_id"],
                row["attempts"],
                row["waited"],
            )
            for row in rows
        ]

    async def next_due(self, connection: Any) -> float | None:
        """Seconds until there may be something to take, not counting new events; None if nothing waits."""
        found = await connection.fetchval(
            "SELECT extract(epoch FROM min(greatest(available_at, coalesce(leased_until, available_at))) - now())"
            "::float8 FROM events WHERE adapter = $1",
            self._adapter,
        )
        return None if found is None else max(0.0, float(found))

    async def renew(self, connection: Any, resource_ids: Sequence[UUID]) -> None:
        await connection.execute(
            "UPDATE events SET leased_until = now() + $1::interval"
            " WHERE adapter = $2 AND leased_by = $3 AND resource_id = ANY($4)",
            self._lease,
            self._adapter,
            self._owner,
            list(resource_ids),
        )

    async def finish(self, connection: Any, work: Work) -> bool:
        """Done, unless something new came meanwhile: then False, and it can be taken again."""
        done = await connection.execute(
            "DELETE FROM events WHERE resource_id = $1 AND adapter = $2 AND sequence = $3 AND leased_by = $4",
            work.resource_id,
            self._adapter,
            work.sequence,
            self._owner,
        )
        if done != "DELETE 0":
            return True
        await self._release(connection, work, timedelta(0), attempts=0)
        return False

    async def fail(self, connection: Any, work: Work, again_in: timedelta) -> None:
        await self._release(connection, work, again_in, attempts=work.attempts)

    async def _release(self, connection: Any, work: Work, again_in: timedelta, *, attempts: int) -> None:
        await connection.execute(
            "UPDATE events SET leased_by = NULL, leased_until = NULL, attempts = $5,"
            " available_at = CASE WHEN sequence = $3 THEN now() + $6::interval ELSE available_at END"
            " WHERE resource_id = $1 AND adapter = $2 AND leased_by = $4",
            work.resource_id,
            self._adapter,
            work.sequence,
            self._owner,
            attempts,
            again_in,
        )

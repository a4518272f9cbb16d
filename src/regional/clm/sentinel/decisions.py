"""What needs work, and when to look again.

A change of what is wanted, or a placement, is work at once. Without a change, a resource that is not reconciled is
looked at every few seconds and one that is every half hour: `pulses` has one row for a resource with the time of its
next look, so that a scan reads only what is due. Children that wait are woken when something happens to their parent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import prometheus_client

from regional.clm.entities import Registry
from regional.clm.events import enqueue
from regional.clm.subjects import RECONCILED, Seen, look_at, look_at_waiting_children
from regional.core.store_feed import Change

log = logging.getLogger(__name__)

SOURCE = "hyperfleet-sentinel"
SCAN_BATCH = 500
WANTED = frozenset({"created", "updated", "deleted", "placed", "emptied", "freed"})
_published = prometheus_client.Counter(
    "hyperfleet_sentinel_events_published_total", "Events published", ["resource_type", "reason"]
)


class Rhythm(msgspec.Struct, frozen=True):
    """How often to look again at what nobody changes.

    What has waited long is looked at less often, down to a tenth of what is well: whatever it waits for will announce
    itself, and many that wait must not keep the adapters busy.
    """

    not_reconciled: timedelta = timedelta(seconds=10)
    reconciled: timedelta = timedelta(minutes=30)

    def next_look(self, found: Seen, now: datetime) -> datetime:
        if found.reconciled:
            return now + self.reconciled
        waited = (now - found.updated_time) / 4
        return now + max(self.not_reconciled, min(waited, self.reconciled / 10))


class Decisions:
    def __init__(self, registry: Registry, rhythm: Rhythm) -> None:
        self._registry = registry
        self._rhythm = rhythm

    async def on_changes(self, connection: Any, changes: Sequence[Change], now: datetime) -> int:
        """In the caller's transaction. Returns how many events were published."""
        last = {change.resource_id: change for change in changes if change.change != "removed"}
        wanted = {change.resource_id for change in changes if change.change in WANTED}
        seen = await look_at(connection, self._registry, list(last))
        waiting = await look_at_waiting_children(connection, self._registry, list(last))
        urgent = [found for found in seen if found.subject.id in wanted]
        for found in urgent:
            change = last[found.subject.id]
            extra: dict[str, Any] = {"resource": str(found.subject.id), "kind": found.subject.kind}
            extra |= {"generation": found.subject.generation, "request_id": found.subject.request_id}
            extra |= {"reason": change.change, "span": "sentinel.event"}
            log.info("event", extra=extra | {"ms": round((now - change.at).total_seconds() * 1000, 1)})
        await self._publish(connection, urgent, now, "change")
        await self._publish(connection, waiting, now, "parent")
        await self._look_again(connection, [*seen, *waiting], now)
        return len({found.subject.id for found in (*urgent, *waiting)})

    async def scan(self, connection: Any, now: datetime) -> int:
        """Publish what is due; returns how many, at most a batch."""
        async with connection.transaction():
            due = await connection.fetch(
                f"SELECT resource_id FROM pulses WHERE due <= $1 ORDER BY due LIMIT {SCAN_BATCH}", now
            )
            if not due:
                return 0
            seen = await look_at(connection, self._registry, [row["resource_id"] for row in due])
            await self._publish(connection, seen, now, "pulse")
            await self._look_again(connection, seen, now)
            if len(seen) < len(due):  # kinds that have no adapters any more must not be due for ever
                known = {found.subject.id for found in seen}
                idle = [row["resource_id"] for row in due if row["resource_id"] not in known]
                await connection.execute("DELETE FROM pulses WHERE resource_id = ANY($1)", idle)
            extra = {"resources": len(seen), "not_reconciled": sum(not found.reconciled for found in seen)}
            log.debug("pulse", extra=extra)
            return len(due)

    async def look_at_all(self, connection: Any, now: datetime) -> None:
        """What is not reconciled now; what was is likely to be well still, and is looked at a little at a time."""
        await connection.execute(
            f"UPDATE pulses SET due = least(due, $1::timestamptz + CASE WHEN {RECONCILED} THEN random() * $2::interval"
            " ELSE interval '0' END) FROM resources WHERE resources.id = pulses.resource_id",
            now,
            self._rhythm.reconciled,
        )

    async def seconds_to_next(self, connection: Any, now: datetime) -> float | None:
        due = await connection.fetchval("SELECT min(due) FROM pulses")
        return None if due is None else float(max(0.0, (due - now).total_seconds()))

    async def _publish(self, connection: Any, seen: Iterable[Seen], now: datetime, reason: str) -> None:
        pairs = [(found.subject, adapter) for found in seen for adapter in found.adapters]
        for subject, _ in pairs:
            _published.labels(subject.kind, reason).inc()
        await enqueue(connection, pairs, source=SOURCE, now=now, urgent=reason != "pulse")

    async def _look_again(self, connection: Any, seen: Sequence[Seen], now: datetime) -> None:
        await connection.execute(
            "UPDATE pulses SET due = given.due FROM unnest($1::uuid[], $2::timestamptz[]) AS given (resource_id, due)"
            " WHERE pulses.resource_id = given.resource_id",
            [found.subject.id for found in seen],
            [self._rhythm.next_look(found, now) for found in seen],
        )

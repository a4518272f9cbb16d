"""Statuses that agents sent, on their way into the database: the newest of each bundle, many in one statement.

A report counts only for the very version that the bundle has, only from the consumer that the bundle is for, and only
if its sequence id is newer than the one stored. That a bundle is gone counts only if its deletion was asked for. These
rules are in the statements themselves: several replicas may get the same report, and one of them stores it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import prometheus_client

from regional.core.database import Database, still_wanted
from regional.core.role import Backoff
from regional.maestro.protocol.bundles import Condition, StatusData, decode_data
from regional.maestro.protocol.events import Event, MalformedEvent
from regional.maestro.protocol.tracing import request_id_of
from regional.maestro.server.bundles import CHANNEL
from regional.maestro.server.connection import FAILURES, pool_of

log = logging.getLogger(__name__)

BATCH = 256
MOST_WAITING = 8192
MOST_BYTES = 64 * 1024 * 1024
_reports = prometheus_client.Counter(
    "maestro_server_statuses_total", "Statuses of agents, by what came of them", ["outcome"]
)

_STORE = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[])
        AS i (id, consumer, version, sequence, hash, status, applied)
), stored AS (
    UPDATE resources r SET status = i.status, status_version = i.version, status_sequence = i.sequence,
        status_hash = i.hash, status_at = now(), applied = i.applied,
        due_at = CASE WHEN r.deleted_at IS NULL THEN NULL ELSE r.due_at END
    FROM incoming i
    WHERE r.id = i.id AND r.consumer_name = i.consumer AND r.version = i.version
        AND (r.status_sequence IS NULL OR r.status_sequence < i.sequence)
    RETURNING r.id, r.consumer_name, r.source, r.updated_at
), told AS (
    INSERT INTO events (resource_id, source, kind) SELECT id, source, 'status' FROM stored
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM stored) AS sources
)
SELECT s.*, (SELECT count(*) FROM heard) FROM stored s
"""
_FINISH = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[])
        AS i (id, consumer, version, sequence, hash, status, applied)
), gone AS (
    DELETE FROM resources r USING incoming i
    WHERE r.id = i.id AND r.consumer_name = i.consumer AND r.deleted_at IS NOT NULL
        AND (i.version = 0 OR i.version >= r.version)
    RETURNING r.*, i.status AS last_status, i.sequence AS last_sequence
), buried AS (
    INSERT INTO tombstones (id, consumer_name, version) SELECT id, consumer_name, version FROM gone
    ON CONFLICT (id) DO UPDATE SET consumer_name = excluded.consumer_name, version = excluded.version,
        deleted_at = now()
), told AS (
    INSERT INTO events (resource_id, source, kind, last)
    SELECT id, source, 'deleted', jsonb_build_object('name', name, 'consumer_name', consumer_name,
        'version', version, 'metadata', metadata, 'created_at', created_at, 'updated_at', updated_at,
        'deleted_at', deleted_at, 'status', last_status, 'sequence', last_sequence, 'request_id', request_id)::text
    FROM gone
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM gone) AS sources
)
SELECT g.id, g.consumer_name, g.deleted_at AS updated_at, (SELECT count(*) FROM heard) FROM gone g
"""


class Report(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    consumer: str
    version: int
    sequence: int
    hash: str
    status: str
    applied: bool
    deleting: bool
    deleted: bool
    request_id: str
    received: float = msgspec.field(default_factory=time.monotonic)

    @property
    def lives(self) -> bool:
        """Whether the agent means to keep the work. One that it is ending needs no second word about that."""
        return not (self.deleting or self.deleted)


class Stored(msgspec.Struct, kw_only=True, frozen=True):
    report: Report
    since: datetime
    """When the bundle's newest version (or its deletion) was accepted."""


def report_of(event: Event) -> Report:
    """Raises MalformedEvent."""
    try:
        sequence = int(event.extensions.get("sequenceid") or "0")
    except ValueError:
        raise MalformedEvent("sequenceid is not a number") from None
    if not event.resource_id:
        raise MalformedEvent("no resourceid")
    if not 0 <= sequence < 1 << 63 or not 0 <= event.version < 1 << 31:
        raise MalformedEvent("sequenceid or resourceversion is out of range")
    try:
        text = event.data.decode()
    except UnicodeDecodeError:
        raise MalformedEvent("the status is not UTF-8") from None
    if "\x00" in text:
        raise MalformedEvent("the status holds a NUL byte")
    data: StatusData = decode_data(event.data, StatusData)
    conditions = [decode_data(raw, Condition) for raw in data.conditions or []]
    true = {condition.type for condition in conditions if condition.status == "True"}
    return Report(
        id=event.resource_id,
        consumer=event.consumer,
        version=event.version,
        sequence=sequence,
        hash=event.extensions.get("statushash", ""),
        status=text,
        applied="Applied" in true,
        deleting="Deleting" in true,
        deleted="Deleted" in true,
        request_id=request_id_of(event.extensions),
    )


class Inbox:
    """Reports that wait for the database: one per bundle and kind, and no more than memory is meant for.

    What finds no room is dropped, and the agents are asked for their statuses once the others are stored.
    """

    def __init__(
        self,
        database: Database,
        stored: Callable[[Stored], None],
        stray: Callable[[Sequence[Report]], None],
        ask_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`stray` hears of reports that fitted no bundle."""
        self._database = database
        self._stored, self._stray, self._ask_again = stored, stray, ask_again
        self._statuses: dict[tuple[str, str], Report] = {}
        self._endings: dict[tuple[str, str], Report] = {}
        self._bytes = 0
        self._dropped = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._statuses) + len(self._endings)

    def offer(self, report: Report) -> None:
        # By consumer too: a report under a foreign bundle's id must not push out the true one.
        waiting = self._endings if report.deleted else self._statuses
        known = waiting.get((report.consumer, report.id))
        if known is not None and known.sequence >= report.sequence:
            _reports.labels("outdated").inc()
            return
        grown = self._bytes + len(report.status) - (len(known.status) if known else 0)
        if grown > MOST_BYTES or (known is None and len(self) >= MOST_WAITING):
            self._dropped += 1
            _reports.labels("dropped").inc()
            return
        self._bytes = grown
        waiting[report.consumer, report.id] = report
        self._wake.set()

    async def keep_storing(self) -> None:
        backoff = Backoff(0.05, 1.0)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
                backoff.reset()
            except FAILURES as error:
                still_wanted()
                self._wake.set()
                log.warning("statuses wait for the database", extra={"waiting": len(self), "reason": str(error)})
                await backoff.pause()

    async def flush(self) -> None:
        """Everything that waits goes into the database."""
        while len(self):
            await self._store(self._statuses, _STORE)
            await self._store(self._endings, _FINISH)
        if self._dropped:
            log.warning("statuses found no room; agents are asked again", extra={"dropped": self._dropped})
            self._dropped = 0
            self._ask_again()

    async def _store(self, waiting: dict[tuple[str, str], Report], statement: str) -> None:
        batch = list(waiting.values())[:BATCH]
        if not batch:
            return
        done = await self._written(batch, statement)
        for report in batch:
            if waiting.get((report.consumer, report.id)) is report:
                del waiting[report.consumer, report.id]
                self._bytes -= len(report.status)
        strays = []
        for report in batch:
            row = done.get((report.consumer, report.id))
            if row is None:
                strays.append(report)
                continue
            self._stored(Stored(report=report, since=row["updated_at"]))
        _reports.labels("stored").inc(len(batch) - len(strays))
        if strays:
            _reports.labels("ignored").inc(len(strays))
            self._stray(strays)

    async def _written(self, batch: list[Report], statement: str) -> dict[tuple[str, str], Any]:
        try:
            return await self._execute(batch, statement)
        except asyncpg.DataError as error:
            if len(batch) == 1:
                log.error("a status cannot be stored", extra={"resource": batch[0].id, "reason": str(error)})
                return {}
            done: dict[tuple[str, str], Any] = {}
            for report in batch:  # find the one that spoils the others
                done |= await self._written([report], statement)
            return done

    async def _execute(self, batch: list[Report], statement: str) -> dict[tuple[str, str], Any]:
        # Sorted, so that replicas with overlapping batches lock rows in one order.
        chosen = {report.id: report for report in batch}
        if len(chosen) < len(batch):  # two consumers claim one id: one of them lies, and only the row knows which
            done: dict[tuple[str, str], Any] = {}
            for report in batch:
                done |= await self._execute([report], statement)
            return done
        ordered = [chosen[key] for key in sorted(chosen)]
        rows = await pool_of(self._database).fetch(
            statement,
            [report.id for report in ordered],
            [report.consumer for report in ordered],
            [report.version for report in ordered],
            [report.sequence for report in ordered],
            [report.hash for report in ordered],
            [report.status for report in ordered],
            [report.applied for report in ordered],
        )
        return {(row["consumer_name"], row["id"]): row for row in rows}

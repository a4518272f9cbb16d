"""Statuses that agents sent, on their way into the database: the newest of each bundle, many in one statement.

A report counts only for the very version that the bundle has, only from the consumer that the bundle is for, and only
if its sequence id is newer than the one stored. One without any condition says only that the version has arrived: it
takes nothing back. That a bundle is gone counts only if its deletion was asked for. These
rules are in the statements themselves: several replicas may get the same report, and one of them stores it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import prometheus_client

from regional.core.database import Database, still_wanted
from regional.core.role import Backoff
from regional.maestro.protocol.bundles import Condition, StatusData, decode_data
from regional.maestro.protocol.events import RESYNC_RESPONSE, Event, MalformedEvent
from regional.maestro.protocol.tracing import request_id_of
from regional.maestro.server.agent_works import LONGEST_ID
from regional.maestro.server.bundles import CHANNEL
from regional.maestro.server.connection import FAILURES, pool_of

log = logging.getLogger(__name__)

BATCH = 256
LULL = 0.001
LONGEST_LULL = 0.01
LONGEST_NOTE = 500
MOST_WAITING = 8192
MOST_BYTES = 64 * 1024 * 1024
_reports = prometheus_client.Counter(
    "maestro_server_statuses_total", "Statuses of agents, by what came of them", ["outcome"]
)

_STORE = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[],
        $8::text[], $9::bool[], $10::bool[])
        AS i (id, consumer, version, sequence, hash, status, applied, note, complete, fresh)
), stored AS (
    UPDATE resources r SET status = i.status, status_version = i.version, status_sequence = i.sequence,
        status_hash = i.hash, status_at = now(), applied = i.applied AND (i.fresh OR r.applied),
        due_at = CASE WHEN r.deleted_at IS NULL THEN NULL ELSE r.due_at END,
        expires_at = CASE WHEN i.complete THEN coalesce(r.expires_at, now() + interval '1 second'
            * (r.spec::jsonb #>> '{{deleteOption,ttlSecondsAfterFinished}}')::double precision) END
    FROM incoming i
    WHERE r.id = i.id AND r.consumer_name = i.consumer AND r.version = i.version
        AND (r.status_sequence IS NULL OR r.status_sequence < i.sequence)
        AND (i.note <> '' OR r.status_version IS DISTINCT FROM i.version)
    RETURNING r.id, r.consumer_name, r.source, r.updated_at, r.version, r.request_id, i.note
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id, note)
    SELECT id, source, 'status', version, request_id, note FROM stored
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM stored) AS sources
)
SELECT s.*, (SELECT count(*) FROM heard) FROM stored s
"""
_FINISH = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[],
        $8::text[], $9::bool[], $10::bool[])
        AS i (id, consumer, version, sequence, hash, status, applied, note, complete, fresh)
), gone AS (
    DELETE FROM resources r USING incoming i
    WHERE r.id = i.id AND r.consumer_name = i.consumer AND r.deleted_at IS NOT NULL
        AND (i.version = 0 OR i.version >= r.version)
    RETURNING r.*, i.status AS last_status, i.sequence AS last_sequence
), buried AS (
    INSERT INTO tombstones (id, consumer_name, version) SELECT id, consumer_name, version FROM gone
    ON CONFLICT (id) DO UPDATE SET consumer_name = excluded.consumer_name, version = excluded.version,
        deleted_at = now()
), forgotten AS (
    DELETE FROM agent_works a USING gone g WHERE (a.consumer_name, a.id) = (g.consumer_name, g.id)
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id, last)
    SELECT id, source, 'deleted', version, request_id, jsonb_build_object('name', name, 'consumer_name', consumer_name,
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
    complete: bool = False
    fresh: bool = True
    """Whether `applied` is about this very version. What is true of a former one holds on if the spec is the same."""
    asked: bool = False
    """Whether the agent answers a question of ours, and does not tell news."""
    note: str = ""
    """The conditions in short, for the bundle's history."""
    request_id: str
    received: float = msgspec.field(default_factory=time.monotonic)

    @property
    def lives(self) -> bool:
        """Whether the agent means to keep the work. One that it is ending needs no second word about that."""
        return not (self.deleting or self.deleted)

    def adds_nothing_to(self, known: Report) -> bool:
        """The newer sequence id is not everything: an agent may tell last that it has nothing to tell."""
        return self.version == known.version and bool(known.note) and not self.note


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
    if not 0 < len(event.resource_id) <= LONGEST_ID:
        raise MalformedEvent(f"resourceid has {len(event.resource_id)} characters, not 1 to {LONGEST_ID}")
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
    fresh = {condition.type for condition in conditions if _is_of(event.version, condition)}
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
        complete="Complete" in true & fresh,
        fresh="Applied" in fresh,
        asked=event.action == RESYNC_RESPONSE,
        note=_in_short(conditions),
        request_id=request_id_of(event.extensions),
    )


def _is_of(version: int, condition: Condition) -> bool:
    """Agents of the Go Maestro name a new version as soon as they have it, while `Applied` is about the one before;
    if the spec is the same as before, for minutes."""
    return condition.observed_generation is None or condition.observed_generation >= version


def _in_short(conditions: Sequence[Condition]) -> str:
    """`Applied=True Available=False: 1 of 2 resources are not available`."""
    states = " ".join(f"{found.type}={found.status}" for found in conditions)
    wrong = next((found.message for found in conditions if found.status == "False" and found.message), "")
    return (f"{states}: {wrong}" if wrong else states).replace("\x00", "")[:LONGEST_NOTE]


class Inbox:
    """Reports that wait for the database: one per bundle and kind, and no more than memory is meant for.

    What finds no room is dropped, and its agents are asked for their statuses once the others are stored.
    """

    def __init__(
        self,
        database: Database,
        stored: Callable[[Stored], None],
        stray: Callable[[Sequence[Report]], None],
        ask_again: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """`stray` hears of reports that fitted no bundle, `ask_again` of consumers whose reports found no room."""
        self._database = database
        self._stored, self._stray, self._ask_again = stored, stray, ask_again
        self._statuses: dict[tuple[str, str], Report] = {}
        self._endings: dict[tuple[str, str], Report] = {}
        self._bytes = 0
        self._dropped: Counter[str] = Counter()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._statuses) + len(self._endings)

    def offer(self, report: Report) -> None:
        # By consumer too: a report under a foreign bundle's id must not push out the true one.
        waiting = self._endings if report.deleted else self._statuses
        known = waiting.get((report.consumer, report.id))
        if known is not None and (known.sequence >= report.sequence or report.adds_nothing_to(known)):
            _reports.labels("outdated").inc()
            return
        grown = self._bytes + len(report.status) - (len(known.status) if known else 0)
        if grown > MOST_BYTES or (known is None and len(self) >= MOST_WAITING):
            self._dropped[report.consumer] += 1
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
                stored = await self.flush()
                backoff.reset()
                if stored > 1:  # where several come, more are coming, and one statement stores them all
                    await asyncio.sleep(min(LONGEST_LULL, LULL * stored))
            except FAILURES as error:
                still_wanted()
                self._wake.set()
                log.warning("statuses wait for the database", extra={"waiting": len(self), "reason": str(error)})
                await backoff.pause()

    async def flush(self) -> int:
        """Everything that waits goes into the database. How many that were at last."""
        count = 0
        while len(self):
            count = await self._store(self._statuses, _STORE) + await self._store(self._endings, _FINISH)
        if self._dropped:
            dropped, self._dropped = self._dropped, Counter()
            log.warning("statuses found no room; agents are asked again", extra={"dropped": dropped.total()})
            self._ask_again(dropped.keys())
        return count

    async def _store(self, waiting: dict[tuple[str, str], Report], statement: str) -> int:
        batch = list(waiting.values())[:BATCH]
        if not batch:
            return 0
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
        return len(batch)

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
            [report.note for report in ordered],
            [report.complete for report in ordered],
            [report.fresh for report in ordered],
        )
        return {(row["consumer_name"], row["id"]): row for row in rows}

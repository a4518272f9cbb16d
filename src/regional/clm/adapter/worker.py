"""Takes events from the queue and runs their tasks, a few at a time.

A task that failed is tried again soon, with growing pauses; the sentinel's pulse brings it back in any case. While a
task runs, its lease is renewed, so that no other adapter starts the same work.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import prometheus_client

from regional.clm.adapter.engine import Engine, Outcome, ResourceGone, TaskFailed
from regional.clm.client import ClmError
from regional.clm.events import CHANNEL, Queue, Work
from regional.core.database import Bell, Database, still_wanted

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
RENEW_SECONDS = 3.0
FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
_processed = prometheus_client.Counter("hyperfleet_adapter_events_processed_total", "Events processed", ["status"])
_duration = prometheus_client.Histogram(
    "hyperfleet_adapter_event_processing_duration_seconds", "Time to process an event", ["kind"]
)


class Worker:
    def __init__(self, database: Database, queue: Queue, engines: Mapping[str, Engine], *, at_once: int = 16) -> None:
        self._database = database
        self._queue = queue
        self._engines = engines
        self._at_once = at_once
        self._running: dict[UUID, asyncio.Task[None]] = {}  # at most one for a resource: its event is leased

    async def work(self, connection: Any) -> None:
        """While the connection lives. What is running when it is lost goes on; its lease may pass to another."""
        bell = Bell(connection)
        await bell.listen(CHANNEL)
        if recovered := await self._queue.recover(connection, self._running):
            log.info("took up what a former life left behind", extra={"events": recovered})
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                free = self._at_once - len(self._running)
                taken = await self._queue.take(connection, free) if free else []
                for found in taken:
                    task = asyncio.create_task(self._one(found))
                    self._running[found.resource_id] = task
                    task.add_done_callback(functools.partial(self._done, found.resource_id, bell))
                if len(taken) < free or not free:
                    due = await self._queue.next_due(connection) if free else None
                    await bell.wait(POLL_SECONDS if due is None else min(POLL_SECONDS, max(0.02, due)))
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def _done(self, key: UUID, bell: Bell, _: object) -> None:
        self._running.pop(key, None)
        bell.ring()

    async def close(self) -> None:
        """Let what is running end: a report half made would have to be made again."""
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=5)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            if self._running and self._database.pool is not None:
                try:
                    await self._queue.renew(self._database.pool, list(self._running))
                except FAILURES as error:
                    still_wanted()
                    log.warning("leases were not renewed", extra={"reason": str(error)})

    async def _one(self, work: Work) -> None:
        started = time.perf_counter()
        extra: dict[str, Any] = {"resource": str(work.resource_id), "kind": work.kind, "request_id": work.request_id}
        extra |= {"waited_ms": round(work.waited * 1000, 1)}
        status = "failed"
        again: float | None = PAUSES[min(work.attempts - 1, len(PAUSES) - 1)]
        try:
            outcome = await self._run(work)
            extra |= _told(outcome)
            status = "success" if outcome.succeeded else "failed"
            again = None if outcome.succeeded else again
        except ResourceGone as gone:
            extra["skipped"] = str(gone)
            status, again = "skipped", None
        except (TaskFailed, ClmError) as error:
            extra["error"] = str(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("task failed", extra=extra)
        taken = time.perf_counter() - started
        _processed.labels(status).inc()
        _duration.labels(work.kind).observe(taken)
        extra |= {"span": "adapter.run", "ms": round(taken * 1000, 1), "attempt": work.attempts}
        log.log(logging.WARNING if status == "failed" else logging.INFO, "task run", extra=extra)
        await self._settle(work, again)

    async def _run(self, work: Work) -> Outcome:
        engine = self._engines.get(work.kind)
        if engine is None:
            raise ResourceGone(f"there is no task for kind {work.kind}")
        return await engine.run(work.event, work.request_id)

    async def _settle(self, work: Work, again: float | None) -> None:
        """If the database is away the lease runs out, and the event is taken again: handlers do not mind."""
        try:
            if self._database.pool is None:
                return
            if again is None:
                await self._queue.finish(self._database.pool, work)
            else:
                await self._queue.fail(self._database.pool, work, timedelta(seconds=again))
        except FAILURES as error:
            log.warning("event was not settled", extra={"resource": str(work.resource_id), "reason": str(error)})


def _told(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {"operations": outcome.operations}
    if outcome.skipped:
        told["skipped"] = outcome.skipped
    if outcome.error:
        told["error"] = outcome.error
    return told

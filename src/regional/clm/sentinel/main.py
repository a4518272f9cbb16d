"""`regionctl serve sentinel`: follows the change feed and tells adapters what needs work.

Any number may run; the one that holds the lock works, on the very connection that holds it, so that it cannot write
after it has lost it. The others take over when it is gone.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from regional.clm.entities import REGISTRY
from regional.clm.sentinel.decisions import Decisions, Rhythm
from regional.clm.settings import ClmSettings, database_of
from regional.core import store
from regional.core.clock import Clock, SystemClock
from regional.core.database import Bell
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.role import run_role
from regional.core.settings import load
from regional.core.store_feed import FeedReader, forget_changes

log = logging.getLogger(__name__)

STANDBY_SECONDS = 1.0


class Settings(ClmSettings, kw_only=True, frozen=True):
    poll_seconds: float = 5.0
    pulse_not_reconciled_seconds: float = 10.0
    pulse_reconciled_seconds: float = 1800.0
    keep_changes_hours: float = 168.0
    keep_history_days: float = 400.0


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("clm-sentinel", settings.log_level)
    run(serve(settings))
    return 0


async def serve(settings: Settings) -> None:
    database = database_of(settings, "clm-sentinel")
    sentinel = Sentinel(settings)
    await run_role(
        settings,
        [database.dependency],
        [database.keep_connected(), database.keep_session(sentinel.follow)],
        says="following the change feed",
    )


class Sentinel:
    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._decisions = Decisions(
            REGISTRY,
            Rhythm(
                timedelta(seconds=settings.pulse_not_reconciled_seconds),
                timedelta(seconds=settings.pulse_reconciled_seconds),
            ),
        )

    async def follow(self, connection: Any) -> None:
        """While the connection lives."""
        bell = Bell(connection)
        await bell.listen(store.CHANNEL)
        await self._take_the_lead(connection, bell)
        cleaned = self._now()
        reader = await self._open(connection)
        while True:
            try:
                await self._read(connection, reader)
                pause = await self._pause(connection)
                while pause == 0:
                    await self._decisions.scan(connection, self._now())
                    pause = await self._pause(connection)
            except asyncpg.DeadlockDetectedError:  # with the removal of a tree; one of the two had to give way
                reader = await self._open(connection)
                continue
            if self._now() - cleaned > timedelta(minutes=10):
                cleaned = self._now()
                await forget_changes(connection, cleaned - timedelta(hours=self._settings.keep_changes_hours))
                await store.forget_history(connection, cleaned - timedelta(days=self._settings.keep_history_days))
            await bell.wait(pause)

    async def _open(self, connection: Any) -> FeedReader:
        reader = FeedReader(connection, "sentinel")
        async with connection.transaction():  # a place that is kept says that all before it was looked at
            if not await reader.open(self._now()):
                log.info("no place in this feed is known: every resource is looked at once")
                await self._decisions.look_at_all(connection, self._now())
        return reader

    async def _take_the_lead(self, connection: Any, bell: Bell) -> None:
        lead = "SELECT pg_try_advisory_lock(hashtext('clm sentinel'))"
        if not await connection.fetchval(lead):
            log.info("standing by: another sentinel leads")
            while not await connection.fetchval(lead):
                await bell.wait(STANDBY_SECONDS)
        log.info("leading")

    async def _read(self, connection: Any, reader: FeedReader) -> None:
        """Everything that can be seen now. Who commits later rings the bell again."""
        while True:
            async with connection.transaction():
                batch = await reader.read()
                now = self._now()
                if batch.changes:
                    await self._decisions.on_changes(connection, batch.changes, now)
                await reader.settle(batch, now)
            if not batch.more:
                return

    async def _pause(self, connection: Any) -> float:
        """Until the next look at something is due, or the feed should be read unasked; 0 if a look is due now."""
        due = await self._decisions.seconds_to_next(connection, self._now())
        return self._settings.poll_seconds if due is None else min(self._settings.poll_seconds, due)

    def _now(self) -> datetime:
        return self._clock.now().astimezone(UTC)

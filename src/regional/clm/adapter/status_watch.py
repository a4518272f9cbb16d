"""Listens to Maestro: when the status of a bundle of ours changes, the resource it belongs to has an event.

So a cluster becomes ready within moments of its control plane, and only because its management cluster said so. If a
change is missed, the sentinel's pulse finds it. The place in Maestro's stream is kept, so that a restart does not look
at every bundle there is.

A bundle of a resource that CLM remembers to have removed is deleted: an adapter that stood still while its resource
was deleted may have made it afterwards. A bundle of a resource that CLM has never heard of is left alone, because the
reason may be a database that was restored from an older backup. What is to be deleted is written down together with
the place in the stream, which does not say it twice, and worked off until Maestro has taken it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from regional.clm.adapter.transport import SOURCE
from regional.clm.entities import Registry
from regional.clm.events import enqueue
from regional.clm.subjects import Seen, look_at
from regional.core.database import Database, still_wanted
from regional.maestro.client import Change, MaestroClient, MaestroError, MaestroUnreachable

log = logging.getLogger(__name__)

RESOURCE_ID = "regional.io/resource-id"
REMEMBERED = 20_000
CURSOR_SECONDS = 5.0  # for what is no news: after a restart it is seen again, and is none then either
SWEEP_BATCH = 100
SWEEP_SECONDS = 60.0  # between looks at what another's failure may have left
SWEEP_PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
REFUSALS = 20  # of one bundle, then it is let be; that nobody answers does not count
FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class News(msgspec.Struct, frozen=True):
    resource_id: UUID
    bundle_id: str
    deleting: bool
    came: float  # on the clock of time.perf_counter


class StatusWatch:
    def __init__(self, database: Database, maestro: MaestroClient, registry: Registry, adapter: str) -> None:
        self._database = database
        self._maestro = maestro
        self._registry = registry
        self._adapter = adapter
        self._watcher = f"{SOURCE}/{adapter}"
        self._outlived = asyncio.Event()  # something may be due for deletion
        self._kept = 0.0  # when the place in the stream was last written
        self._seen: OrderedDict[str, tuple[Any, ...]] = OrderedDict()

    async def follow(self) -> None:
        """Without end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._sweep())

    async def _watch(self) -> None:
        while True:
            changes: asyncio.Queue[tuple[Change, float]] = asyncio.Queue(maxsize=1000)
            tasks = [asyncio.create_task(self._read(changes)), asyncio.create_task(self._write(changes))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            except (MaestroError, *FAILURES) as error:
                still_wanted()
                log.warning("watch of Maestro interrupted", extra={"reason": str(error)})
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._seen.clear()  # what was read may not have been written: it comes again, and must be news then
            await asyncio.sleep(0.5)

    async def _read(self, changes: asyncio.Queue[tuple[Change, float]]) -> None:
        async with contextlib.aclosing(self._maestro.watch(SOURCE, await self._place())) as stream:
            async for change in stream:
                await changes.put((change, time.perf_counter()))

    async def _write(self, changes: asyncio.Queue[tuple[Change, float]]) -> None:
        """Together what came together."""
        while True:
            batch = [await changes.get()]
            while not changes.empty() and len(batch) < 200:
                batch.append(changes.get_nowait())
            news = [found for change, came in batch if (found := self._news(change, came)) is not None]
            if news or time.monotonic() - self._kept > CURSOR_SECONDS:
                await self._publish(news, batch[-1][0].cursor)
                self._kept = time.monotonic()

    def _news(self, change: Change, came: float) -> News | None:
        """The resource that is concerned, if what came is news about the bundle's state and not our own writing."""
        bundle = change.bundle
        labels = (bundle.get("metadata") or {}).get("labels") or {}
        status = bundle.get("status") or {}
        gone = any(found.get("type") == "Deleted" for found in status.get("conditions") or [])
        state = (status.get("SequenceID"), status.get("ObservedVersion"), gone)
        key = str(bundle.get("id"))
        known = self._seen.get(key)
        self._seen[key] = state
        self._seen.move_to_end(key)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        if known == state or (known is None and not status):
            return None
        try:
            return News(UUID(str(labels.get(RESOURCE_ID))), key, gone or bool(bundle.get("deleted_at")), came)
        except ValueError:
            return None

    async def _publish(self, news: list[News], cursor: str) -> None:
        """Tried until the database takes it: the stream does not say it twice."""
        concerned = {found.resource_id: found for found in news}
        while True:
            pool = self._database.pool
            if pool is not None:
                try:
                    async with pool.acquire(timeout=5) as connection:
                        async with connection.transaction():
                            seen = await self._enqueue(connection, list(concerned))
                            known = {found.subject.id for found in seen}
                            left = [found for found in news if found.resource_id not in known and not found.deleting]
                            await self._write_down(connection, left)
                            await connection.execute(
                                "INSERT INTO watch_cursors (watcher, position) VALUES ($1, $2)"
                                " ON CONFLICT (watcher) DO UPDATE SET position = EXCLUDED.position",
                                self._watcher,
                                cursor,
                            )
                        _tell(seen, concerned)
                        if left:
                            self._outlived.set()
                        return
                except FAILURES as error:
                    still_wanted()
                    log.warning("status change waits for the database", extra={"reason": str(error)})
            await asyncio.sleep(0.1)

    async def _enqueue(self, connection: Any, ids: list[UUID]) -> list[Seen]:
        seen = await look_at(connection, self._registry, ids)
        pairs = [(found.subject, self._adapter) for found in seen if self._adapter in found.adapters]
        await enqueue(connection, pairs, source=f"hyperfleet-adapter/{self._adapter}", now=datetime.now(UTC))
        return seen

    async def _write_down(self, connection: Any, left: list[News]) -> None:
        """Bundles without a resource: those that outlived theirs are to be deleted."""
        if not left:
            return
        removed = await connection.fetch(
            "SELECT DISTINCT resource_id FROM resource_history WHERE resource_id = ANY($1) AND change = 'removed'",
            [found.resource_id for found in left],
        )
        known = {row["resource_id"] for row in removed}
        for found in left:
            extra = {"resource": str(found.resource_id), "bundle": found.bundle_id}
            if found.resource_id not in known:
                log.warning("a bundle is of a resource that is not known here: it is left alone", extra=extra)
                continue
            log.warning("a bundle outlived its resource: deleting it", extra=extra)
            await connection.execute(
                "INSERT INTO outlived_bundles (bundle_id, watcher, resource_id) VALUES ($1, $2, $3)"
                " ON CONFLICT DO NOTHING",
                found.bundle_id,
                self._watcher,
                found.resource_id,
            )

    async def _sweep(self) -> None:
        """Without end: deletes what was written down, by this life or a former one."""
        while True:
            pause = 0.5
            if (pool := self._database.pool) is not None:
                self._outlived.clear()
                try:
                    pause = await self._sweep_once(pool)
                except FAILURES as error:
                    still_wanted()
                    log.warning("outlived bundles wait for the database", extra={"reason": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # not wait_for: on Python 3.11 it may lose a cancellation
                    await self._outlived.wait()

    async def _sweep_once(self, pool: Any) -> float:
        """Seconds until there may be more to do."""
        due = await pool.fetch(
            "SELECT bundle_id, resource_id, attempts FROM outlived_bundles WHERE watcher = $1 AND due <= now()"
            f" ORDER BY due LIMIT {SWEEP_BATCH}",
            self._watcher,
        )
        for row in due:
            await self._delete(pool, row["bundle_id"], row["resource_id"], row["attempts"])
        next_due = await pool.fetchval(
            "SELECT extract(epoch FROM min(due) - now())::float8 FROM outlived_bundles WHERE watcher = $1",
            self._watcher,
        )
        return SWEEP_SECONDS if next_due is None else min(SWEEP_SECONDS, max(0.05, next_due))

    async def _delete(self, pool: Any, bundle: str, resource: UUID, attempts: int) -> None:
        try:
            await self._maestro.delete_bundle(bundle)
        except MaestroError as error:
            if not error.not_found:
                extra = {"resource": str(resource), "bundle": bundle, "reason": str(error)}
                refused = not isinstance(error, MaestroUnreachable)
                if not refused or attempts + 1 < REFUSALS:
                    log.warning("a bundle that outlived its resource was not deleted: again later", extra=extra)
                    await self._later(pool, bundle, attempts, refused)
                    return
                log.error("a bundle that outlived its resource cannot be deleted: it is let be", extra=extra)
        await pool.execute("DELETE FROM outlived_bundles WHERE bundle_id = $1 AND watcher = $2", bundle, self._watcher)

    async def _later(self, pool: Any, bundle: str, attempts: int, refused: bool) -> None:
        pause = SWEEP_PAUSES[min(attempts, len(SWEEP_PAUSES) - 1)] if refused else SWEEP_PAUSES[3]
        await pool.execute(
            "UPDATE outlived_bundles SET due = now() + $3::interval, attempts = $4"
            " WHERE bundle_id = $1 AND watcher = $2",
            bundle,
            self._watcher,
            timedelta(seconds=pause),
            attempts + refused,
        )

    async def _place(self) -> str:
        while self._database.pool is None:
            await asyncio.sleep(0.05)
        found = await self._database.pool.fetchval(
            "SELECT position FROM watch_cursors WHERE watcher = $1", self._watcher
        )
        return str(found or "")


def _tell(seen: list[Seen], news: dict[UUID, News]) -> None:
    for found in seen:
        subject = found.subject
        extra: dict[str, Any] = {"resource": str(subject.id), "kind": subject.kind, "request_id": subject.request_id}
        taken = (time.perf_counter() - news[subject.id].came) * 1000
        log.info("status came back", extra=extra | {"span": "adapter.status", "ms": round(taken, 2)})

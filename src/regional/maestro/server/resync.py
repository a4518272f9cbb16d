"""Both resyncs, seen from the server: what an agent lacks is sent to it, and agents are asked for what we lack."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from regional.core.database import Database
from regional.core.mqtt import NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.bundles import ResourceVersions, decode_data
from regional.maestro.protocol.canonical import NO_STATUS
from regional.maestro.protocol.events import RESYNC_RESPONSE, Event, timestamp
from regional.maestro.server.agent_works import HIGHEST, AgentWorks, possible
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import pool_of
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.delivery import PAGE, Delivery, Publish, side_by_side

log = logging.getLogger(__name__)

ROUNDS = 6
"""How often a consumer is asked whose message the broker does not take; a new session asks everyone anew."""
LONGEST_PAUSE = 5.0


class Resync:
    def __init__(
        self,
        database: Database,
        bundles: Bundles,
        consumers: Consumers,
        delivery: Delivery,
        publish: Publish,
        *,
        source_id: str,
        keep_unknown: bool,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        """`connected` says whether the broker is there: without it, asking again is for the next session."""
        self._database, self._works = database, AgentWorks(database)
        self._bundles, self._consumers, self._delivery, self._publish = bundles, consumers, delivery, publish
        self._source_id, self._keep_unknown, self._connected = source_id, keep_unknown, connected

    async def answer(self, event: Event) -> None:
        """Everything being deleted, everything older at the agent, and the end of what was deleted here for good.

        What the agent has beyond that is noted, not ended: rather a stale work at the agent than an emptied or restored
        database that deletes what its agents run.
        """
        versions: ResourceVersions = decode_data(event.data or b"{}", ResourceVersions)
        listed = versions.resource_versions or []
        reported = {found.resource_id: found.version for found in listed if possible(found.resource_id)}
        first, until = event.extensions.get("resyncfrom", ""), event.extensions.get("resyncuntil", "")
        rows = await pool_of(self._database).fetch(
            "SELECT id, version, deleted_at IS NOT NULL AS deleting FROM resources WHERE consumer_name = $1"
            " AND id >= $2 AND ($3 = '' OR id < $3)",
            *(event.consumer, first, until),
        )
        known = {row["id"] for row in rows}
        newer = {row["id"]: reported[row["id"]] for row in rows if row["version"] < reported.get(row["id"], 0)}
        if any(row["deleting"] and row["id"] in newer for row in rows):
            await self._works.deletions_behind(event.consumer, newer)
        lacking = [row["id"] for row in rows if row["deleting"] or row["version"] > reported.get(row["id"], 0)]
        for start in range(0, len(lacking), PAGE):
            for bundle in await self._bundles.some(lacking[start : start + PAGE]):
                await self._delivery.offer_patiently(bundle, RESYNC_RESPONSE)
        strangers = [found for found in reported if found not in known]
        ended = await self._end(event.consumer, strangers, reported)
        beyond = {found: reported[found] for found in (*strangers, *newer) if found not in ended}
        await self._works.note(event.consumer, first, until, beyond)
        # Whoever wished one of them to go in the meantime did not know that an agent has it.
        ended |= await self._end(event.consumer, [found for found in strangers if found in beyond], reported)
        log.info(
            "spec resync answered",
            extra={
                "consumer": event.consumer,
                "reported": len(reported),
                "sent": len(lacking),
                "ended": len(ended),
                "unknown": len(beyond),
            },
        )

    async def _end(self, consumer: str, strangers: list[str], reported: dict[str, int]) -> set[str]:
        """Tell the agent which of these works are over: those whose deletion we remember, and others if so configured.

        What was never heard of here may be all that is left of what a lost database knew.
        """
        if not strangers:
            return set()
        pool = pool_of(self._database)
        ending = await self._remembered(consumer, {found: reported[found] for found in strangers})
        if not self._keep_unknown and await pool.fetchval(
            "SELECT EXISTS (SELECT 1 FROM resources WHERE consumer_name = $1)", consumer
        ):
            ending |= set(strangers)
        ended = set()
        for resource_id in sorted(ending):
            if await self._publish_end(consumer, resource_id, reported[resource_id], RESYNC_RESPONSE):
                ended.add(resource_id)
        return ended

    async def _remembered(self, consumer: str, reported: dict[str, int]) -> set[str]:
        """Those that were deleted. A deletion that was asked for before anybody knew the work is now known to be of
        this one: should it come back, it counts on from there."""
        rows = await pool_of(self._database).fetch(
            "UPDATE tombstones t SET consumer_name = $1, version = greatest(t.version, w.version)"
            " FROM unnest($2::text[], $3::int[]) AS w (id, version) WHERE t.id = w.id AND t.consumer_name IN ($1, '')"
            " AND NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = t.id) RETURNING t.id",
            *(consumer, list(reported), [max(0, min(version, HIGHEST)) for version in reported.values()]),
        )
        return {row["id"] for row in rows}

    async def end_strays(self, consumer: str, reported: dict[str, int]) -> None:
        """Statuses came of bundles that were deleted for good: a late message has brought them back to life.

        Others are of works, or of versions, that only the agent knows. One of the Go Maestro's make says what it has
        when it connects and never again, so to a database that has lost something meanwhile its statuses tell it.
        """
        await self._works.add(consumer, reported)
        ending = await self._remembered(consumer, reported)
        for bundle in await self._works.deletions_behind(consumer, reported):
            self._delivery.offer(bundle)
        for resource_id in sorted(ending):
            log.warning("a deleted bundle is ended again", extra={"resource": resource_id, "consumer": consumer})
            await self._publish_end(consumer, resource_id, reported[resource_id], "delete_request")

    async def _publish_end(self, consumer: str, resource_id: str, version: int, action: str) -> bool:
        """Not if it was made (anew) since we looked: with many bundles to send before, that is a while ago."""
        if await pool_of(self._database).fetchval(
            "SELECT EXISTS (SELECT 1 FROM resources WHERE id = $1 AND consumer_name = $2)", resource_id, consumer
        ):
            return False
        now = timestamp(datetime.now(UTC))
        await self._publish(
            protocol.spec_event(
                action,
                source=self._source_id,
                consumer=consumer,
                resource_id=resource_id,
                version=version,
                deletion=now,
                time=now,
            )
        )
        return True

    async def remind(self, consumers: Collection[str]) -> None:
        """Agents of the Go Maestro's make ask what they lack once, when they connect; if nobody listened just then, one
        that has restarted knows nothing of what was confirmed before. So they are sent all of it: what they have
        already they pass over."""
        pool = pool_of(self._database)
        names = await pool.fetch(
            "SELECT name FROM consumers WHERE name = ANY($1) AND coalesce(agent_version, '') = ''", list(consumers)
        )
        turns = asyncio.Semaphore(4)  # a page at a time, so that no consumer waits for all of another's
        await side_by_side(*(self._remind(row["name"], turns) for row in names))

    async def _remind(self, consumer: str, turns: asyncio.Semaphore) -> None:
        last: str | None = ""
        while last is not None:
            async with turns:
                rows = await pool_of(self._database).fetch(
                    "SELECT id FROM resources WHERE consumer_name = $1 AND id > $2 AND due_at IS NULL"
                    " AND deleted_at IS NULL ORDER BY id LIMIT $3",
                    *(consumer, last, PAGE),
                )
                for bundle in await self._bundles.some([row["id"] for row in rows]):
                    await self._delivery.offer_patiently(bundle, RESYNC_RESPONSE)
            last = rows[-1]["id"] if rows else None

    async def ask_everyone(self, among: Collection[str] | None = None) -> None:
        """After a new session with the broker, or of new consumers: which statuses have changed since ours?

        A message for one consumer that the broker does not take keeps nobody else from being asked. Raises
        NotPublished when the broker is away.
        """
        names = left = [name for name in await self._consumers.names() if among is None or name in among]
        backoff = Backoff(0.1, LONGEST_PAUSE)
        for turn in range(ROUNDS):
            if turn:
                await backoff.pause()
            left = [name for name in left if not await self._asked(name)]
            if not left:
                break
        else:
            log.warning("agents could not be asked for their statuses", extra={"consumers": ",".join(left[:20])})
        log.info("agents were asked for their statuses", extra={"consumers": len(names) - len(left)})

    async def _asked(self, consumer: str) -> bool:
        rows = await pool_of(self._database).fetch(
            "SELECT id, status_hash FROM resources WHERE consumer_name = $1 ORDER BY id", consumer
        )
        hashes = [(row["id"], row["status_hash"] or NO_STATUS) for row in rows]
        try:
            for event in protocol.status_resync_events(self._source_id, consumer, hashes):
                await self._publish(event)
        except NotPublished as error:
            if not self._connected():
                raise
            log.warning("an agent is not asked yet", extra={"consumer": consumer, "reason": str(error)})
            return False
        return True

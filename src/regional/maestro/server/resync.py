"""Both resyncs, seen from the server: what an agent lacks is sent to it, and agents are asked for what we lack."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from regional.core.database import Database
from regional.core.mqtt import NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.bundles import ResourceVersions, decode_data
from regional.maestro.protocol.canonical import NO_STATUS
from regional.maestro.protocol.events import RESYNC_RESPONSE, Event, timestamp
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import pool_of
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.delivery import PAGE, Delivery, Publish

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
        self._database = database
        self._bundles, self._consumers, self._delivery, self._publish = bundles, consumers, delivery, publish
        self._source_id, self._keep_unknown, self._connected = source_id, keep_unknown, connected

    async def answer(self, event: Event) -> None:
        """Everything being deleted, everything older at the agent, and the end of what nobody knows here.

        Without a single bundle for the consumer nothing is answered: rather a stale work at the agent than an empty
        database that deletes what its agents run.
        """
        versions: ResourceVersions = decode_data(event.data or b"{}", ResourceVersions)
        reported = {found.resource_id: found.version for found in versions.resource_versions or []}
        first, until = event.extensions.get("resyncfrom", ""), event.extensions.get("resyncuntil", "")
        rows = await pool_of(self._database).fetch(
            "SELECT id, version, deleted_at IS NOT NULL AS deleting FROM resources WHERE consumer_name = $1"
            " AND id >= $2 AND ($3 = '' OR id < $3)",
            *(event.consumer, first, until),
        )
        known = {row["id"] for row in rows}
        lacking = [row["id"] for row in rows if row["deleting"] or row["version"] > reported.get(row["id"], 0)]
        for start in range(0, len(lacking), PAGE):
            for bundle in await self._bundles.some(lacking[start : start + PAGE]):
                await self._delivery.offer_patiently(bundle, RESYNC_RESPONSE)
        strangers = [found for found in reported if found not in known]
        ended = await self._end(event.consumer, strangers, reported)
        log.info(
            "spec resync answered",
            extra={
                "consumer": event.consumer,
                "reported": len(reported),
                "sent": len(lacking),
                "ended": ended,
                "unknown": len(strangers) - ended,
            },
        )

    async def _end(self, consumer: str, strangers: list[str], reported: dict[str, int]) -> int:
        """Tell the agent that these works are over: those whose deletion we remember, and, by the contract, others."""
        if not strangers:
            return 0
        pool = pool_of(self._database)
        ending = await self._remembered(consumer, strangers)
        if not self._keep_unknown and await pool.fetchval(
            "SELECT EXISTS (SELECT 1 FROM resources WHERE consumer_name = $1)", consumer
        ):
            ending |= set(strangers)
        ended = 0
        for resource_id in sorted(ending):
            ended += await self._publish_end(consumer, resource_id, reported[resource_id], RESYNC_RESPONSE)
        return ended

    async def _remembered(self, consumer: str, ids: list[str]) -> set[str]:
        rows = await pool_of(self._database).fetch(
            "SELECT t.id FROM tombstones t WHERE t.id = ANY($1) AND t.consumer_name = $2"
            " AND NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = t.id)",
            *(ids, consumer),
        )
        return {row["id"] for row in rows}

    async def end_strays(self, consumer: str, reported: dict[str, int]) -> None:
        """Statuses came of bundles that were deleted for good: a late message has brought them back to life."""
        for resource_id in sorted(await self._remembered(consumer, list(reported))):
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

    async def ask_everyone(self) -> None:
        """After a new session with the broker: which statuses have changed since ours?

        A message for one consumer that the broker does not take keeps nobody else from being asked. Raises
        NotPublished when the broker is away.
        """
        names = left = await self._consumers.names()
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

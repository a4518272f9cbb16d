"""Agents that speak only when something changes.

Ours say every minute that they live, and answer a spec that comes once more with its status. The Go Maestro's do
neither: a status that the broker has lost would stay unsaid, and a cluster where nothing changes would look dead. What
they do answer is a status resync, with each status whose hash is not the one named. So they are asked: for what is sent
again and again without being confirmed, and, after a silence, for one status under a hash that no status has.

Their answers are what they had when they were asked, sent at 50 a second and each with a new sequence id: by then it
may be an older status than one that came before it. So what they have answered is asked for once more, under the hash
of that answer; one that still holds is not sent again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Collection

from regional.core.database import Database, still_wanted
from regional.core.mqtt import NO_SUBSCRIBERS, NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol.bundles import status_resync_events
from regional.maestro.protocol.canonical import NO_STATUS
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.delivery import Publish
from regional.maestro.server.model import SILENT

log = logging.getLogger(__name__)

ASK_SECONDS = 20.0
QUIET_SECONDS = 60.0
MOST_ASKED = 2000
MOST_DOUBTED = 100_000

# Our agents say their version with each resync.
_QUIET = """
SELECT name, coalesce(last_seen_at < now() - interval '1 second' * $2, true) AS silent,
    coalesce(last_seen_at > now() - $3::interval, false) AS lately
FROM consumers WHERE name = ANY($1) AND coalesce(agent_version, '') = ''
"""
_UNCONFIRMED = """
SELECT consumer_name, id, status_hash FROM resources
WHERE due_at IS NOT NULL AND deleted_at IS NULL AND attempts > 0 AND consumer_name = ANY($1)
ORDER BY due_at LIMIT $2
"""
_ANSWERED = """
SELECT r.consumer_name, r.id, r.status_hash FROM resources r
WHERE r.id = ANY($1) AND r.consumer_name = ANY($2) AND r.deleted_at IS NULL
"""
# Each in its turn: what an agent has lost comes to light too.
_NEXT = """
SELECT q.name, r.id FROM unnest($1::text[], $2::text[]) AS q (name, after) CROSS JOIN LATERAL (
    (SELECT 1 AS turn, id FROM resources WHERE consumer_name = q.name AND deleted_at IS NULL AND id > q.after
        ORDER BY id LIMIT 1)
    UNION ALL
    (SELECT 2, id FROM resources WHERE consumer_name = q.name AND deleted_at IS NULL ORDER BY id LIMIT 1)
    ORDER BY turn LIMIT 1
) AS r
"""


class Quiet:
    def __init__(
        self,
        database: Database,
        publish: Publish,
        source_id: str,
        *,
        held: Callable[[], Collection[str]],
        nobody_listens: Callable[[str], None],
    ) -> None:
        self._database, self._publish, self._source_id = database, publish, source_id
        self._held, self._nobody_listens = held, nobody_listens
        self._last: dict[str, str] = {}
        self._answered: set[str] = set()

    def answered(self, bundle_id: str) -> None:
        """A status was stored that its agent had been asked for."""
        if len(self._answered) < MOST_DOUBTED:  # the rest comes up in its turn
            self._answered.add(bundle_id)

    async def keep_asking(self) -> None:
        backoff = Backoff(0.1, 2.0)
        while True:
            await asyncio.sleep(ASK_SECONDS)  # first of all: a new server has asked everyone just now
            try:
                for consumer, hashes in (await self._questions()).items():
                    await self._ask(consumer, hashes)
                backoff.reset()
            except FAILURES:
                still_wanted()
                await backoff.pause()

    async def _questions(self) -> dict[str, dict[str, str]]:
        """What to name to each consumer: ids of bundles, and the hashes that we have."""
        pool = pool_of(self._database)
        rows = await pool.fetch(_QUIET, list(self._held()), QUIET_SECONDS, SILENT)
        asked: dict[str, dict[str, str]] = defaultdict(dict)
        # Whoever is away for long is only asked whether it is back.
        lately = [row["name"] for row in rows if row["lately"]]
        for row in await pool.fetch(_UNCONFIRMED, lately, MOST_ASKED) if lately else ():
            asked[row["consumer_name"]][row["id"]] = row["status_hash"] or NO_STATUS
        doubted = list(itertools.islice(self._answered, MOST_ASKED))
        for row in await pool.fetch(_ANSWERED, doubted, [row["name"] for row in rows]) if doubted and rows else ():
            asked[row["consumer_name"]][row["id"]] = row["status_hash"] or NO_STATUS
        self._answered.difference_update(doubted)
        silent = [row["name"] for row in rows if row["silent"]]
        after = [self._last.get(name, "") for name in silent]
        for row in await pool.fetch(_NEXT, silent, after) if silent else ():
            self._last[row["name"]] = row["id"]
            asked[row["name"]][row["id"]] = NO_STATUS
        return asked

    async def _ask(self, consumer: str, hashes: dict[str, str]) -> None:
        try:
            for event in status_resync_events(self._source_id, consumer, sorted(hashes.items())):
                if await self._publish(event) == NO_SUBSCRIBERS:
                    self._nobody_listens(consumer)
        except NotPublished as error:  # a new session asks everyone anyway
            log.debug("an agent is not asked", extra={"consumer": consumer, "reason": str(error)})

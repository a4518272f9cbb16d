"""What a replica accepts for a consumer that another one holds is passed on to that one.

A word is enough: the bundle is in the database. A word that is lost costs seconds, because what nobody confirms is due
again soon, and the holder's scan finds it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging

from regional.core.database import Database, still_wanted
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.delivery import Delivery
from regional.maestro.server.leases import HANDOVER, Leases
from regional.maestro.server.model import Bundle

log = logging.getLogger(__name__)

LONGEST = 4000  # of a notification that PostgreSQL takes, there are 8000
BATCH = 100
MOST = 10_000  # that wait either way; the scan finds the others


class Handover:
    def __init__(self, database: Database, bundles: Bundles, delivery: Delivery) -> None:
        self._database, self._bundles, self._delivery = database, bundles, delivery
        self._leases: Leases | None = None
        self._leaving: dict[str, None] = {}
        self._arriving: dict[str, None] = {}
        self._wake = asyncio.Event()

    def among(self, leases: Leases) -> None:
        self._leases = leases

    def offer(self, bundle: Bundle) -> bool:
        if self._leases is None or not self._leases.elsewhere(bundle.consumer_name):
            return self._delivery.offer(bundle)
        word = f"{bundle.consumer_name} {bundle.id}"
        if len(word.encode()) <= LONGEST:
            self._note(self._leaving, word)
        return True

    def arrived(self, word: str) -> None:
        consumer, _, bundle_id = word.partition(" ")
        if self._leases is not None and consumer in self._leases.held:
            self._note(self._arriving, bundle_id)

    def _note(self, waiting: dict[str, None], word: str) -> None:
        if len(waiting) < MOST:
            waiting[word] = None
            self._wake.set()

    async def keep_passing_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._pass_on()
            except FAILURES as error:
                still_wanted()
                log.debug("bundles are left to the scan", extra={"reason": str(error)})

    async def _pass_on(self) -> None:
        while self._leaving or self._arriving:
            leaving, arriving = _some(self._leaving), _some(self._arriving)
            if leaving:
                await pool_of(self._database).execute(
                    "SELECT pg_notify($1, word) FROM unnest($2::text[]) AS word", HANDOVER, leaving
                )
            for bundle in await self._bundles.some(arriving) if arriving else ():
                self._delivery.offer(bundle)


def _some(waiting: dict[str, None]) -> list[str]:
    chosen = list(itertools.islice(waiting, BATCH))
    for word in chosen:
        del waiting[word]
    return chosen

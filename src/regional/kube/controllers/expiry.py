"""Events live an hour. Listed now and then instead of watched: they are many, and nobody waits for their end."""

from __future__ import annotations

import logging
from datetime import timedelta

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context
from regional.kube.objects import Obj, created_at, name_of, namespace_of, parse_time, uid_of

log = logging.getLogger(__name__)
ROUNDS_PER_TTL = 12
PAGE_PAUSE = 0.01


class EventExpiry:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        ttl = self._context.settings.event_ttl_seconds
        while True:
            await self._context.clock.sleep(ttl / ROUNDS_PER_TTL)
            try:
                await self.sweep()
            except ApiError as error:
                log.info("events not swept", extra={"reason": str(error)})

    async def sweep(self) -> int:
        client = self._context.client
        oldest = self._context.clock.now() - timedelta(seconds=self._context.settings.event_ttl_seconds)
        expired = [event for event in await client.list("v1", "Event") if _last_seen(event) < oldest.timestamp()]
        for position, event in enumerate(expired):
            try:
                await client.delete("v1", "Event", name_of(event), namespace_of(event), uid=uid_of(event))
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            if position % 20 == 19:
                await self._context.clock.sleep(PAGE_PAUSE)
        return len(expired)


def _last_seen(event: Obj) -> float:
    series = (event.get("series") or {}).get("lastObservedTime")
    moments = [parse_time(text) for text in (series, event.get("lastTimestamp"), event.get("eventTime"))]
    moment = next((m for m in moments if m is not None), None) or created_at(event)
    return moment.timestamp() if moment is not None else 0.0

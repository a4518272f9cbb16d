"""Statuses on their way to the server: built from what is seen on the cluster, sent when they differ from the last.

One at a time for each work, so that sequence ids and contents cannot cross. What the broker did not take, or nobody
listened to, stays due.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import prometheus_client

from regional.core.clock import rfc3339
from regional.core.mqtt import NO_SUBSCRIBERS, NotPublished
from regional.core.reconcile import WorkQueue, run_workers
from regional.kube.objects import Obj
from regional.maestro.agent import status
from regional.maestro.agent.feedback import LARGEST_RAW
from regional.maestro.agent.options import option_for
from regional.maestro.agent.tracker import Tracker
from regional.maestro.agent.works import Ref, Work, Works
from regional.maestro.protocol.bundles import LARGEST_BUNDLE, status_event
from regional.maestro.protocol.canonical import NO_STATUS, status_hash
from regional.maestro.protocol.events import Event, timestamp
from regional.maestro.protocol.sequence import SequenceIds

log = logging.getLogger(__name__)

SPACING = 0.02  # between two statuses of one work: an object that changes quickly is told of as it is then
UNHEARD_SECONDS = 5.0
_sent = prometheus_client.Counter("maestro_agent_statuses_total", "Statuses sent, by the broker's answer", ["answer"])

Publish = Callable[[Event], Awaitable[int]]


class Reporter:
    def __init__(
        self,
        works: Works,
        tracker: Tracker,
        publish: Publish,
        *,
        consumer: str,
        agent_id: str,
        told: Callable[[Work], None] = lambda _: None,
        largest: int = LARGEST_BUNDLE,
    ) -> None:
        """`told` hears of each work whose status was sent, if it is still to be there as it was then."""
        self._works, self._tracker, self._publish = works, tracker, publish
        self._consumer, self._agent_id, self._told, self._largest = consumer, agent_id, told, largest
        self._sequence = SequenceIds()
        self._sequence.above(max((work.sequence for work in works), default=0))
        self._queue: WorkQueue[str] = WorkQueue(base=0.1, cap=5.0)
        self._locks: dict[str, asyncio.Lock] = {}
        self._last: dict[str, float] = {}

    def due(self, work_id: str) -> None:
        self._queue.add(work_id)

    def server_has(self, sequence: int) -> None:
        self._sequence.above(sequence)

    async def keep_reporting(self) -> None:
        await run_workers("status", self._queue, self._report, workers=8)

    async def _report(self, work_id: str) -> float | None:
        work = self._works.get(work_id)
        if work is None or work.outcome is None or work.deletion:
            return None  # a deletion is reported step by step by whoever carries it out
        if work.outcome.generation != work.generation:
            return None  # its status comes as soon as it was tried
        since = time.monotonic() - self._last.get(work_id, 0.0)
        if since < SPACING:
            return SPACING - since
        self.refresh(work)
        try:
            return await self.send(work)
        except NotPublished as error:
            log.info("status waits for the broker", extra={"resource": work.id, "reason": str(error)})
            return 1.0

    def refresh(self, work: Work) -> None:
        """The status of the newest generation that was tried, as things are now."""
        outcome, bundle = work.outcome, work.bundle
        if outcome is None or bundle is None:
            return
        now = rfc3339(datetime.now(UTC))
        former = {found["resourceMeta"]["ordinal"]: found for found in work.resource_status}
        resources = []
        for ordinal, result in enumerate(outcome.results):
            before = former.get(ordinal)
            if before is not None and before["resourceMeta"]["name"] != result.ref.name:
                before = None
            option = option_for(result.ref, bundle.manifest_configs)
            resources.append(
                status.manifest_status(
                    ordinal,
                    result,
                    option,
                    outcome.generation,
                    before,
                    self._look,
                    now,
                    min(LARGEST_RAW, self._largest),
                )
            )
        work.conditions = status.work_conditions(outcome, resources, work.conditions, now)
        work.resource_status = status.fitting(resources, work.resource_status, self._largest, now)

    def _look(self, ref: Ref) -> tuple[bool, Obj | None]:
        return self._tracker.knows(ref), self._tracker.live(ref)

    def hash_of(self, work: Work) -> str:
        if not work.conditions and not work.resource_status:
            return NO_STATUS
        return status_hash(work.conditions, work.resource_status)

    async def send(self, work: Work) -> float | None:
        """Raises NotPublished. The seconds after which to send again if nobody listened."""
        async with self._locks.setdefault(work.id, asyncio.Lock()):
            digest = self.hash_of(work)
            if digest == work.sent_hash and not work.status_due:
                return None
            version = work.generation if work.deletion or work.outcome is None else work.outcome.generation
            resync, work.status_due, work.resync = work.resync, False, False
            work.sequence = self._sequence.next()
            event = status_event(
                source=self._agent_id,
                consumer=self._consumer,
                original_source=work.source,
                resource_id=work.id,
                version=version,
                sequence=work.sequence,
                hash=digest,
                conditions=work.conditions,
                resource_status=work.resource_status,
                metadata=msgspec.json.encode(work.object_meta(self._consumer), order="sorted").decode(),
                request_id=work.request_id,
                time=timestamp(datetime.now(UTC)),
                resync=resync,
            )
            self._last[work.id] = time.monotonic()
            try:
                code = await self._publish(event)
            except NotPublished as error:
                _sent.labels("refused" if error.code else "lost").inc()
                work.status_due, work.resync = True, resync
                raise
            heard = code != NO_SUBSCRIBERS
            _sent.labels("taken" if heard else "no subscriber").inc()
            work.sent_hash = digest if heard else ""
            if self._works.get(work.id) is work and not work.deletion:
                self._told(work)
            log.info("status sent", extra=self._about(work, version, heard))
            return None if heard else UNHEARD_SECONDS

    def _about(self, work: Work, version: int, heard: bool) -> dict[str, object]:
        true = [found["type"] for found in work.conditions if found["status"] == "True"]
        return {
            "resource": work.id,
            "version": version,
            "true": ",".join(true),
            "heard": heard,
            "since_received": round(time.monotonic() - work.received, 4),
            "request_id": work.request_id,
        }

    def forget(self, work_id: str) -> None:
        self._locks.pop(work_id, None)
        self._last.pop(work_id, None)

"""Bundles on their way to their agents: a lane per consumer, at most one message of a bundle under way at a time.

What is accepted is sent at once. While a bundle waits for its turn or for the broker's answer, a newer version takes
the place of the older one. PUBACK says that the broker has it, not that the agent has: that is known only from the
version in a status. Until then the row stays due, and a scan sends it again, ever less often; so nothing that is in
here has to survive this process.

Deletes have a queue of their own in each lane and take turns with the rest: a flood of them delays no create.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
import prometheus_client

from regional.core.database import still_wanted
from regional.core.mqtt import NO_SUBSCRIBERS, NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol.events import Event
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.model import Bundle, spec_event

log = logging.getLogger(__name__)

WINDOW = 32  # messages of one consumer that the broker has not answered yet
LANE = 256  # bundles that wait in one lane; more stay in the database, where the scan finds them
QUEUE_BYTES = 64 * 1024 * 1024  # of all lanes together; a lane that is shorter than its window always has room
PAGE = 100
BACKLOG_SECONDS = 5.0
SCAN_SECONDS = 1.0
LONGEST_PAUSE = 300.0
NOBODY_LISTENS = "no agent is subscribed to the consumer's topic"
_published = prometheus_client.Counter(
    "maestro_server_published_total", "Spec events sent, by the broker's answer", ["answer"]
)
_waiting = prometheus_client.Gauge(
    "maestro_server_unconfirmed_bundles", "Bundles whose newest version no agent has confirmed"
)
_oldest = prometheus_client.Gauge("maestro_server_oldest_unconfirmed_seconds", "How long the oldest of them has waited")

Publish = Callable[[Event], Awaitable[int]]


class Entry(msgspec.Struct):
    bundle: Bundle
    action: str = ""
    offered: float = msgspec.field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return len(self.bundle.spec)


class Lane:
    def __init__(self) -> None:
        self.specs: OrderedDict[str, Entry] = OrderedDict()
        self.deletes: OrderedDict[str, Entry] = OrderedDict()
        self.under_way: dict[str, Entry | None] = {}
        """Bundles whose message is not answered; with the newer one that waits for that."""
        self.turn = False
        self.note = ""
        """Why the last message did not reach an agent; "" if it may have."""
        self.bytes = 0
        """What waits, not what is under way: that is bounded by the window."""
        self.drained = asyncio.Event()

    def put(self, entry: Entry) -> None:
        bundle = entry.bundle
        queue, others = (self.deletes, self.specs) if bundle.deleted_at else (self.specs, self.deletes)
        if (other := others.get(bundle.id)) is not None:
            if _newer(other, entry) is other:
                return
            self.bytes -= others.pop(bundle.id).size
        known = queue.get(bundle.id)
        queue[bundle.id] = kept = _newer(known, entry)
        self.bytes += kept.size - (known.size if known else 0)

    def next(self) -> Entry | None:
        self.turn = not self.turn
        for queue in (self.specs, self.deletes) if self.turn else (self.deletes, self.specs):
            if queue:
                entry = queue.popitem(last=False)[1]
                self.bytes -= entry.size
                return entry
        return None

    def holds(self, bundle: Bundle) -> bool:
        return bundle.id in (self.deletes if bundle.deleted_at else self.specs)

    def __len__(self) -> int:
        return len(self.specs) + len(self.deletes)


class Delivery:
    def __init__(self, bundles: Bundles, publish: Publish, source_id: str) -> None:
        self._bundles, self._publish, self._source_id = bundles, publish, source_id
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def offer(self, bundle: Bundle, action: str = "") -> bool:
        """Send it as soon as its lane allows. False if there is no room: it stays due in the database."""
        lane = self._lanes.setdefault(bundle.consumer_name, Lane())
        entry = Entry(bundle, action)
        if bundle.id in lane.under_way:
            lane.under_way[bundle.id] = _newer(lane.under_way[bundle.id], entry)
            return True
        if not lane.holds(bundle) and not self._has_room(lane):
            return False
        lane.put(entry)
        self._pump(lane)
        return True

    def _has_room(self, lane: Lane) -> bool:
        """A lane that is full, or many of them, must not keep a short one waiting."""
        if len(lane) < WINDOW:
            return True
        return len(lane) < LANE and sum(found.bytes for found in self._lanes.values()) < QUEUE_BYTES

    async def offer_patiently(self, bundle: Bundle, action: str = "") -> None:
        while not self.offer(bundle, action):
            lane = self._lanes[bundle.consumer_name]
            lane.drained.clear()
            await lane.drained.wait()

    def note(self, consumer: str) -> str:
        lane = self._lanes.get(consumer)
        return lane.note if lane is not None else ""

    def heard_of(self, consumer: str) -> None:
        """Its agent has just spoken, so whatever kept messages from it is over."""
        lane = self._lanes.get(consumer)
        if lane is not None:
            lane.note = ""

    def _pump(self, lane: Lane) -> None:
        while not self._closed and len(lane.under_way) < WINDOW and (entry := lane.next()) is not None:
            lane.under_way[entry.bundle.id] = None
            task = asyncio.create_task(self._send(lane, entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(lane) < WINDOW:
            lane.drained.set()

    async def _send(self, lane: Lane, entry: Entry) -> None:
        bundle = entry.bundle
        try:
            code = await self._publish(spec_event(bundle, self._source_id, entry.action))
        except NotPublished as error:
            _published.labels("refused" if error.code else "lost").inc()
            lane.note = f"not sent: {error}"
            log.warning("not published", extra=_about(bundle, reason=str(error)))
        else:
            _published.labels("no subscriber" if code == NO_SUBSCRIBERS else "taken").inc()
            lane.note = NOBODY_LISTENS if code == NO_SUBSCRIBERS else ""
            ms = round((time.monotonic() - entry.offered) * 1000, 3)
            subscribed = code != NO_SUBSCRIBERS
            log.info("published", extra=_about(bundle, span="maestro.publish", ms=ms, subscribed=subscribed))
        finally:
            newer = lane.under_way.pop(bundle.id, None)
            if newer is not None:
                self.offer(newer.bundle, newer.action)
            self._pump(lane)

    # -- what nobody has confirmed -----------------------------------------------------------------------------------

    async def keep_scanning(self) -> None:
        """Behind every message: what is due is sent again."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                full = False
                for deletes in (False, True):
                    due = await self._bundles.claim_due(LONGEST_PAUSE, PAGE, deletes=deletes)
                    for bundle in due:
                        self.offer(bundle)
                    full = full or len(due) == PAGE
                backoff.reset()
                await asyncio.sleep(SCAN_SECONDS / 10 if full else SCAN_SECONDS)
            except FAILURES:
                still_wanted()
                await backoff.pause()

    async def keep_counting(self) -> None:
        while True:
            try:
                waiting, oldest = await self._bundles.backlog()
                _waiting.set(waiting)
                _oldest.set(oldest)
            except FAILURES:
                still_wanted()
            await asyncio.sleep(BACKLOG_SECONDS)

    async def catch_up(self) -> None:
        """A new session with the broker: everything that is not confirmed is sent now, due or not.

        Each consumer by itself: one with a long queue does not keep the others waiting.
        """
        consumers = await self._bundles.unconfirmed_consumers()
        several = asyncio.Semaphore(4)

        async def catch_up(consumer: str) -> int:
            async with several:
                return await self._catch_up(consumer)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(catch_up(consumer)) for consumer in consumers]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # whoever asked knows what to do about each kind
        if sent := sum(task.result() for task in tasks):
            log.info("unconfirmed bundles sent again", extra={"bundles": sent, "consumers": len(consumers)})

    async def _catch_up(self, consumer: str) -> int:
        sent = 0
        for deletes in (False, True):
            last = ""
            while page := await self._bundles.unconfirmed_after(consumer, last, PAGE, deletes=deletes):
                for bundle in page:
                    await self.offer_patiently(bundle)
                last = page[-1].id
                sent += len(page)
        return sent

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _newer(first: Entry | None, second: Entry) -> Entry:
    """The higher version, and of one version its deletion: that is final, unless the bundle was made anew since."""
    if first is None:
        return second
    one, other = (first.bundle.version, first.bundle.deleted_at is not None), second.bundle
    return first if one > (other.version, other.deleted_at is not None) else second


def _about(bundle: Bundle, **more: object) -> dict[str, object]:
    about: dict[str, object] = {
        "resource": bundle.id,
        "consumer": bundle.consumer_name,
        "version": bundle.version,
        "request_id": bundle.request_id,
    }
    return about | ({"deleting": True} if bundle.deleted_at else {}) | more

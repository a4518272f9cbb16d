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
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

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
PACED_WINDOW = 4  # where the broker takes so many a second: what waits in a lane can still be replaced by newer
LANE = 256  # that wait in either queue of one lane; more stay in the database, where the scan finds them
QUEUE_BYTES = 64 * 1024 * 1024  # of all lanes together; a queue that is shorter than its window always has room
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
T = TypeVar("T")


class Entry(msgspec.Struct):
    bundle: Bundle
    action: str = ""
    offered: float = msgspec.field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return len(self.bundle.spec)


class Waiting:
    """What waits in all lanes together; asked for with each offer, so it is not added up each time."""

    bytes = 0


class Lane:
    def __init__(self, waiting: Waiting) -> None:
        self.specs: OrderedDict[str, Entry] = OrderedDict()
        self.deletes: OrderedDict[str, Entry] = OrderedDict()
        self.under_way: dict[str, Entry | None] = {}
        """Bundles whose message is not answered; with the newer one that waits for that."""
        self.turn = False
        self.note = ""
        """Why the last message did not reach an agent; "" if it may have."""
        self._waiting = waiting
        """Not what is under way: that is bounded by the window."""
        self.drained = asyncio.Event()

    def put(self, entry: Entry) -> None:
        bundle = entry.bundle
        queue, others = (self.deletes, self.specs) if bundle.deleted_at else (self.specs, self.deletes)
        if (other := others.get(bundle.id)) is not None:
            if _newer(other, entry) is other:
                return
            self._waiting.bytes -= others.pop(bundle.id).size
        known = queue.get(bundle.id)
        queue[bundle.id] = kept = _newer(known, entry)
        self._waiting.bytes += kept.size - (known.size if known else 0)

    def next(self) -> Entry | None:
        self.turn = not self.turn
        for queue in (self.specs, self.deletes) if self.turn else (self.deletes, self.specs):
            if queue:
                entry = queue.popitem(last=False)[1]
                self._waiting.bytes -= entry.size
                return entry
        return None

    def queue_of(self, bundle: Bundle) -> OrderedDict[str, Entry]:
        return self.deletes if bundle.deleted_at else self.specs


class Delivery:
    def __init__(
        self,
        bundles: Bundles,
        publish: Publish,
        source_id: str,
        nobody_listens: Callable[[str], None] = lambda _: None,
        held: Callable[[], Collection[str] | None] = lambda: None,
        window: Callable[[], int] = lambda: WINDOW,
    ) -> None:
        """`nobody_listens` hears of consumers whose topic has no subscriber; `held` are those to look after, or all."""
        self._bundles, self._publish, self._source_id = bundles, publish, source_id
        self._nobody_listens, self._held, self._window = nobody_listens, held, window
        self._bytes = Waiting()
        self._lanes: defaultdict[str, Lane] = defaultdict(lambda: Lane(self._bytes))
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def offer(self, bundle: Bundle, action: str = "") -> bool:
        """Send it as soon as its lane allows. False if there is no room: it stays due in the database."""
        lane = self._lanes[bundle.consumer_name]
        entry = Entry(bundle, action)
        if bundle.id in lane.under_way:
            lane.under_way[bundle.id] = _newer(lane.under_way[bundle.id], entry)
            return True
        queue = lane.queue_of(bundle)
        if bundle.id not in queue and not self._has_room(queue):
            return False
        lane.put(entry)
        self._pump(lane)
        return True

    def _has_room(self, queue: OrderedDict[str, Entry]) -> bool:
        """Queues that are full must not keep a short one waiting, neither other lanes' nor that of the deletes."""
        if len(queue) < WINDOW:
            return True
        return len(queue) < LANE and self._bytes.bytes < QUEUE_BYTES

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
        while not self._closed and len(lane.under_way) < self._window() and (entry := lane.next()) is not None:
            lane.under_way[entry.bundle.id] = None
            task = asyncio.create_task(self._send(lane, entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if min(len(lane.specs), len(lane.deletes)) < WINDOW:
            lane.drained.set()  # who waits for the other queue looks in vain, and waits on

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
            if lane.note:
                self._nobody_listens(bundle.consumer_name)
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
                held = self._held()
                for deletes in (False, True):
                    some = None if held is None else [name for name in held if self._takes_page(name, deletes=deletes)]
                    if some == []:
                        continue
                    due = await self._bundles.claim_due(LONGEST_PAUSE, PAGE, some, deletes=deletes)
                    for bundle in due:
                        self.offer(bundle)
                    full = full or len(due) == PAGE
                backoff.reset()
                await asyncio.sleep(SCAN_SECONDS / 10 if full else SCAN_SECONDS)
            except FAILURES:
                still_wanted()
                await backoff.pause()

    def _takes_page(self, consumer: str, *, deletes: bool) -> bool:
        """What is claimed counts as sent, so only what finds room is claimed: others wait where they are, in turn."""
        lane = self._lanes.get(consumer)
        return lane is None or len(lane.deletes if deletes else lane.specs) <= LANE - PAGE

    async def keep_counting(self) -> None:
        while True:
            try:
                waiting, oldest = await self._bundles.backlog()
                _waiting.set(waiting)
                _oldest.set(oldest)
            except FAILURES:
                still_wanted()
            await asyncio.sleep(BACKLOG_SECONDS)

    async def catch_up(self, among: Collection[str] | None = None) -> None:
        """A new session with the broker, or new consumers: everything not confirmed is sent now, due or not.

        Consumers take turns, a page at a time: those with long queues do not keep the others waiting.
        """
        consumers = [name for name in await self._bundles.unconfirmed_consumers() if among is None or name in among]
        turns = asyncio.Semaphore(4)  # in the order of those who wait
        if sent := sum(await side_by_side(*(self._catch_up(consumer, turns) for consumer in consumers))):
            log.info("unconfirmed bundles sent again", extra={"bundles": sent, "consumers": len(consumers)})

    async def _catch_up(self, consumer: str, turns: asyncio.Semaphore) -> int:
        sent = 0
        for deletes in (False, True):
            last: str | None = ""
            while last is not None:
                async with turns:
                    page = await self._bundles.unconfirmed_after(consumer, last, PAGE, deletes=deletes)
                    for bundle in page:
                        await self.offer_patiently(bundle)
                last = page[-1].id if page else None
                sent += len(page)
        return sent

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def side_by_side(*works: Coroutine[Any, Any, T]) -> list[T]:
    """What comes of each. Of failures the first one: whoever asked knows what to do about each kind."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


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

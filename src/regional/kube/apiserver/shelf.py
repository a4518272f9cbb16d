"""All objects of one resource, in order, with the recent past: what lists, pages and watches are answered from.

The past is a ring of events. It serves watches that resume (`after`), and it can be undone from the present to give
the state at an earlier revision (`at`), so that the pages of a long list agree with each other.
"""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from regional.kube.apiserver.entries import Entry, Key

RING_EVENTS = 1_000
RING_LIMIT = 10_000
RING_SECONDS = 75.0
RENDERED_EVENTS = 64  # events whose lines are kept for the watchers to come
RING_BYTES = 32 << 20  # of objects; a few large ones that change all the time must not fill the memory
RING_LEAST = 100  # events kept however large they are
QUEUE_LIMIT = 10_000


class Event(msgspec.Struct, frozen=True, gc=False):  # no cycles, and thousands of them
    """`entry` is the new content, or the last one (with the deletion's revision) if `type` is DELETED."""

    type: str
    revision: int
    entry: Entry
    previous: Entry | None
    moment: float
    rendered: dict[tuple[str, str], bytes]  # (type, apiVersion) → line; filled by the first watcher


class Mailbox:
    """One watcher's queue. It never skips: a consumer that falls too far behind is closed and must list again."""

    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        self.events: deque[Event] = deque()
        self.closed = False
        self.wake: Callable[[], None] = _nobody  # called when there may be something to see
        self._limit = limit

    def offer(self, event: Event) -> None:
        if self.closed:
            return
        if len(self.events) >= self._limit:
            self.close()
            return
        self.events.append(event)
        self.wake()

    def close(self) -> None:
        self.closed = True
        self.wake()


def _nobody() -> None:
    pass


class Shelf:
    def __init__(self, resource: str, floor: int, indexed: tuple[str, ...] = ()) -> None:
        self.resource = resource
        self.entries: dict[Key, Entry] = {}
        self.floor = floor  # every event above this revision is in the ring
        self.undo_floor = floor  # every event above this one also knows the content before it
        self.changed = floor  # revision of the latest event, or the floor
        self._order: list[Key] = []
        self._sorted = True
        self._ring: deque[Event] = deque()
        self._ring_bytes = 0
        self._mailboxes: set[Mailbox] = set()
        self._indexed = indexed
        self._index: dict[tuple[str, str], set[Key]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    # --- present -------------------------------------------------------------------------------------------------

    def put(self, entry: Entry) -> None:
        key = entry.key
        old = self.entries.get(key)
        if old is None:
            if self._sorted:
                bisect.insort(self._order, key)
            else:
                self._order.append(key)
        self.entries[key] = entry
        for field in self._indexed:
            if old is not None:
                self._unindex(field, old)
            self._index.setdefault((field, entry.fields.get(field, "")), set()).add(key)

    def remove(self, key: Key) -> None:
        old = self.entries.pop(key, None)
        if old is None:
            return
        self._arrange()
        del self._order[bisect.bisect_left(self._order, key)]
        for field in self._indexed:
            self._unindex(field, old)

    def _unindex(self, field: str, entry: Entry) -> None:
        place = (field, entry.fields.get(field, ""))
        if (keys := self._index.get(place)) is not None:
            keys.discard(entry.key)
            if not keys:
                del self._index[place]

    def unsorted(self) -> None:
        """While a file is loaded keys come in any order; they are sorted once, at the first need."""
        self._sorted = False

    def _arrange(self) -> None:
        if not self._sorted:
            self._order.sort()
            self._sorted = True

    def keys(self, namespace: str = "", start: Key = ("", "")) -> list[Key]:
        """Keys from `start` on, in byte order, of one namespace or of all."""
        self._arrange()
        first = max(start, (namespace, "")) if namespace else start
        low = bisect.bisect_left(self._order, first)
        high = bisect.bisect_left(self._order, (namespace + "\0", "")) if namespace else len(self._order)
        return self._order[low:high]

    def indexed(self, requirements: dict[str, str]) -> list[Key] | None:
        """Candidates for an equality on an indexed field, in order; None if there is no index for any of them."""
        for field in self._indexed:
            if (value := requirements.get(field)) is not None:
                return sorted(self._index.get((field, value), ()))
        return None

    # --- past ----------------------------------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        self.changed = event.revision
        ring = self._ring
        ring.append(event)
        if len(ring) > RENDERED_EVENTS:  # who is so late renders it again
            ring[-RENDERED_EVENTS].rendered.clear()
        self._ring_bytes += len(event.entry.body)
        while self._too_much(event.moment):
            dropped = ring.popleft()
            self._ring_bytes -= len(dropped.entry.body)
            self.floor = dropped.revision
        self.undo_floor = max(self.undo_floor, self.floor)

    def _too_much(self, now: float) -> bool:
        ring, count = self._ring, len(self._ring)
        if count > RING_EVENTS:
            return count > RING_LIMIT or self._ring_bytes > RING_BYTES or now - ring[0].moment > RING_SECONDS
        return count > RING_LEAST and self._ring_bytes > RING_BYTES

    def publish(self, event: Event) -> None:
        for mailbox in tuple(self._mailboxes):
            mailbox.offer(event)

    def after(self, revision: int) -> Iterator[Event]:
        for event in self._ring:
            if event.revision > revision:
                yield event

    def at(self, revision: int) -> dict[Key, Entry] | None:
        """The entries as they were at that revision; None if the ring does not reach back so far."""
        if revision >= self.changed:
            return self.entries
        if revision < self.undo_floor:
            return None
        past = dict(self.entries)
        for event in reversed(self._ring):
            if event.revision <= revision:
                break
            if event.previous is None:
                past.pop(event.entry.key, None)
            else:
                past[event.entry.key] = event.previous
        return past

    # --- watchers ------------------------------------------------------------------------------------------------

    def subscribe(self, mailbox: Mailbox) -> None:
        self._mailboxes.add(mailbox)

    def unsubscribe(self, mailbox: Mailbox) -> None:
        self._mailboxes.discard(mailbox)

    def close_watches(self) -> None:
        for mailbox in tuple(self._mailboxes):
            mailbox.close()


def event_of(type_: str, revision: int, entry: Entry, previous: Entry | None) -> Event:
    return Event(type_, revision, entry, previous, time.monotonic(), {})

"""Watches: the present (if asked for), then every event in order, bookmarks between, an orderly end.

A stream subscribes before it reads the present, in one step without waiting, so no event can fall between the two.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable

from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import store_name
from regional.kube.apiserver.entries import Entry, Obj, at_revision, encode
from regional.kube.apiserver.errors import StatusError, future_revision, too_old
from regional.kube.apiserver.listoptions import ListOptions, list_options
from regional.kube.apiserver.rendering import Renderer, wrap
from regional.kube.apiserver.selection import Selection, selection_of
from regional.kube.apiserver.shelf import Event, Mailbox, Shelf
from regional.kube.apiserver.store import Store
from regional.kube.messages import Response

BOOKMARK_SECONDS = 60.0
FAREWELL_SECONDS = 2.0  # the last bookmark comes this long before the end
CHUNK_LINES = 500


class Watcher:
    def __init__(self, store: Store, renderer: Renderer) -> None:
        self._store = store
        self._renderer = renderer

    def open(self, call: Call) -> Response:
        options = list_options(call.request, watch=True)
        selection = selection_of(call.request, call.target, call.kind)
        shelf = self._store.shelf(store_name(call.kind))
        headers = {"content-type": "application/json"}
        if (refusal := self._refusal(options, shelf)) is not None:
            return Response(200, headers, _single(wrap("ERROR", encode(refusal.document()))))
        lines = _Lines(call, self._renderer)
        stream = WatchStream(shelf, options, selection, lines, lambda: self._store.revision)
        return Response(200, headers, stream)

    def _refusal(self, options: ListOptions, shelf: Shelf) -> StatusError | None:
        revision = options.revision or 0
        if options.send_initial and revision > self._store.revision:
            return future_revision(revision, self._store.revision)
        if revision and not options.send_initial and revision < shelf.floor:
            return too_old(revision, shelf.floor)
        return None


async def _single(line: bytes) -> AsyncIterator[bytes]:
    yield line


class _Lines:
    """How this watch wants its objects: whole, as Tables (columns only once) or metadata only."""

    def __init__(self, call: Call, renderer: Renderer) -> None:
        self._kind = call.kind
        self._version = call.kind.api_version
        self._renderer = renderer
        self._shape = call.wanted.shape
        self._include = call.request.parameter("includeObject")
        self._first = True

    def of_event(self, type_: str, event: Event, entry: Entry) -> bytes:
        """A plain line is made once for an event and shared by all who watch in the same version."""
        if self._shape != "object" or entry is not event.entry:
            return self.of_entry(type_, entry)
        line = event.rendered.get((type_, self._version))
        if line is None:
            line = event.rendered[type_, self._version] = self.of_entry(type_, entry)
        return line

    def of_entry(self, type_: str, entry: Entry) -> bytes:
        if self._shape == "object":
            return self._renderer.plain_line(type_, self._kind, entry)
        if self._shape == "table":
            line = self._renderer.table_line(type_, self._kind, entry, self._include, first=self._first)
            self._first = False
            return line
        return self._renderer.partial_line(type_, self._kind, entry)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        metadata: Obj = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind, api_version = self._kind.kind, self._kind.api_version
        if self._shape in ("partial", "partials"):
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        document: Obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        if self._shape == "table":
            row = {"cells": [], "object": document}
            document = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [row] if initial_end else [],
            }
        return wrap("BOOKMARK", encode(document))


class WatchStream:
    """Chunks of whole lines: pulled when `notify` says so, or iterated over. `close` lets go of the subscription, also
    before the first chunk."""

    def __init__(
        self, shelf: Shelf, options: ListOptions, selection: Selection, lines: _Lines, revision: Callable[[], int]
    ) -> None:
        self._shelf = shelf
        self._selection = selection
        self._filtered = selection.filtered
        self._lines = lines
        self._revision = revision
        self._bookmarks = options.bookmarks
        self._mailbox = Mailbox()
        self._since = options.revision or 0
        self._initial: deque[Entry] | None = None
        self._announce_end = False
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._deadline = loop.time() + (options.timeout or random.uniform(1800, 3600))
        self._farewell = False
        self._next_bookmark = loop.time() + BOOKMARK_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._begin(options)

    def _begin(self, options: ListOptions) -> None:
        self._shelf.subscribe(self._mailbox)
        wants_present = options.send_initial if options.send_initial is not None else not self._since
        now = self._revision()
        if wants_present:
            self._initial = deque(self._selection.entries(self._shelf))
            self._announce_end = bool(options.send_initial) and options.bookmarks
            self._since = now
        elif self._since:
            for event in self._shelf.after(self._since):
                self._mailbox.offer(event)
        else:
            self._since = now
        self._initial_revision = now
        self._arm()

    def _arm(self) -> None:
        moment = self._deadline
        if self._bookmarks:
            farewell = self._deadline if self._farewell else max(self._deadline - FAREWELL_SECONDS, self._loop.time())
            moment = min(self._next_bookmark, farewell)
        self._timer = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._timer = None
        self._mailbox.wake()

    def notify(self, wake: Callable[[], None]) -> None:
        self._mailbox.wake = wake

    def pull(self) -> bytes | None:
        while True:
            if (chunk := self._initial_chunk()) or (chunk := self._event_chunk()) or (chunk := self._bookmark_chunk()):
                return chunk
            if self._mailbox.events:  # none of those looked at concerned this watch
                continue
            if self._mailbox.closed or self._loop.time() >= self._deadline:
                self.close()
                return None
            if self._timer is None:  # it may ring a moment too early
                self._arm()
            return b""

    @property
    def idle(self) -> bool:
        """Whether another pull, now, would bring nothing."""
        return not self._mailbox.events and self._initial is None and not self._mailbox.closed

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._shelf.unsubscribe(self._mailbox)
        self._mailbox.closed = True

    # --- for those who wait --------------------------------------------------------------------------------------

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        ready = asyncio.Event()
        self.notify(ready.set)
        while (chunk := self.pull()) == b"":
            await ready.wait()
            ready.clear()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        self._mailbox.close()  # whoever still waits sees the end
        self.close()

    # --- what there is -------------------------------------------------------------------------------------------

    def _initial_chunk(self) -> bytes:
        if self._initial is None:
            return b""
        chunk: list[bytes] = []
        while self._initial and len(chunk) < CHUNK_LINES:
            chunk.append(self._lines.of_entry("ADDED", self._initial.popleft()))
        if not self._initial:
            self._initial = None
            if self._announce_end:
                chunk.append(self._lines.bookmark(self._initial_revision, initial_end=True))
        return b"".join(chunk)

    def _event_chunk(self) -> bytes:
        events = self._mailbox.events
        if not events:
            return b""
        chunk: list[bytes] = []
        while events and len(chunk) < CHUNK_LINES:
            event = events.popleft()
            if event.revision > self._since and (line := self._outcome(event)):
                chunk.append(line)
        return b"".join(chunk)

    def _outcome(self, event: Event) -> bytes:
        """What the event is for those who see only the selection; nothing if it does not concern them."""
        entry, before, selection = event.entry, event.previous, self._selection
        if not self._filtered:  # an object does not change its namespace
            inside = not selection.namespace or entry.namespace == selection.namespace
            return self._lines.of_event(event.type, event, entry) if inside else b""
        matched = before is not None and selection.matches(before)
        if event.type == "DELETED":
            gone = matched or (before is None and selection.matches(entry))
            return self._lines.of_event("DELETED", event, entry) if gone else b""
        if selection.matches(entry):
            return self._lines.of_event("MODIFIED" if matched else "ADDED", event, entry)
        if matched and before is not None:
            return self._lines.of_event("DELETED", event, at_revision(before, event.revision))
        return b""

    def _bookmark_chunk(self) -> bytes:
        if not self._bookmarks:
            return b""
        now = self._loop.time()
        farewell = not self._farewell and now >= self._deadline - FAREWELL_SECONDS
        if not farewell and now < self._next_bookmark:
            return b""
        self._farewell = self._farewell or farewell
        self._next_bookmark = now + BOOKMARK_SECONDS
        if self._timer is not None:
            self._timer.cancel()
        self._arm()
        return self._lines.bookmark(self._revision())

"""The cluster's objects: one revision counter, compare-and-swap, and a memory that shows only what is on disk.

A write decides on the latest content of its key, takes the next revision and is handed to `Storage`; readers and
watchers see it once its batch is committed, in revision order. So nothing that anybody saw can be lost by a crash, and
a later write to the same key waits for the earlier one (writes to other keys share its commit).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.kube.apiserver import snapshots
from regional.kube.apiserver.datafile import Damaged
from regional.kube.apiserver.entries import Entry, Key, Obj, decode_body, entry_of, stored_entry
from regional.kube.apiserver.errors import too_large
from regional.kube.apiserver.shelf import Event, Shelf, event_of
from regional.kube.apiserver.storage import Storage, Write

log = logging.getLogger(__name__)

OBJECT_LIMIT = 1_572_864  # etcd's, so that nothing grows here that a real cluster would refuse


class Put(msgspec.Struct):
    """Store this object (the store adds the revision)."""

    obj: Obj


class Remove(msgspec.Struct):
    """Take the object away; `obj` is its last content."""

    obj: Obj


class Keep(msgspec.Struct):
    """Nothing changed: no revision, no event."""

    entry: Entry


Decision = Put | Remove | Keep
Decide = Callable[[Entry | None], Decision]


class SelectableFields(msgspec.Struct, frozen=True):
    """What a resource's selectors may ask for, and the fields among it worth an index."""

    fields: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()


class Store:
    def __init__(self, path: Path, selectable: Callable[[str], SelectableFields], *, exclusive: bool = True) -> None:
        self._storage = Storage(path, exclusive=exclusive)
        self._selectable_of = selectable
        self._selectable: dict[str, SelectableFields] = {}
        self._shelves: dict[str, Shelf] = {}
        self._pending: dict[tuple[str, Key], asyncio.Future[None]] = {}
        self._prepared: dict[int, tuple[Event, asyncio.Future[None]]] = {}
        self._underway: dict[tuple[str, Key], Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observers: list[Callable[[str, Event], None]] = []
        self.revision = self._storage.revision  # the latest that readers may see
        self._next = self.revision + 1
        try:
            self._floor = self._storage.compacted
            self._load()
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            self._storage.close()
            raise snapshots.refusal(path, Damaged(f"an object in it cannot be read: {error}")) from error
        except BaseException:
            self._storage.close()
            raise

    # --- life ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        for resource, namespace, name, revision, uid, body in self._storage.objects():
            shelf = self.shelf(resource)
            shelf.unsorted()
            fields = self._selectable[resource].fields
            shelf.put(stored_entry(namespace, name, revision, uid, body, fields))
        known: dict[tuple[str, Key], Entry] = {}
        for revision, resource, namespace, name, type_, body, before in self._storage.history():
            shelf = self.shelf(resource)
            fields = self._selectable[resource].fields
            entry = entry_of(decode_body(body), fields, body)
            previous = known.get((resource, (namespace, name)))
            if before is not None:
                previous = entry_of(decode_body(before), fields, before)
            elif type_ == "MODIFIED" and previous is None:
                previous = entry  # selectors saw no difference, which is all a watch needs to know
            shelf.record(event_of(type_, revision, entry, previous if type_ != "ADDED" else None))
            known[resource, (namespace, name)] = entry
        for shelf in self._shelves.values():
            shelf.undo_floor = self.revision

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._storage.start(self._committed)

    def close_watches(self) -> None:
        for shelf in self._shelves.values():
            shelf.close_watches()

    def close(self) -> None:
        """Flushes what was written; watches must be closed before, on the loop."""
        self._storage.close()

    @property
    def writable(self) -> bool:
        """Whether the last batch of writes reached the disk."""
        return self._storage.working

    def observe(self, observer: Callable[[str, Event], None]) -> None:
        """Called in revision order with every event, before watchers see it: for caches that must not lag."""
        self._observers.append(observer)

    # --- reading -------------------------------------------------------------------------------------------------

    def shelf(self, resource: str) -> Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            selectable = self._selectable[resource] = self._selectable_of(resource)
            shelf = self._shelves[resource] = Shelf(resource, self._floor, selectable.indexed)
        return shelf

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        shelf = self._shelves.get(resource)
        return None if shelf is None else shelf.entries.get((namespace, name))

    def resources(self) -> list[str]:
        return [name for name, shelf in self._shelves.items() if len(shelf)]

    def selectable(self, resource: str) -> SelectableFields:
        self.shelf(resource)
        return self._selectable[resource]

    def reselect(self, resource: str) -> None:
        """The selectable fields of a resource have changed (its CRD has): read them again from every object."""
        if resource not in self._shelves:
            return
        selectable = self._selectable_of(resource)
        if selectable == self._selectable[resource]:
            return
        self._selectable[resource] = selectable
        shelf = self._shelves[resource]
        for entry in list(shelf.entries.values()):
            shelf.put(entry_of(entry.obj(), selectable.fields, entry.body))

    # --- writing -------------------------------------------------------------------------------------------------

    async def write(self, resource: str, namespace: str, name: str, decide: Decide) -> Entry:
        """`decide` sees the latest content and must not wait. Returns once the decision is on disk."""
        shelf = self.shelf(resource)
        key = (namespace, name)
        place = (resource, key)
        while (pending := self._pending.get(place)) is not None:
            await asyncio.wait([pending])
        live = shelf.entries.get(key)
        decision = decide(live)
        if isinstance(decision, Keep):
            return decision.entry
        event = self._event(resource, live, decision)
        assert self._loop is not None
        done = self._pending[place] = self._loop.create_future()
        self._prepared[event.revision] = (event, done)
        self._underway[place] = event
        self._storage.submit(self._row(resource, event))
        await asyncio.shield(done)  # whoever waits may be cancelled; the write goes on
        return event.entry

    def decided(self, resource: str, namespace: str, name: str) -> Entry | None:
        """The latest content, be it on disk or on its way there: to refuse by, never to show."""
        event = self._underway.get((resource, (namespace, name)))
        if event is None:
            return self.get(resource, namespace, name)
        return None if event.type == "DELETED" else event.entry

    def writing(self, resource: str, key: Key) -> bool:
        """Whether a write to this key has been decided and is not on disk yet."""
        return (resource, key) in self._pending

    async def preview(self, resource: str, namespace: str, name: str, decide: Decide) -> Entry:
        """What `write` would answer, with nothing stored: a dry run."""
        while (pending := self._pending.get((resource, (namespace, name)))) is not None:
            await asyncio.wait([pending])
        decision = decide(self.get(resource, namespace, name))
        if isinstance(decision, Keep):
            return decision.entry
        return entry_of(decision.obj, self.selectable(resource).fields)

    def _event(self, resource: str, live: Entry | None, decision: Put | Remove) -> Event:
        revision = self._next
        decision.obj["metadata"]["resourceVersion"] = str(revision)
        entry = entry_of(decision.obj, self._selectable[resource].fields)
        if len(entry.body) > OBJECT_LIMIT:
            raise too_large(OBJECT_LIMIT)
        self._next += 1
        type_ = "DELETED" if isinstance(decision, Remove) else "ADDED" if live is None else "MODIFIED"
        return event_of(type_, revision, entry, live)

    @staticmethod
    def _row(resource: str, event: Event) -> Write:
        entry, before = event.entry, event.previous
        selected = before is not None and (entry.labels, entry.fields) != (before.labels, before.fields)
        return Write(
            event.revision,
            resource,
            entry.namespace,
            entry.name,
            event.type,
            entry.uid,
            entry.body,
            before.body if before is not None and selected else None,
        )

    def _committed(self, batch: list[Write], error: Exception | None) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle, batch, error)
        except RuntimeError:
            pass  # the loop is gone: the process is on its way out, and the file has the batch

    def _settle(self, batch: list[Write], error: Exception | None) -> None:
        for write in batch:
            event, done = self._prepared.pop(write.revision)
            del self._pending[write.resource, event.entry.key]
            del self._underway[write.resource, event.entry.key]
            if error is not None:
                done.set_exception(error)
                continue
            self._show(write.resource, event)
            done.set_result(None)

    def _show(self, resource: str, event: Event) -> None:
        shelf = self._shelves[resource]
        if event.type == "DELETED":
            shelf.remove(event.entry.key)
        else:
            shelf.put(event.entry)
        self.revision = event.revision
        shelf.record(event)
        for observer in self._observers:
            try:
                observer(resource, event)
            except Exception:  # the write is on disk: whoever waits for it must hear so
                log.exception(
                    "a cache could not follow a write", extra={"resource": resource, "object": event.entry.name}
                )
        shelf.publish(event)

"""A copy of one resource's objects that keeps itself true: list, then watch, for as long as it takes.

Handlers hear ADDED, MODIFIED and DELETED as if the connection never broke: after a cut the watch resumes at the last
resourceVersion seen; when that is too old (410) a new list is compared with the cache, and what vanished meanwhile is
reported as DELETED.

Reconcilers that write also `observe` the server's answer. The cache then never lags behind their own writes, which is
what keeps a ReplicaSet from making the same pod twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping

from regional.core.clock import Clock, SystemClock
from regional.kube.client.api import Client
from regional.kube.client.errors import ApiError
from regional.kube.objects import Key, Obj, key_of, revision_of, uid_of, version_of

log = logging.getLogger(__name__)

Handler = Callable[[str, Obj], None]
Listener = Callable[[str, Obj, Obj | None], None]
"""(type, object, what the cache held before)"""
IndexBy = Callable[[Obj], Iterable[str]]

FIRST_BACKOFF = 0.02
LAST_BACKOFF = 1.0
TOMBSTONES = 4096


class Informer:
    def __init__(
        self,
        client: Client,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        handler: Handler | None = None,
        labels: str | Mapping[str, str] | None = None,
        fields: str | Mapping[str, str] | None = None,
        keep: Callable[[Obj], Obj] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`keep` trims an object before it is cached (and before handlers see it)."""
        self._client = client
        self.api_version, self.kind, self.namespace = api_version, kind, namespace
        self._labels, self._fields, self._keep = labels, fields, keep
        self._clock: Clock = clock or SystemClock()
        self._listeners: list[Listener] = []
        if handler is not None:
            self.add_handler(handler)
        self.objects: dict[Key, Obj] = {}
        self._by_namespace: dict[str, dict[str, Obj]] = {}
        self._indexers: dict[str, IndexBy] = {}
        self._indexes: dict[str, dict[str, dict[Key, Obj]]] = {}
        self._tombstones: dict[str, None] = {}
        self._version = ""
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.relists = 0

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> Obj | None:
        return self.objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> list[Obj]:
        return list(self._by_namespace.get(namespace, {}).values())

    def index(self, name: str, by: IndexBy) -> None:
        """Add an index; ask it with `indexed`. Before `start`, so that no object escapes it."""
        self._indexers[name] = by
        self._indexes[name] = {}

    def has_index(self, name: str) -> bool:
        return name in self._indexers

    def indexed(self, name: str, value: str) -> list[Obj]:
        return list(self._indexes[name].get(value, {}).values())

    def __iter__(self) -> Iterator[Obj]:
        return iter(list(self.objects.values()))

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def resource_version(self) -> str:
        """The point in the server's history that this cache has reached."""
        return self._version

    # -- listening ---------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler) -> None:
        self._listeners.append(lambda kind, obj, _: handler(kind, obj))

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def synced(self) -> None:
        """Returns once the first list is in the cache and its handlers have run."""
        await self._synced.wait()

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self.run(), name=f"informer {self.kind}")
        return self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def run(self) -> None:
        """Until cancelled. Trouble is met with patience: a restarting API is normal life here."""
        pause = FIRST_BACKOFF
        complained = False
        while True:
            started = self._clock.monotonic()
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
                useful, complained = self._clock.monotonic() - started > 1.0, False
            except ApiError as error:
                useful = False
                if error.gone:
                    self._version = ""
                elif not complained:
                    complained = True
                    log.info("watch interrupted", extra={"kind": self.kind, "reason": str(error)})
            except Exception as error:
                useful = False
                log.warning("watch failed", extra={"kind": self.kind, "reason": repr(error)}, exc_info=True)
            pause = FIRST_BACKOFF if useful else min(LAST_BACKOFF, pause * 2)
            await self._clock.sleep(pause * random.uniform(0.5, 1.0))

    async def _relist(self) -> None:
        items, version = await self._client.list_with_rv(
            self.api_version, self.kind, self.namespace, labels=self._labels, fields=self._fields
        )
        self.relists += 1
        horizon = int(version) if version.isdigit() else 0
        present = {key_of(item): item for item in items}
        for key, old in list(self.objects.items()):
            fresh = present.get(key)
            # Newer than the list: one of our own writes, observed while the list was on its way.
            if revision_of(old) > horizon > 0:
                present.pop(key, None)
            elif fresh is None or uid_of(fresh) != uid_of(old):
                self._remove(old)
        for item in present.values():
            self._put(item)
        self._version = version
        self._synced.set()

    async def _follow(self) -> None:
        events = self._client.watch(
            self.api_version,
            self.kind,
            self.namespace,
            resource_version=self._version,
            labels=self._labels,
            fields=self._fields,
            bookmarks=True,
        )
        async with contextlib.aclosing(events):
            async for kind, obj in events:
                if kind == "DELETED":
                    self._remove(obj)
                elif kind != "BOOKMARK":
                    self._put(obj)
                self._version = version_of(obj) or self._version

    # -- the cache ---------------------------------------------------------------------------------------------------

    def observe(self, obj: Obj) -> None:
        """Take in the answer to a write of ours at once instead of when the watch brings it.

        The watch may have been faster: if the cache is already past this revision and does not hold the object, the
        object came and went, and putting it back would leave a ghost that nobody ever removes.
        """
        reached = int(self._version) if self._version.isdigit() else 0
        if key_of(obj) in self.objects or revision_of(obj) > reached:
            self._put(obj)

    def observe_deleted(self, obj: Obj) -> None:
        """The server said that this very object (by uid) is gone."""
        cached = self.objects.get(key_of(obj))
        if cached is None or uid_of(cached) != uid_of(obj):
            return
        if len(self._tombstones) >= TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._tombstones[uid_of(obj)] = None
        self._remove(obj, buried=True)

    def _put(self, obj: Obj) -> None:
        uid = uid_of(obj)
        if uid in self._tombstones:
            return
        key = key_of(obj)
        old = self.objects.get(key)
        if old is not None and uid_of(old) != uid:
            if revision_of(old) > revision_of(obj) > 0:
                return
            self._remove(old)
            old = None
        if old is not None and revision_of(old) >= revision_of(obj) > 0:
            return
        obj.setdefault("apiVersion", self.api_version)
        obj.setdefault("kind", self.kind)
        if self._keep is not None:
            obj = self._keep(obj)
        self.objects[key] = obj
        self._by_namespace.setdefault(key[0], {})[key[1]] = obj
        if self._indexers:
            self._reindex(key, old, obj)
        self._tell("MODIFIED" if old is not None else "ADDED", obj, old)

    def _remove(self, obj: Obj, *, buried: bool = False) -> None:
        """DELETED tells the last known content, with the deletion's resourceVersion when the watch gave one."""
        uid, key = uid_of(obj), key_of(obj)
        if not buried:
            self._tombstones.pop(uid, None)
        old = self.objects.get(key)
        if old is None or (uid and uid_of(old) != uid):
            return
        del self.objects[key]
        names = self._by_namespace[key[0]]
        del names[key[1]]
        if not names:
            del self._by_namespace[key[0]]
        if self._indexers:
            self._reindex(key, old, None)
        obj.setdefault("apiVersion", self.api_version)
        obj.setdefault("kind", self.kind)
        self._tell("DELETED", obj, old)

    def _reindex(self, key: Key, old: Obj | None, new: Obj | None) -> None:
        for name, by in self._indexers.items():
            index = self._indexes[name]
            for value in by(old) if old is not None else ():
                bucket = index.get(value)
                if bucket is not None:
                    bucket.pop(key, None)
                    if not bucket:
                        del index[value]
            for value in by(new) if new is not None else ():
                index.setdefault(value, {})[key] = new  # type: ignore[assignment]

    def _tell(self, kind: str, obj: Obj, old: Obj | None) -> None:
        for listener in self._listeners:
            try:
                listener(kind, obj, old)
            except Exception:
                # One deaf listener must not stop the cache that all the others live on.
                log.exception("informer handler failed", extra={"kind": self.kind, "object": "/".join(key_of(obj))})


def without_managed_fields(obj: Obj) -> Obj:
    """`managedFields` is often half of an object and no reconciler reads it; a PUT without it keeps it."""
    metadata = obj.get("metadata")
    if metadata:
        metadata.pop("managedFields", None)
    return obj

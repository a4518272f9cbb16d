"""The live state of every object that a work speaks of, from watches: one for each kind, over the whole cluster.

One watch per kind and not per namespace, because each is a connection: a cluster with a hundred hosted clusters has
hundreds of namespaces and a dozen kinds. Of objects that no work speaks of only the name is kept. What cannot be
watched (too many kinds, no right to) is asked for every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Key, Obj, key_of, metadata_of, revision_of, uid_of
from regional.maestro.agent.works import Ref

log = logging.getLogger(__name__)

MOST_WATCHES = 50
ASK_SECONDS = 10.0
Place = tuple[str, str]
"""(apiVersion, kind)"""


class Tracker:
    def __init__(self, client: Client, changed: Callable[[str, Ref, bool], None], most: int = MOST_WATCHES) -> None:
        """`changed(work, object, gone)` is told of each change, also of those that the agent made itself."""
        self._client, self._changed, self._most = client, changed, most
        self._works: dict[Ref, set[str]] = {}
        self._refs: dict[str, set[Ref]] = {}
        self._live: dict[Ref, Obj | None] = {}
        self._ended: dict[Ref, int] = {}
        """The revision at which an object that is not there went: an answer from before then is history."""
        self._by_place: dict[Place, dict[Key, Ref]] = {}
        self._informers: dict[Place, Informer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def knows(self, ref: Ref) -> bool:
        return ref in self._live

    def live(self, ref: Ref) -> Obj | None:
        """As last seen; None if it is not there. Ask `knows` first."""
        return self._live.get(ref)

    def followed(self, work: str) -> set[Ref]:
        return set(self._refs.get(work, ()))

    def others(self, ref: Ref, work: str) -> set[str]:
        return self._works.get(ref, set()) - {work}

    # -- what to follow ----------------------------------------------------------------------------------------------

    def track(self, work: str, refs: Iterable[Ref]) -> None:
        """From now on exactly these are followed for the work."""
        wanted = {ref for ref in refs if ref.resource}
        before = self._refs.get(work, set())
        for ref in before - wanted:
            self._forget(work, ref)
        for ref in wanted - before:
            self._works.setdefault(ref, set()).add(work)
            place = (ref.api_version, ref.kind)
            self._by_place.setdefault(place, {})[ref.namespace, ref.name] = ref
            self._watch(place)
        if wanted:
            self._refs[work] = wanted
        else:
            self._refs.pop(work, None)

    def _forget(self, work: str, ref: Ref) -> None:
        works = self._works.get(ref, set())
        works.discard(work)
        if works:
            return
        self._works.pop(ref, None)
        self._live.pop(ref, None)
        self._ended.pop(ref, None)
        place = (ref.api_version, ref.kind)
        keys = self._by_place.get(place, {})
        keys.pop((ref.namespace, ref.name), None)
        if not keys:
            self._by_place.pop(place, None)
            if informer := self._informers.pop(place, None):
                self._spawn(informer.stop())

    def _watch(self, place: Place) -> None:
        if place in self._informers or len(self._informers) >= self._most:
            return
        informer = Informer(
            self._client,
            *place,
            handler=lambda kind, obj: self._seen(place, kind, obj),
            keep=lambda obj: self._kept(place, obj),
        )
        self._informers[place] = informer
        informer.start()
        self._spawn(self._compare_once_synced(place, informer))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what is seen ------------------------------------------------------------------------------------------------

    def _kept(self, place: Place, obj: Obj) -> Obj:
        if key_of(obj) in self._by_place.get(place, {}):
            return obj
        metadata = metadata_of(obj)
        return {"metadata": {n: metadata[n] for n in ("namespace", "name", "uid", "resourceVersion") if n in metadata}}

    def _seen(self, place: Place, kind: str, obj: Obj) -> None:
        ref = self._by_place.get(place, {}).get(key_of(obj))
        if ref is None:
            return
        if kind == "DELETED":
            known = self._live.get(ref)
            if known is None or not uid_of(obj) or uid_of(known) == uid_of(obj):
                self._ended[ref] = max(self._ended.get(ref, 0), revision_of(obj))
                self._take(ref, None)
        else:
            self.observe(ref, obj)

    def observe(self, ref: Ref, obj: Obj | None) -> None:
        """The cluster's answer to a request of ours, or what a watch brought: the newer of what we know and this."""
        if ref not in self._works:
            return
        known = self._live.get(ref)
        if obj is not None and known is not None and revision_of(obj) < revision_of(known):
            return
        if obj is not None and revision_of(obj) <= self._ended.get(ref, -1):
            return
        self._take(ref, obj)

    def _take(self, ref: Ref, obj: Obj | None) -> None:
        first = ref not in self._live
        if not first and self._live[ref] == obj:
            return
        gone = obj is None and not first
        self._live[ref] = obj
        for work in list(self._works.get(ref, ())):
            self._changed(work, ref, gone)

    async def fetch(self, ref: Ref) -> Obj | None:
        """Ask the cluster now. Raises ApiError."""
        obj = await self._client.get_or_none(ref.api_version, ref.kind, ref.name, ref.namespace or None)
        if obj is None:
            known = self._live.get(ref)
            informer = self._informers.get((ref.api_version, ref.kind))
            if known is not None and informer is not None and informer.get(ref.namespace, ref.name) is not None:
                return None  # the watch is about to say so, and knows the order of things
        self.observe(ref, obj)
        return obj

    async def _compare_once_synced(self, place: Place, informer: Informer) -> None:
        """What we had seen before the watch began, and the watch never saw, is gone."""
        await informer.synced()
        for key, ref in list(self._by_place.get(place, {}).items()):
            if key not in informer.objects and self._live.get(ref) is not None:
                try:
                    await self.fetch(ref)
                except ApiError as error:
                    log.debug("not compared", extra={"object": str(ref), "reason": str(error)})

    async def keep_asking(self) -> None:
        """For what no watch follows."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            for ref in list(self._works):
                informer = self._informers.get((ref.api_version, ref.kind))
                if informer is not None and informer.resource_version:
                    continue
                try:
                    await self.fetch(ref)
                except ApiError as error:
                    log.debug("not seen", extra={"object": str(ref), "reason": str(error)})

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))

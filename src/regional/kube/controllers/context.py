"""What all controllers of a cluster share: one client, one set of informers, one recorder of events, one clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from regional.core.clock import Clock, SystemClock
from regional.core.reconcile import WorkQueue, run_workers
from regional.kube.client import ApiError, ApiUnreachable, Client, Informer, Resource, without_managed_fields
from regional.kube.controllers.settings import ControllerSettings
from regional.kube.events import EventRecorder
from regional.kube.objects import Key, Obj, is_deleting, metadata_of, owner_of, uid_of

log = logging.getLogger(__name__)
CONFLICT_SECONDS = 0.02
GONE_SECONDS = 0.5


class Informers:
    """One informer per resource, however many controllers look at it."""

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock
        self._full: dict[tuple[str, str], Informer] = {}
        self._slim: dict[Resource, Informer] = {}
        self._named: dict[tuple[str, str, str], Informer] = {}

    def of(self, api_version: str, kind: str) -> Informer:
        """Whole objects. Only before `start`, so that every listener hears everything from the first list on."""
        informer = self._full.get((api_version, kind))
        if informer is None:
            informer = Informer(self._client, api_version, kind, keep=without_managed_fields, clock=self._clock)
            informer.index("owner", controller_uid)
            self._full[api_version, kind] = informer
        return informer

    def of_name(self, api_version: str, kind: str, name: str) -> Informer:
        """Only the objects of one name, in all namespaces: a kind's whole content would be a waste."""
        informer = self._named.get((api_version, kind, name))
        if informer is None:
            informer = Informer(
                self._client,
                api_version,
                kind,
                fields=f"metadata.name={name}",
                keep=without_managed_fields,
                clock=self._clock,
            )
            self._named[api_version, kind, name] = informer
        return informer

    def metadata_of(self, resource: Resource) -> Informer:
        """Enough of each object to follow ownership: the whole-object informer if there is one, else a slim one."""
        full = self._full.get((resource.api_version, resource.kind))
        if full is not None:
            return full
        slim = self._slim.get(resource)
        if slim is None:
            slim = Informer(self._client, resource.api_version, resource.kind, keep=only_ownership, clock=self._clock)
            self._slim[resource] = slim
        return slim

    async def forget(self, resource: Resource) -> None:
        slim = self._slim.pop(resource, None)
        if slim is not None:
            await slim.stop()

    async def start(self) -> None:
        everyone = [*self._full.values(), *self._named.values()]
        for informer in everyone:
            informer.start()
        await asyncio.gather(*(informer.synced() for informer in everyone))

    async def stop(self) -> None:
        everyone = [*self._full.values(), *self._named.values(), *self._slim.values()]
        await asyncio.gather(*(informer.stop() for informer in everyone))


def controller_uid(obj: Obj) -> Iterable[str]:
    owner = owner_of(obj)
    return (owner["uid"],) if owner is not None else ()


def only_ownership(obj: Obj) -> Obj:
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp")
    metadata = metadata_of(obj)
    return {
        "apiVersion": obj.get("apiVersion", ""),
        "kind": obj.get("kind", ""),
        "metadata": {name: metadata[name] for name in kept if name in metadata},
    }


@dataclass
class Context:
    client: Client
    settings: ControllerSettings
    informers: Informers
    recorder: EventRecorder
    clock: Clock = field(default_factory=SystemClock)

    async def delete_child(self, informer: Informer, child: Obj, *, grace: int | None = None) -> None:
        """Delete this very object and let the shared cache know at once."""
        metadata = child["metadata"]
        try:
            answer = await self.client.delete(
                informer.api_version,
                informer.kind,
                metadata["name"],
                metadata.get("namespace"),
                uid=uid_of(child),
                grace=grace,
                propagation="Background",
            )
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
            # Gone already, or another object has the name now: either way not this one.
            informer.observe_deleted(child)
            return
        if _stays(answer):
            informer.observe(answer)
        else:
            informer.observe_deleted(child)


class Controller:
    """Level-triggered reconciliation of one kind. Subclasses say what to look at and what to do about one key."""

    name: ClassVar[str] = ""
    workers: ClassVar[int] = 1

    def __init__(self, context: Context) -> None:
        self.context = context
        self.client = context.client
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, base=0.02, cap=15.0)

    def keys(self) -> Iterable[Key]:
        """Everything this controller cares for; the periodic scan goes over it."""
        raise NotImplementedError

    async def reconcile(self, key: Key) -> float | None:
        raise NotImplementedError

    async def prepare(self) -> None:
        """Before the first key, after the shared informers are filled."""

    async def run(self) -> None:
        while True:
            try:
                await self.prepare()
                break
            except ApiError as error:
                log.warning("controller not ready", extra={"controller": self.name, "reason": str(error)})
                await self.context.clock.sleep(1.0)
        await run_workers(
            self.name,
            self.queue,
            self._attempt,
            workers=self.workers,
            resync=self.keys,
            resync_seconds=self.context.settings.resync_seconds,
            clock=self.context.clock,
        )

    async def _attempt(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except ApiUnreachable:
            raise
        except ApiError as error:
            if error.conflict or error.exists:
                # Somebody wrote in between, or our cache is a moment behind: look again with fresh eyes.
                return CONFLICT_SECONDS
            if error.not_found:
                # Deleted under our hands; the watch is about to tell. Not for ever at full speed, should it not.
                return GONE_SECONDS
            if is_namespace_ending(error):
                return None
            raise


def is_namespace_ending(error: ApiError) -> bool:
    """Nothing can be made in a namespace that is being removed, and nothing needs to be."""
    causes = (error.body.get("details") or {}).get("causes") or []
    return error.status == 403 and any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _stays(answer: Obj) -> bool:
    """Whether a deleted object is only marked: somebody has to finish with it, or its node to end its processes.

    Not told by revisions: the watch may have brought the mark before the answer to the delete came.
    """
    if answer.get("kind") == "Status" or not is_deleting(answer):
        return False
    metadata = metadata_of(answer)
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"))

"""Events for `kubectl describe`: best effort, counted rather than repeated, and never in anybody's way.

Reconcilers hand an event over and go on. It is written a moment later, so that the objects people wait for are
written first; a full queue drops events rather than grow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import NamedTuple

from regional.core.clock import Clock, rfc3339
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, name_of, namespace_of, uid_of, version_of

log = logging.getLogger(__name__)
PENDING_LIMIT = 1000
REMEMBERED = 512
DELAY_SECONDS = 0.3


class _Sort(NamedTuple):
    uid: str
    component: str
    kind: str
    reason: str
    message: str
    field: str = ""  # which part of the object it is about


class EventRecorder:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pending: OrderedDict[_Sort, tuple[Obj, int]] = OrderedDict()
        self._written: OrderedDict[_Sort, tuple[str, int]] = OrderedDict()
        self._wake = asyncio.Event()

    def normal(self, component: str, about: Obj, reason: str, message: str, field: str = "") -> None:
        self._record(_Sort(uid_of(about), component, "Normal", reason, message, field), about)

    def warning(self, component: str, about: Obj, reason: str, message: str, field: str = "") -> None:
        self._record(_Sort(uid_of(about), component, "Warning", reason, message, field), about)

    def _record(self, sort: _Sort, about: Obj) -> None:
        _, count = self._pending.get(sort, (about, 0))
        if not count and len(self._pending) >= PENDING_LIMIT:
            return
        self._pending[sort] = (about, count + 1)
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await self._clock.sleep(DELAY_SECONDS)
            self._wake.clear()
            while self._pending:
                sort, (about, count) = self._pending.popitem(last=False)
                try:
                    await self._write(sort, about, count)
                except ApiError as error:
                    log.debug("event dropped", extra={"event_reason": sort.reason, "reason": str(error)})

    async def _write(self, sort: _Sort, about: Obj, count: int) -> None:
        namespace = namespace_of(about) or "default"
        now = rfc3339(self._clock.now())
        if sort in self._written:
            name, before = self._written[sort]
            try:
                patch = {"count": before + count, "lastTimestamp": now}
                await self._client.patch("v1", "Event", name, namespace, patch)
                self._remember(sort, name, before + count)
                return
            except ApiError as error:
                if not error.not_found:
                    raise
        # By time, as Kubernetes does it: those of one second are then listed in their order.
        name = f"{name_of(about)}.{time.time_ns():x}"
        await self._client.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": about.get("apiVersion", ""),
                    "kind": about.get("kind", ""),
                    "name": name_of(about),
                    "namespace": namespace_of(about),
                    "uid": uid_of(about),
                    "resourceVersion": version_of(about),
                }
                | ({"fieldPath": sort.field} if sort.field else {}),
                "type": sort.kind,
                "reason": sort.reason,
                "message": sort.message[:1024],
                "source": {"component": sort.component},
                "reportingComponent": sort.component,
                "reportingInstance": "",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": count,
            }
        )
        self._remember(sort, name, count)

    def _remember(self, sort: _Sort, name: str, count: int) -> None:
        self._written[sort] = (name, count)
        self._written.move_to_end(sort)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

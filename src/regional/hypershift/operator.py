"""The operator: queues of HostedClusters and NodePools, fed by watches and by a scan behind them, bounded workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

import msgspec

from regional.core.clock import Clock, SystemClock
from regional.core.reconcile import WorkQueue, run_workers
from regional.hypershift.certificates import KeyRing
from regional.hypershift.deletion import Deletion
from regional.hypershift.guest.connection import Guests
from regional.hypershift.hostedcluster import HostedClusterReconciler
from regional.hypershift.looking import Looker
from regional.hypershift.nodepool import NodePoolReconciler
from regional.hypershift.plane import PlaneMaker
from regional.hypershift.timing import Stretches
from regional.hypershift.world import World
from regional.hypershift.writing import Writer
from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Key, Obj, is_deleting

log = logging.getLogger(__name__)
CONFLICT_SECONDS, GONE_SECONDS, WORDS_SECONDS = 0.02, 0.5, 0.5


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    image: str = "regional/regional"
    """What control planes run: this project's own image."""
    workers: int = 8
    resync_seconds: float = 60.0


class Operator:
    def __init__(self, client: Client, settings: OperatorSettings, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._settings, self._clock = settings, clock
        self.world = World(client, clock)
        self._guests = Guests()
        writer = Writer(client)
        ring = KeyRing(client, writer, self.world.secrets, clock)
        maker = PlaneMaker(client, self.world, writer, ring, settings.image)
        looker = Looker(self._guests, clock)
        self._stretches = Stretches(clock)
        self._clusters = HostedClusterReconciler(client, self.world, writer, maker, looker, self._stretches, clock)
        self._deletion = Deletion(client, self.world, writer, maker, ring, self._guests, looker, clock)
        self._pools = NodePoolReconciler(client, self.world, writer, self._guests, clock)
        self.cluster_queue: WorkQueue[Key] = WorkQueue(clock, base=0.05, cap=10.0)
        self.pool_queue: WorkQueue[Key] = WorkQueue(clock, base=0.05, cap=10.0)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Until cancelled. `ready` is set once the first lists are in."""
        self.world.hosted.add_listener(self._stretches.note)
        self.world.on_hosted(self.cluster_queue.add, lambda key: self.cluster_queue.add_after(key, WORDS_SECONDS))
        self.world.on_pools(self.pool_queue.add)
        settings = self._settings
        try:
            await self.world.start()
            if ready is not None:
                ready.set()
            await asyncio.gather(
                run_workers(
                    "hostedcluster",
                    self.cluster_queue,
                    self._cluster,
                    workers=settings.workers,
                    resync=lambda: list(self.world.hosted.objects),
                    resync_seconds=settings.resync_seconds,
                    clock=self._clock,
                ),
                run_workers(
                    "nodepool",
                    self.pool_queue,
                    self._pool,
                    workers=settings.workers,
                    resync=lambda: list(self.world.pools.objects),
                    resync_seconds=settings.resync_seconds,
                    clock=self._clock,
                ),
            )
        finally:
            await self.world.stop()
            await self._guests.close()

    async def _cluster(self, key: Key) -> float | None:
        hosted = self.world.hosted.get(*key)
        if hosted is None:
            return None
        try:
            if is_deleting(hosted):
                return await self._deletion.advance(hosted)
            return _spread(await self._clusters.reconcile(hosted))
        except ApiError as error:
            pause = _passing(error)
            if pause is not None:
                return pause
            await self._admit(hosted, error)
            raise
        except Exception as error:
            log.exception("hosted cluster stumbled", extra={"hostedcluster": "/".join(key)})
            await self._admit(hosted, error)
            raise

    async def _admit(self, hosted: Obj, error: Exception) -> None:
        if not isinstance(error, ApiUnreachable):
            with contextlib.suppress(ApiError):
                await self._clusters.tell_failure(hosted, error)

    async def _pool(self, key: Key) -> float | None:
        pool = self.world.pools.get(*key)
        if pool is None:
            return None
        try:
            pause = await self._pools.reconcile(pool)
            return _spread(pause) if pause is not None else None
        except ApiError as error:
            pause = _passing(error)
            if pause is not None:
                return pause
            raise


def _passing(error: ApiError) -> float | None:
    """Seconds to wait if the error only says that somebody else was faster; None if it is a real one."""
    if isinstance(error, ApiUnreachable):
        return None
    if error.conflict or error.exists:
        return CONFLICT_SECONDS
    return GONE_SECONDS if error.not_found else None


def _spread(seconds: float) -> float:
    """Many clusters that were made in the same moment shall not be looked at in the same moment for ever."""
    return seconds * random.uniform(0.8, 1.2) if seconds > 10 else seconds

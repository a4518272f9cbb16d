"""All controllers of one cluster, on one set of informers."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from regional.core.clock import Clock, SystemClock
from regional.kube.client import Client
from regional.kube.controllers.accounts import AccountsController
from regional.kube.controllers.aggregation import AggregationController
from regional.kube.controllers.context import Context, Controller, Informers
from regional.kube.controllers.daemonset import DaemonSetController
from regional.kube.controllers.deployment import DeploymentController
from regional.kube.controllers.disruption import DisruptionController
from regional.kube.controllers.endpoints import EndpointsController
from regional.kube.controllers.expiry import EventExpiry
from regional.kube.controllers.garbage import GarbageCollector
from regional.kube.controllers.job import JobController
from regional.kube.controllers.namespaces import NamespaceController
from regional.kube.controllers.nodes import NodeController
from regional.kube.controllers.replicaset import ReplicaSetController
from regional.kube.controllers.scheduler import Scheduler
from regional.kube.controllers.settings import ControllerSettings
from regional.kube.controllers.signing import SigningController
from regional.kube.controllers.statefulset import StatefulSetController
from regional.kube.controllers.volumes import VolumeController
from regional.kube.events import EventRecorder

log = logging.getLogger(__name__)

CONTROLLERS: tuple[type[Controller], ...] = (
    AccountsController,
    Scheduler,
    ReplicaSetController,
    DeploymentController,
    EndpointsController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    VolumeController,
    DisruptionController,
    NodeController,
    AggregationController,
    SigningController,
)


def _chosen(context: Context) -> list[Controller]:
    """By the names in the settings; a controller that is not made has no informers either."""
    wanted = context.settings.controllers
    chosen: list[Controller] = [make(context) for make in CONTROLLERS if not wanted or make.name in wanted]
    if not context.settings.housekeeping:
        return chosen
    # The end of a namespace is seen through the garbage collector's eyes, so the two come together.
    garbage = GarbageCollector(context)
    return [*chosen, NamespaceController(context, garbage), garbage]


async def run_all(
    client: Client,
    settings: ControllerSettings,
    *,
    clock: Clock | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Run until cancelled. `ready` is set once every shared informer has its first list."""
    clock = clock or SystemClock()
    informers = Informers(client, clock)
    recorder = EventRecorder(client, clock)
    context = Context(client, settings, informers, recorder, clock)
    controllers = _chosen(context)
    tasks: list[asyncio.Task[None]] = []
    try:
        await informers.start()
        tasks += [asyncio.create_task(c.run(), name=f"controller {c.name}") for c in controllers]
        tasks.append(asyncio.create_task(recorder.run(), name="event recorder"))
        if settings.housekeeping:
            tasks.append(asyncio.create_task(EventExpiry(context).run(), name="event expiry"))
        if ready is not None:
            ready.set()
        log.info("controllers run", extra={"controllers": len(controllers)})
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await informers.stop()

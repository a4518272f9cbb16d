"""Role `kube-api`: one cluster's API and controllers in one process.

A region's own clusters run it as a service of the machine; a hosted cluster runs it as a pod of its Management Cluster,
with its data on a claim and its certificates in mounted Secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.pki import KeyPair
from regional.core.problems import UserError
from regional.core.settings import load
from regional.core.web import stop_event
from regional.kube.apiserver import snapshots
from regional.kube.apiserver.front import listening
from regional.kube.apiserver.server import DATA_FILE, ApiServer

log = logging.getLogger(__name__)


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    cluster: str
    data: str
    pki: str
    address: str = "127.0.0.1"
    port: int = 6443
    advertise_address: str = ""  # what clients are told, if that is not where it listens (a pod behind a Service)
    service_cidr: str = "127.64.1.0/24"
    service_account_issuer: str = ""
    controllers: str = "all"  # or `none`, or names with commas; garbage and namespace run in any case but `none`
    snapshot_minutes: float = 15.0  # 0: none; a period without a write has none either
    snapshots_kept: int = 4
    log_level: str = "info"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("kube-api", settings.log_level)
    return run(serve(settings))


async def serve(settings: Settings) -> int:
    stop = stop_event()
    pki = mounted(settings.pki)
    server = ApiServer(
        mounted(settings.data),
        pki,
        service_cidr=settings.service_cidr,
        address=settings.advertise_address or settings.address,
        port=settings.port,
        issuer=settings.service_account_issuer,
    )
    await server.start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(listening(server, pki, settings.address))
            except OSError as error:
                place = f"{settings.address}:{settings.port}"
                raise UserError(
                    f"the API of cluster {settings.cluster} cannot listen on {place}: {error}",
                    hint="is another region using this address? see `regionctl doctor`",
                ) from error
            served = {"cluster": settings.cluster, "address": f"https://{settings.address}:{settings.port}"}
            log.info("cluster is served", extra=served | {"revision": server.store.revision})
            await _until_stopped(stop, server, settings)
            server.store.close_watches()  # or their open streams would hold up the listener's orderly end
    finally:
        await server.stop()
    return 0


async def _until_stopped(stop: asyncio.Event, server: ApiServer, settings: Settings) -> None:
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait(), name="stop")]
    if settings.controllers != "none":
        waiting.append(asyncio.create_task(_controllers(server, settings), name="controllers"))
    if settings.snapshot_minutes > 0:
        taking = snapshots.keep_taking(
            mounted(settings.data) / DATA_FILE,
            lambda: server.store.revision,
            settings.snapshot_minutes * 60,
            settings.snapshots_kept,
        )
        waiting.append(asyncio.create_task(taking, name="snapshots"))
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # controllers never end by themselves: if they do, the process must, with their error
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _controllers(server: ApiServer, settings: Settings) -> None:
    from regional.kube.client import Client
    from regional.kube.client.local import LocalTransport
    from regional.kube.controllers import run_all
    from regional.kube.controllers.settings import ControllerSettings

    pki = mounted(settings.pki)
    root_ca = (pki / "ca.crt").read_text()
    key = pki / "ca.key"  # a hosted cluster's API is not given it
    client = Client(LocalTransport(server.handle), user_agent="kube-controller-manager")
    await run_all(
        client,
        ControllerSettings(
            root_ca=root_ca,
            authority=KeyPair(root_ca, key.read_text()) if key.exists() else None,
            controllers=() if settings.controllers == "all" else tuple(settings.controllers.split(",")),
        ),
    )

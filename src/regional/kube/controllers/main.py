"""Role `kube-controllers`: our controllers beside an API that does not run them itself.

With Kubernetes' own control plane that is the volume controller alone: no CSI driver on this machine would give a
claim a directory. Where only `etcd` and `kube-apiserver` are at hand (KUBEBUILDER_ASSETS), it is all of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.pki import KeyPair
from regional.core.settings import load
from regional.core.web import stop_event
from regional.kube.client import Client
from regional.kube.controllers.run import CONTROLLERS, run_all
from regional.kube.controllers.settings import ControllerSettings


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    cluster: str
    kubeconfig: str
    root_ca: str = ""  # a file
    controllers: str = "all"  # or names with commas: then those alone
    without: str = ""  # names with commas, of `all`
    log_level: str = "info"


def main(argv: list[str]) -> int:
    settings = load(Settings, argv)
    setup_logging("kube-controllers", settings.log_level)
    return run(serve(settings))


async def serve(settings: Settings) -> int:
    stop = stop_event()
    client = Client.from_kubeconfig(settings.kubeconfig, user_agent="kube-controller-manager")
    work = asyncio.create_task(run_all(client, chosen(settings)), name="controllers")
    waiting = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()  # it never ends by itself: if it does, the process must, with its error
    finally:
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)
        await client.close()
    return 0


def chosen(settings: Settings) -> ControllerSettings:
    everything = settings.controllers == "all"
    left_out = set(settings.without.split(","))
    names = [c.name for c in CONTROLLERS if c.name not in left_out] if everything else settings.controllers.split(",")
    root_ca = Path(settings.root_ca).read_text() if settings.root_ca else ""
    key = Path(settings.root_ca).with_suffix(".key")
    return ControllerSettings(
        root_ca=root_ca,
        authority=KeyPair(root_ca, key.read_text()) if root_ca and key.exists() else None,
        controllers=tuple(names),
        housekeeping=everything,
    )

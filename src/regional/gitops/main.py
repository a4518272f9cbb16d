"""The role `gitops`: the process of the `argocd` pod."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.mounts import mounted
from regional.core.settings import load
from regional.core.web import health_app, serving, stop_event
from regional.gitops.controller import GitOps
from regional.kube.client import Client


class GitOpsSettings(msgspec.Struct):
    namespace: str = "argocd"
    log_level: str = "info"
    health_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8083
    pod_ip: str = "127.0.0.1"
    cache: str = "/var/cache/gitops"
    kubeconfig: str = ""  # empty: the pod's own service account
    helm: str = "helm"
    git: str = "git"


async def serve(settings: GitOpsSettings) -> None:
    stop = stop_event()
    agent = "argocd"
    client = (
        Client.from_kubeconfig(settings.kubeconfig, user_agent=agent)
        if settings.kubeconfig
        else Client.in_cluster(user_agent=agent)
    )
    cache = mounted(settings.cache)
    cache.mkdir(parents=True, exist_ok=True)
    async with client:
        gitops = GitOps(client, settings.namespace, cache, helm=settings.helm, git=settings.git)
        app = health_app({"caches": gitops.ready})
        async with serving(app, settings.pod_ip, settings.health_port):
            working = asyncio.create_task(gitops.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if working.done():
                working.result()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def main(argv: list[str]) -> int:
    settings = load(GitOpsSettings, argv)
    setup_logging("gitops", settings.log_level)
    run(serve(settings))
    return 0

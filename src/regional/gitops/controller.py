"""Both controllers together, with what they share: the cluster's state, the repositories, the branches they follow.

Given a client and a directory for the cache it runs anywhere: in the `argocd` pod, or inside a test beside the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import msgspec

from regional.core.clock import Clock, SystemClock
from regional.core.reconcile import run_workers
from regional.gitops.application import ApplicationController
from regional.gitops.applicationset import API_VERSION
from regional.gitops.appsets import ApplicationSetController
from regional.gitops.generators import SECRET_TYPE
from regional.gitops.helm import Helm
from regional.gitops.inventory import Inventory
from regional.gitops.manifests import ObjectKey
from regional.gitops.repo import Repositories
from regional.gitops.sources import Sources
from regional.kube.client import ApiError, Client, Informer, without_managed_fields

log = logging.getLogger(__name__)

LOOK_AT_REFS = 0.2
RESYNC = 180.0


class GitOps:
    def __init__(
        self,
        client: Client,
        namespace: str,
        cache: Path,
        *,
        helm: str = "helm",
        git: str = "git",
        clock: Clock | None = None,
        workers: int = 8,
    ) -> None:
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._workers = workers
        self._repositories = Repositories(cache, git=git, clock=self._clock)
        self._helm = Helm(cache / "helm", binary=helm)
        self._sources = Sources(self._repositories, self._helm)
        self._inventory = Inventory(client, self._object_changed)
        self._inventory.on_new_kinds(lambda: self._kinds_changed.set())
        self._kinds_changed = asyncio.Event()
        self._informers = {
            kind: Informer(client, version, kind, namespace, keep=without_managed_fields, labels=labels)
            for version, kind, labels in (
                (API_VERSION, "Application", None),
                (API_VERSION, "ApplicationSet", None),
                (API_VERSION, "AppProject", None),
                ("v1", "Secret", f"{SECRET_TYPE}=cluster"),
            )
        }
        applications, projects = self._informers["Application"], self._informers["AppProject"]
        self.applications = ApplicationController(
            client, self._inventory, self._sources, applications, projects, clock=self._clock
        )
        self.applicationsets = ApplicationSetController(
            client,
            self._repositories,
            self._informers["ApplicationSet"],
            applications,
            self._informers["Secret"],
            projects,
            clock=self._clock,
        )
        self._repositories.on_moved(self._moved)
        self._missing = "the caches have not been filled yet"

    async def ready(self) -> str:
        """For /readyz: "" once the caches are filled."""
        return self._missing

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_refs())
                group.create_task(self._follow_kinds())
                for name, controller, workers in (
                    ("application", self.applications, self._workers),
                    ("applicationset", self.applicationsets, 2),
                ):
                    group.create_task(
                        run_workers(
                            name,
                            controller.queue,
                            controller.reconcile,
                            workers=workers,
                            resync=controller.keys,
                            resync_seconds=RESYNC,
                            clock=self._clock,
                        )
                    )
        finally:
            await self._close()

    async def _start(self) -> None:
        for informer in self._informers.values():
            informer.start()
        # Before the Applications: the first comparison asks for it.
        await self._inventory.start()
        await self._learn_capabilities()
        for kind, informer in self._informers.items():
            self._missing = f"{kind} objects have not been listed yet"
            await informer.synced()
        self._missing = ""
        log.info("ready", extra={"applications": len(self._informers["Application"])})

    async def _close(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))
        await self._inventory.close()
        await self._helm.close()

    def _object_changed(self, key: ObjectKey, applications: set[str]) -> None:
        self.applications.object_changed(key, applications)

    async def _follow_refs(self) -> None:
        """Branches have no watch: look at the files that hold them, five times a second. A remote that does not answer
        holds up no other."""
        looking: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for pair in self.applications.followed() | self.applicationsets.followed():
                    if pair not in looking or looking[pair].done():
                        looking[pair] = group.create_task(self._repositories.look(*pair))
                await self._clock.sleep(LOOK_AT_REFS)

    def _moved(self, url: str, revision: str) -> None:
        self.applicationsets.revision_changed(url, revision)
        self.applications.revision_changed(url, revision)

    async def _follow_kinds(self) -> None:
        while True:
            await self._kinds_changed.wait()
            # A chart of CRDs brings many at once.
            await self._clock.sleep(1.0)
            self._kinds_changed.clear()
            with contextlib.suppress(ApiError):
                await self._learn_capabilities()

    async def _learn_capabilities(self) -> None:
        """What charts see as .Capabilities."""
        status, _, body = await self._client.request("GET", "/version")
        if status == 200:
            self._sources.kube_version = str(msgspec.json.decode(body).get("gitVersion", "")).removeprefix("v")
        found: set[str] = set()
        for entry in await self._client.resources():
            found |= {entry.resource.api_version, f"{entry.resource.api_version}/{entry.resource.kind}"}
        self._sources.api_versions = tuple(sorted(found))

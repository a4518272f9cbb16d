"""The whole path for tests: sentinel and adapter on a test's database, and an operator on the management cluster.

The operator writes by hand what HyperShift would write; everything else is the real thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from regional.clm.adapter.main import Settings as AdapterSettings
from regional.clm.adapter.main import engines_of
from regional.clm.adapter.status_watch import StatusWatch
from regional.clm.adapter.worker import Worker
from regional.clm.client import ClmClient
from regional.clm.entities import REGISTRY
from regional.clm.events import Queue
from regional.clm.sentinel.main import Sentinel
from regional.clm.sentinel.main import Settings as SentinelSettings
from regional.core import paths
from regional.kube.client import ApiError
from regional.maestro.client import MaestroClient, MaestroUnreachable
from tests.clm.conftest import Region, condition, free_address, until
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import running

TASKS = paths.checkout() / "argocd" / "config" / "regional-cluster" / "clm" / "files" / "adapters"
DEFINITIONS = paths.checkout() / "argocd" / "config" / "management-cluster" / "hypershift" / "templates"
HYPERSHIFT = "hypershift.openshift.io/v1beta1"


def engines(clm: ClmClient, maestro_client: MaestroClient) -> dict[str, Any]:
    """Our own task files, as the adapter runs them."""
    files = [f"Cluster={TASKS}/cluster.yaml", f"NodePool={TASKS}/nodepool.yaml"]
    return dict(engines_of(AdapterSettings(task_files=files), clm, maestro_client))


@contextlib.asynccontextmanager
async def adapter(
    region: Region, maestro_client: MaestroClient, clm: ClmClient, name: str = "adapter-0"
) -> AsyncIterator[Worker]:
    worker = Worker(region.database, Queue("hypershift", name), engines(clm, maestro_client))
    watch = StatusWatch(region.database, maestro_client, REGISTRY, "hypershift")
    async with running(region.database.keep_session(worker.work)), running(watch.follow()):
        yield worker
    await worker.close()


@contextlib.asynccontextmanager
async def sentinel_and_adapter(region: Region, maestro_client: MaestroClient, clm: ClmClient) -> AsyncIterator[None]:
    sentinel = Sentinel(SentinelSettings())
    async with adapter(region, maestro_client, clm), running(region.database.keep_session(sentinel.follow)):
        yield


class Role:
    """One of CLM's roles as a process of its own. Killed and started again it is the same pod, as in a cluster."""

    def __init__(self, name: str, root: Path, region: Region, *flags: str, address: str) -> None:
        self._name, self._root, self._address = name, root / name, address
        self._flags = ("--db-sslmode=disable", *flags)
        shutil.copytree(region.credentials, self._root / "mnt" / "secrets-store")
        shutil.copytree(TASKS, self._root / "etc" / "clm" / "adapters")
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0  # where the log of this life begins

    def start(self) -> None:
        program = "import sys; from regional.cli.main import main; sys.exit(main(sys.argv[1:]))"
        environment = {"PATH": os.environ["PATH"], "POD_IP": self._address, "POD_ROOT": str(self._root)}
        with (self._root / "log").open("ab") as output:
            self._from = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "serve", self._name, *self._flags],
                env=environment | {"POD_NAME": self._name},
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_ready(self) -> bool:
        """Whether this life has said so."""
        with (self._root / "log").open("rb") as log:
            log.seek(self._from)
            return b'"ready: connected to ' in log.read()


@contextlib.contextmanager
def roles(root: Path, region: Region, maestro_url: str) -> Iterator[dict[str, Role]]:
    """API, sentinel and adapter, started."""
    api = free_address(8000, 8083)
    url = f"http://{api}:8000"
    tasks = ",".join(f"{kind}=/etc/clm/adapters/{kind.lower()}.yaml" for kind in ("Cluster", "NodePool"))
    made = {
        "clm-api": Role("clm-api", root, region, address=api),
        "sentinel": Role("sentinel", root, region, address=free_address(8083)),
        "adapter": Role(
            *("adapter", root, region, f"--clm-url={url}", f"--maestro-url={maestro_url}", f"--task-files={tasks}"),
            address=free_address(8083),
        ),
    }
    region.url = url
    try:
        for role in made.values():
            role.start()
        yield made
    finally:
        for role in made.values():
            role.kill()


class Operator:
    """HyperShift's part, by hand."""

    def __init__(self, management: Cluster) -> None:
        self._client = management.client

    async def prepare(self) -> None:
        for name in ("hostedclusters", "nodepools"):
            definition = yaml.safe_load((DEFINITIONS / f"crd-{name}.yaml").read_text())
            await self._client.create(definition)
        for kind in ("HostedCluster", "NodePool"):
            await until(lambda kind=kind: self._served(kind))

    async def _served(self, kind: str) -> bool:
        try:
            await self._client.list(HYPERSHIFT, kind)
        except ApiError:
            return False
        return True

    async def hosted(self, cluster_id: str) -> Any:
        return await until(lambda: self.hosted_or_none(cluster_id))

    async def hosted_or_none(self, cluster_id: str, name: str = "demo") -> Any:
        return await self._client.get_or_none(HYPERSHIFT, "HostedCluster", name, f"cluster-{cluster_id}")

    async def _written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Read and written again if the agent has written in between."""

        async def done() -> bool:
            try:
                await write()
            except ApiError as error:
                if not error.conflict:
                    raise
                return False
            return True

        await until(done)

    async def make_available(self, cluster_id: str) -> None:
        async def write() -> None:
            await self._make_available(await self.hosted(cluster_id))

        await self._written(write)

    async def _make_available(self, live: Any) -> None:
        name, namespace = f"{live['metadata']['name']}-admin-kubeconfig", live["metadata"]["namespace"]
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"kubeconfig": "a3ViZWNvbmZpZw=="},
        }
        if await self._client.get_or_none("v1", "Secret", name, namespace) is None:
            await self._client.create(secret)
        image = live["spec"]["release"]["image"]
        completed = {"state": "Completed", "version": "4.22.0", "image": image}
        completed |= {"startedTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}
        await self._tell(live, [completed])

    async def tell(self, cluster_id: str, history: list[Any], *conditions: dict[str, Any]) -> None:
        """Available, besides what is said here."""

        async def write() -> None:
            await self._tell(await self.hosted(cluster_id), history, *conditions)

        await self._written(write)

    async def _tell(self, live: Any, history: list[Any], *conditions: dict[str, Any]) -> None:
        generation = live["metadata"]["generation"]
        live["status"] = {
            "conditions": [_condition("Available", generation)]
            + [_condition("", generation) | condition for condition in conditions],
            "controlPlaneVersion": {
                "desired": {key: history[0][key] for key in ("version", "image")},
                "observedGeneration": generation,
                "history": history,
            },
            "kubeconfig": {"name": f"{live['metadata']['name']}-admin-kubeconfig"},
            "controlPlaneEndpoint": {"host": "127.0.0.9", "port": 6443},
        }
        await self._client.update_status(live)

    async def make_pool_ready(self, cluster_id: str, replicas: int) -> None:
        async def find() -> Any:
            return await self._client.get_or_none(HYPERSHIFT, "NodePool", "demo-workers", f"cluster-{cluster_id}")

        async def write() -> None:
            await self._make_ready(await until(find), replicas)

        await self._written(write)

    async def _make_ready(self, live: Any, replicas: int) -> None:
        live["status"] = {
            "conditions": [_condition("Ready", live["metadata"]["generation"])],
            "replicas": replicas,
            "version": "4.22.0",
        }
        await self._client.update_status(live)

    async def operate(self) -> None:
        """Without end: whatever is wanted becomes available."""
        while True:
            with contextlib.suppress(ApiError):  # gone or changed meanwhile
                for live in await self._client.list(HYPERSHIFT, "HostedCluster"):
                    if not _is_settled(live, "Available"):
                        await self._make_available(live)
                for live in await self._client.list(HYPERSHIFT, "NodePool"):
                    if not _is_settled(live, "Ready") or live["status"].get("replicas") != live["spec"]["replicas"]:
                        await self._make_ready(live, live["spec"]["replicas"])
            await asyncio.sleep(0.1)

    async def left(self) -> list[str]:
        """What is on the management cluster of anybody's clusters."""
        hosted = await self._client.list(HYPERSHIFT, "HostedCluster")
        pools = await self._client.list(HYPERSHIFT, "NodePool")
        spaces = [
            found for found in await self._client.list("v1", "Namespace") if "cluster-" in found["metadata"]["name"]
        ]
        return [found["metadata"]["name"] for found in (*hosted, *pools, *spaces)]


def _is_settled(live: Any, kind: str) -> bool:
    if live["metadata"].get("deletionTimestamp"):
        return True
    found = [one for one in (live.get("status") or {}).get("conditions") or [] if one["type"] == kind]
    return bool(found) and found[0]["observedGeneration"] == live["metadata"]["generation"]


def _condition(kind: str, generation: int) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": "AsExpected",
        "message": "all is well",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": generation,
    }


async def register(client: MaestroClient, consumer: str) -> None:
    async def done() -> bool:
        with contextlib.suppress(MaestroUnreachable):  # it listens before it has its database
            return bool(await client.create_consumer(consumer))
        return False

    await until(done)


async def reconciled(clm: ClmClient, kind: str, resource_id: str) -> Any:
    found = await clm.get(kind, resource_id)
    return condition(found, "Reconciled")["status"] == "True" and found


async def says(clm: ClmClient, kind: str, resource_id: str, reason: str) -> Any:
    found = await clm.get(kind, resource_id)
    told = [entry for entry in found["status"]["conditions"] if entry["type"] == "HypershiftSuccessful"]
    return told and told[0]["reason"] == reason and told[0]

"""One consumer's world in process: the real server on PostgreSQL, the real agent on an embedded Kubernetes API, and a
loose wire between them. Either side can be killed and started at any moment, and the cluster be lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from regional.kube.client import ApiError
from regional.local.provisioner import mosquitto
from regional.maestro.agent import session
from regional.maestro.agent.main import Agent
from regional.maestro.agent.main import Settings as AgentSettings
from regional.maestro.agent.shelf import Shelf
from regional.maestro.server import source
from regional.maestro.server.bundles import NewBundle
from regional.maestro.server.main import Server
from regional.maestro.server.main import Settings as ServerSettings
from tests.kube_controllers.harness import Api
from tests.maestro.harness import OTHERS, applied_work_definition, config_for, config_map, connect, eventually, laid_out
from tests.maestro.loose_wire import LooseWire

MC = "mc01"
RECORD = ("work.open-cluster-management.io/v1", "AppliedManifestWork")
_TABLES = ("leases", "resources", "tombstones", "events", "history", "agent_works", "consumers")


class World:
    def __init__(self, directory: Path, database: Mapping[str, str], api: Api) -> None:
        self.wire = LooseWire()
        self.api, self.client = api, api.client()
        self._works = directory / "works"
        self._database = dict(database)
        self._files = laid_out(directory / "files", database | _broker_files())
        self.server: Server | None = None
        self.agent: Agent | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._killing = False

    def patch(self, patching: pytest.MonkeyPatch) -> None:
        for module in (source, session):
            patching.setattr(module, "Broker", self.wire.end)
        flush = Shelf.flush
        patching.setattr(Shelf, "flush", lambda shelf: None if self._killing else flush(shelf))

    # -- either side ---------------------------------------------------------------------------------------------------

    async def start_server(self) -> None:
        await self.kill_server()
        settings = ServerSettings(
            pod_name=f"maestro-server-{time.monotonic_ns()}",
            db_credentials_dir=str(self._files),
            db_sslmode="disable",
            message_broker_config_file=str(self._files / "config.yaml"),
        )
        self.server = server = Server(settings)
        self._tasks["server"] = asyncio.create_task(server.run())
        while server.database.pool is None:
            await asyncio.sleep(0.001)

    async def start_agent(self) -> None:
        await self.kill_agent()
        settings = AgentSettings(
            workload_source_config=str(self._files / "config.yaml"),
            consumer_name_file=str(self._files / "consumerName"),
            works_dir=str(self._works),
        )
        self.agent = Agent(settings, self.api.client("work-agent"))
        self._tasks["agent"] = asyncio.create_task(self.agent.run())

    async def kill_server(self) -> None:
        await self._kill("server")
        self.server = None

    async def kill_agent(self) -> None:
        """What it would write at an orderly end stays unwritten; what it writes before it acts does not, for it may
        act until the very end."""
        self._killing = True
        try:
            await self._kill("agent")
        finally:
            self._killing = False
        self.agent = None

    async def _kill(self, side: str) -> None:
        self.check_alive()
        task = self._tasks.pop(side, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def check_alive(self) -> None:
        """Neither side ever ends by itself."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def lose_cluster(self) -> None:
        """The management cluster is made anew under its old name: nothing of it is left, nor of its agent's disk."""
        await self.kill_agent()
        await self.clean_cluster()
        shutil.rmtree(self._works, ignore_errors=True)

    async def clean_cluster(self) -> None:
        for kind in (("v1", "ConfigMap", "default"), RECORD):
            for found in await self.client.list(*kind):
                name, namespace = found["metadata"]["name"], found["metadata"].get("namespace")
                try:
                    if found["metadata"].get("finalizers"):
                        await self.client.patch(*kind[:2], name, namespace, {"metadata": {"finalizers": None}})
                    await self.client.delete(*kind[:2], name, namespace, missing_ok=True)
                except ApiError as error:
                    if not error.not_found:  # the last word of the agent that was killed
                        raise

    async def end(self) -> None:
        await self.kill_agent()
        await self.kill_server()

    async def begin(self) -> None:
        """With nothing from before: empty tables but for the consumer, an empty cluster, an empty disk."""
        await self.end()
        await self.lose_cluster()
        self.wire.begin()
        await self._clean_database()
        await self.start_server()
        await self.server_now.consumers.create(MC, None)

    async def _clean_database(self) -> None:
        connection = await connect(self._database)
        try:
            if await connection.fetchval("SELECT to_regclass('resources')") is not None:
                while await connection.fetch(OTHERS):  # the killed server's last statement may still run
                    await asyncio.sleep(0.005)
                for table in _TABLES:  # TRUNCATE takes ten times as long
                    await connection.execute(f"DELETE FROM {table}")
        finally:
            await connection.close()

    # -- what is asked for and what is there -------------------------------------------------------------------------

    @property
    def server_now(self) -> Server:
        assert self.server is not None
        return self.server

    async def create(self, bundle_id: str, data: Mapping[str, str], namespace: str = "default") -> int:
        """Raises Refusal."""
        new = NewBundle(
            id=bundle_id,
            name=bundle_id,
            source="test",
            consumer_name=MC,
            metadata="{}",
            spec=spec_of(data, namespace),
            request_id="",
        )
        bundle, _, _ = await self.server_now.writes.create(new, time.monotonic())
        return bundle.version

    async def update(self, bundle_id: str, data: Mapping[str, str]) -> None:
        """Raises Refusal."""
        following = lambda _: ("{}", spec_of(data), "")  # noqa: E731
        await self.server_now.writes.update(bundle_id, None, following, time.monotonic())

    async def delete(self, bundle_id: str) -> None:
        await self.server_now.writes.delete(bundle_id, "", time.monotonic())

    async def query(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        pool = self.server_now.database.pool
        assert pool is not None
        return list(await pool.fetch(sql, *arguments))

    async def on_cluster(self) -> dict[str, str]:
        """Of each object that a bundle made its value, by name."""
        found = await self.client.list("v1", "ConfigMap", "default")
        return {o["metadata"]["name"]: o["data"]["key"] for o in found if "key" in (o.get("data") or {})}

    def kept(self) -> dict[str, Any]:
        """The works on the agent's disk, by id."""
        found = [msgspec.json.decode(path.read_bytes()) for path in self._works.rglob("*.work")]
        return {work["id"]: work for work in found}

    async def records(self) -> set[str]:
        return {found["spec"]["manifestWorkName"] for found in await self.client.list(*RECORD)}


def spec_of(data: Mapping[str, str], namespace: str = "default") -> str:
    """A bundle of one ConfigMap for each name, whose value is fed back."""
    configs = [config_for(name, (name, ".data.key"), strategy="Update") for name in sorted(data)]
    manifests = [config_map(name, {"key": value}, namespace) for name, value in sorted(data.items())]
    return msgspec.json.encode({"manifests": manifests, "manifestConfigs": configs}).decode()


def _broker_files() -> dict[str, str]:
    ways = {f"{way}Events": f"{mosquitto.TOPICS}/+/{way}events" for way in ("source", "agent")}
    config = {"brokerHost": "loose.wire:1883", "topics": ways}
    config |= dict.fromkeys(("caFile", "clientCertFile", "clientKeyFile"), "/none")
    return {"config.yaml": msgspec.json.encode(config).decode(), "consumerName": MC}


async def started_api(directory: Path) -> Api:
    """An embedded Kubernetes API that knows AppliedManifestWorks."""
    api = Api(directory)
    await api.start()
    client = api.client()
    await client.create(applied_work_definition())

    async def served() -> bool:
        return await client.list(*RECORD) == []

    await eventually(served, 60)
    if await client.get_or_none("v1", "Namespace", "default") is None:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    return api

"""A region's ground for tests: the real AWS host, the real supervisor, accounts of its own for each test."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from typing import Any

import asyncpg

from regional.cloud.accounts import mint_account
from regional.cloud.aws import Aws, Credentials
from regional.cloud.secrets import get_secret
from regional.core.paths import RegionPaths
from regional.local.addresses import Addresses
from regional.local.provisioner.context import Context
from regional.local.provisioner.provision import provision
from regional.local.supervisor import Supervisor
from regional.local.supervisor_client import ServiceSpec, socket_path

AWS_REGION = "us-west-2"
CENTRAL = Credentials("AKIACENTRAL", "central")


class Ground:
    """The region's supervisor, run inside the test, and inputs as the renderer writes them."""

    def __init__(self, endpoint: str, name: str = "local") -> None:
        self.endpoint = endpoint
        self.paths = RegionPaths(name)
        self.central = Aws(region=AWS_REGION, endpoint=endpoint, credentials=CENTRAL)
        self._supervisor = Supervisor(self.paths)
        self._server: asyncio.Server | None = None
        unique = uuid.uuid4().hex[:8]
        self.regional_account = mint_account(self.central, f"rc-{unique}", f"rc-{unique}@example.com")
        self._management_accounts: dict[str, str] = {}
        self._unique = unique
        self._doors: dict[tuple[str, str], Aws] = {}

    async def start(self) -> None:
        self.paths.supervisor.mkdir(parents=True, exist_ok=True)
        socket = socket_path(self.paths)
        socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._server = await asyncio.start_unix_server(self._supervisor.answer, str(socket))

    async def stop(self) -> None:
        await self._supervisor.shutdown()
        if self._server is not None:
            self._server.close()
        socket_path(self.paths).unlink(missing_ok=True)
        socket_path(self.paths).parent.rmdir()
        Addresses(self.paths).release_all()
        for door in (*self._doors.values(), self.central):
            door.close()

    def context(self, **options: Any) -> Context:
        """The same doors for all steps: making AWS clients is most of a step's cost."""
        context = Context(self.paths, self.central, **options)
        context._accounts = self._doors
        return context

    async def provision(self, root: str, inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
        return await provision(root, inputs, self.context(**options))

    async def service_pid(self, name: str) -> int:
        """Once it is ready, which may be later than others can reach it."""
        async with asyncio.timeout(60):
            while True:
                listed = {status.name: status for status in await self.context().supervisor.services()}
                if listed[name].state == "ready":
                    return listed[name].pid
                await asyncio.sleep(0.05)

    async def kill_service(self, name: str) -> None:
        """kill -9, and wait until the supervisor has started it again."""
        before = await self.service_pid(name)
        os.kill(before, signal.SIGKILL)
        async with asyncio.timeout(60):
            while True:
                listed = {status.name: status for status in await self.context().supervisor.services()}
                if listed[name].state == "ready" and listed[name].pid != before:
                    return
                await asyncio.sleep(0.05)

    async def connect_when_back(self, dsn: str) -> asyncpg.Connection:
        async with asyncio.timeout(60):
            while True:
                try:
                    return await asyncpg.connect(dsn)
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # it may go away once more
                    await asyncio.sleep(0.05)

    def regional_inputs(self, **more: Any) -> dict[str, Any]:
        return {
            "_generated": "by a test",
            "account_id": self.regional_account,
            "region": AWS_REGION,
            "alias": "regional-local",
            "region_alias": "local",
            "environment": "test",
            "app_code": "infra",
            "service_phase": "dev",
            "cost_center": "000",
            **more,
        }

    def management_inputs(self, cluster_id: str, **more: Any) -> dict[str, Any]:
        if cluster_id not in self._management_accounts:
            name = f"{cluster_id}-{self._unique}"
            self._management_accounts[cluster_id] = mint_account(self.central, name, f"{name}@example.com")
        return {
            **self.regional_inputs(),
            "account_id": self._management_accounts[cluster_id],
            "alias": cluster_id,
            "cluster_id": cluster_id,
            "regional_aws_account_id": self.regional_account,
            **more,
        }

    def regional(self) -> Aws:
        return self.context().account(self.regional_account, AWS_REGION)

    def management(self, cluster_id: str) -> Aws:
        self.management_inputs(cluster_id)
        return self.context().account(self._management_accounts[cluster_id], AWS_REGION)

    def secret(self, aws: Aws, name: str) -> str:
        found = get_secret(aws, name)
        assert found is not None, name
        return found

    async def with_warm_parent(self) -> None:
        """For roots whose parts are forks of it."""
        socket = self.context().warm_socket
        await self.context().supervisor.ensure(
            ServiceSpec(
                name="warm",
                description="warm parent",
                kind="exec",
                argv=[sys.executable, "-m", "regional.cli.main", "serve", "warm", "--socket", str(socket)],
                ready=f"unix:{socket}",
            ),
            timeout=60,
        )

    async def with_broker(self, *cluster_ids: str) -> None:
        """Everything up to a running broker, with agents' certificates carried over."""
        for root in ("certificate-authority", "broker"):
            await self.provision(root, self.regional_inputs())
        for cluster_id in cluster_ids:
            for root in ("maestro-agent-iot-regional", "maestro-agent-iot-management"):
                await self.provision(root, self.management_inputs(cluster_id))

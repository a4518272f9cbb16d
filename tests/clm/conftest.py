"""One real PostgreSQL for a test process, a database of its own for each test, and CLM's API served over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import hypothesis
import pytest

from regional.clm.api.door import Application
from regional.clm.client import ClmClient
from regional.clm.entities import REGISTRY
from regional.clm.migrations import MIGRATIONS
from regional.core.database import Database, migrate
from regional.core.web import serving
from regional.local.provisioner import postgres
from regional.local.provisioner.unprivileged import subprocess_identity
from tests.maestro.conftest import broker, cluster  # noqa: F401  fixtures: the region's broker, a management cluster
from tests.maestro.harness import Maestro, Mosquitto

PASSWORD = "s3cret-word"
FOR_EVER = timedelta(hours=1)
"""A lease that does not run out while a busy machine does something else."""

# Time says nothing about correctness, least of all on a machine that does other things too.
hypothesis.settings.register_profile(
    "clm", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], database=None
)
hypothesis.settings.load_profile("clm")


def free_address(*ports: int) -> str:
    while True:
        address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind((address, port))
            return address


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    directory = Path(tempfile.mkdtemp(prefix="clm-test-"))
    directory.chmod(0o711)
    server = postgres.Server.at(directory / "postgres", free_address(postgres.PORT), durable=False)
    asyncio.run(postgres.lay_out(server))
    process = subprocess.Popen(
        server.argv,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **subprocess_identity(server.user),
    )
    try:
        asyncio.run(_until_open(server, process))
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)
        shutil.rmtree(directory, ignore_errors=True)


async def _until_open(server: postgres.Server, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None, "PostgreSQL ended at once"
        with contextlib.suppress(OSError, asyncpg.PostgresError):
            async with postgres.administration(server):
                return
        await asyncio.sleep(0.02)


class Region:
    """A database for one test and what runs on it."""

    def __init__(self, server: postgres.Server, directory: Path) -> None:
        self._server = server
        self._name = f"clm_{secrets.token_hex(6)}"
        self.credentials = directory / "credentials"
        self.url = ""
        self.address = ""
        self.database = Database(self.credentials, sslmode="disable", application="test")

    async def prepare(self) -> None:
        await postgres.ensure_database(self._server, self._name, PASSWORD)
        self.credentials.mkdir()
        fields = {"host": self._server.address, "port": str(postgres.PORT), "name": self._name}
        for field, text in (fields | {"user": self._name, "password": PASSWORD}).items():
            (self.credentials / f"db.{field}").write_text(text)
        await self.database.once_connected(lambda connection: migrate(connection, "clm", MIGRATIONS))

    async def forget(self) -> None:
        async with postgres.administration(self._server) as connection:
            await connection.execute(f'DROP DATABASE "{self._name}" WITH (FORCE)')
            await connection.execute(f'DROP ROLE "{self._name}"')

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        made = await asyncpg.connect(
            host=self._server.address, user=self._name, password=PASSWORD, database=self._name, ssl="disable"
        )
        try:
            yield made
        finally:
            await made.close()

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        async with self.connection() as connection:
            return list(await connection.fetch(statement, *values))

    async def value(self, statement: str, *values: Any) -> Any:
        async with self.connection() as connection:
            return await connection.fetchval(statement, *values)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Database]:
        """The pool that roles use."""
        keeping = asyncio.create_task(self.database.keep_connected())
        try:
            await until(lambda: self.database.pool is not None)
            yield self.database
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def api(self) -> AsyncIterator[str]:
        """The API over HTTP, as the role serves it."""
        self.address = free_address(8000)
        async with self.connected() as database:
            async with serving(Application(database, REGISTRY), self.address, 8000):
                self.url = f"http://{self.address}:8000"
                yield self.url


async def until(true: Any, seconds: float = 60.0) -> Any:
    """Wait for a condition (a function or a coroutine function) to hold; its value."""
    deadline = time.monotonic() + seconds
    while True:
        found = true()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"{true} did not come true in {seconds} s"
        await asyncio.sleep(0.02)


@pytest.fixture
async def region(postgres_server: postgres.Server, tmp_path: Path) -> AsyncIterator[Region]:
    made = Region(postgres_server, tmp_path)
    await made.prepare()
    yield made
    await made.forget()


@pytest.fixture
async def maestro(
    postgres_server: postgres.Server,
    tmp_path: Path,
    broker: Mosquitto,  # noqa: F811
) -> AsyncIterator[Maestro]:
    """Servers and agents, to be started by the test, on a database of their own."""
    name = f"maestro_{secrets.token_hex(6)}"
    await postgres.ensure_database(postgres_server, name, PASSWORD)
    found = {"host": postgres_server.address, "port": str(postgres.PORT), "name": name}
    found |= {"user": name, "password": PASSWORD}
    yield Maestro(tmp_path, {f"db.{field}": text for field, text in found.items()}, broker)
    async with postgres.administration(postgres_server) as connection:
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await connection.execute(f'DROP ROLE "{name}"')


@pytest.fixture
async def clm(region: Region) -> AsyncIterator[ClmClient]:
    """The region's own parts' view of a running API."""
    async with region.api() as url, ClmClient(url, timeout=60) as client:
        yield client


async def add_management_cluster(clm: ClmClient, name: str = "mc01", capacity: int = 100) -> dict[str, Any]:
    return await clm.create("ManagementCluster", name, {"capacity": capacity})


def report(generation: int, available: str = "True", **more: Any) -> dict[str, Any]:
    """A report of the hypershift adapter; `finalized="True"` adds that condition."""
    finalized = more.pop("finalized", None)
    conditions = [{"type": kind, "status": status} for kind, status in (("Applied", "True"), ("Health", "True"))]
    conditions.append({"type": "Available", "status": available})
    if finalized:
        conditions.append({"type": "Finalized", "status": finalized})
    return {"adapter": "hypershift", "observed_generation": generation, "conditions": conditions} | more


def condition(resource: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(found for found in resource["status"]["conditions"] if found["type"] == kind)


def no_leftover_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False

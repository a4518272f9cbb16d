"""`regionctl` as people run it, a process of its own, against the real edge, API and CLM, and Maestro if asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regional.clm.client import ClmClient
from regional.cloud.aws import Credentials
from regional.core import pki
from regional.core.logs import JsonFormatter
from regional.core.role import Dependency
from regional.maestro.client import MaestroClient
from regional.platform_api.accounts import Accounts
from regional.platform_api.app import Api
from regional.platform_api.identity import GatewaySecret
from regional.platform_api.operations import Region as ApiRegion
from tests.clm.conftest import Region, add_management_cluster, postgres_server, region
from tests.cloud.conftest import Host
from tests.gateway.conftest import REGION, Door, Identities, authority, aws_host, running_edge
from tests.maestro.conftest import broker, cluster, database, maestro, shared_database, shared_postgres
from tests.maestro.harness import Maestro

__all__ = [
    "authority",
    "aws_host",
    "broker",
    "cluster",
    "database",
    "maestro",
    "postgres_server",
    "region",
    "shared_database",
    "shared_postgres",
]

NOWHERE = "http://127.0.0.1:1"
_PROGRAM = "import sys; from regional.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Terminal:
    """`regionctl` with a terminal of its own: what a person sees, and what a person types."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self._process, self._screen, self.text = process, screen, ""

    async def shows(self, wanted: str) -> None:
        async with asyncio.timeout(120):
            while wanted not in self.text:
                if not await self._read():
                    raise AssertionError(f"no {wanted!r} in {self.text!r}")

    def types(self, text: str) -> None:
        os.write(self._screen, text.encode())

    async def ends(self) -> int:
        async with asyncio.timeout(120):
            while await self._read():
                pass
            return await self._process.wait()

    async def _read(self) -> bool:
        try:
            read = await asyncio.to_thread(os.read, self._screen, 4096)
        except OSError:  # the other end is closed
            return False
        self.text += read.decode(errors="replace")
        return bool(read)


class Shell:
    """A shell after `eval "$(regionctl env)"`."""

    def __init__(self, environment: dict[str, str], home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment = {**kept, "REGIONAL_HOME": str(home), "REGIONAL_RUNTIME": str(home), **environment}

    def having(self, **changes: str | None) -> Shell:
        made = Shell({}, Path(self.environment["REGIONAL_HOME"]))
        made.environment = {k: v for k, v in (self.environment | changes).items() if v is not None}
        return made

    async def run(self, *arguments: str, stdin: str = "") -> Result:
        process = await self.start(*arguments)
        async with asyncio.timeout(180):
            out, err = await process.communicate(stdin.encode())
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def succeed(self, *arguments: str, stdin: str = "") -> Result:
        result = await self.run(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, *arguments, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe
        )

    @contextlib.asynccontextmanager
    async def terminal(self, *arguments: str) -> AsyncIterator[Terminal]:
        screen, end = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, *arguments, env=self.environment, stdin=end, stdout=end, stderr=end
        )
        os.close(end)
        try:
            yield Terminal(process, screen)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            os.close(screen)


async def interrupted(process: asyncio.subprocess.Process) -> Result:
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return Result(process.returncode or 0, out.decode(), err.decode())


class Place:
    """What a test holds: a customer's shell, the shell of who runs the region, and the region's own view."""

    def __init__(self, door: Door, clm: ClmClient, customer: Shell, operator: Shell, account: str) -> None:
        self.door, self.clm, self.customer, self.operator, self.account = door, clm, customer, operator, account

    @property
    def own_clm(self) -> ClmClient:
        return self.clm.for_tenant(self.account)


def settings(door: Door, key: Credentials) -> dict[str, str]:
    return {
        "API_GATEWAY_URL": door.host,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key.access_key,
        "AWS_SECRET_ACCESS_KEY": key.secret_key,
        "AWS_CA_BUNDLE": str(door.ca_file),
    }


@pytest.fixture(scope="session")
def ada(aws_host: Host) -> Iterator[Identities]:
    made = Identities(aws_host)
    yield made
    made.inside.close()


@pytest.fixture(scope="session")
def olga(aws_host: Host) -> Iterator[Identities]:
    """Of the region's own account."""
    made = Identities(aws_host)
    yield made
    made.inside.close()


@contextlib.asynccontextmanager
async def running_place(
    region: Region,
    maestro_client: MaestroClient,
    host: Host,
    authority: pki.KeyPair,
    people: tuple[Identities, Identities],
    directory: Path,
    wire: Callable[[Any], Any] = lambda app: app,
) -> AsyncIterator[Place]:
    """`wire` stands between the edge and the API."""
    customer, operator = people
    edge = directory / "edge"
    edge.mkdir()
    async with region.api() as url, ClmClient(url, timeout=60) as clm:
        reachable = Dependency("clm")
        reachable.up(url)
        parts = ApiRegion(clm, maestro_client, Accounts(clm, frozenset({operator.account})), reachable.check)
        app = wire(Api(parts, GatewaySecret(edge / "secret")).application())
        async with running_edge(host.url, edge, authority, app) as door:
            await clm.create("Account", customer.account, {"accountId": customer.account, "privileged": False})
            home = directory / "home"
            home.mkdir(exist_ok=True)
            shells = (Shell(settings(door, person.user), home) for person in people)
            yield Place(door, clm, *shells, customer.account)


@pytest.fixture
async def place(
    region: Region, aws_host: Host, authority: pki.KeyPair, ada: Identities, olga: Identities, tmp_path: Path
) -> AsyncIterator[Place]:
    """Without Maestro; one management cluster has room."""
    async with MaestroClient(NOWHERE) as nobody:
        async with running_place(region, nobody, aws_host, authority, (ada, olga), tmp_path) as made:
            await add_management_cluster(made.clm)
            yield made


@pytest.fixture
async def place_with_maestro(
    region: Region,
    maestro: Maestro,
    aws_host: Host,
    authority: pki.KeyPair,
    ada: Identities,
    olga: Identities,
    tmp_path: Path,
) -> AsyncIterator[Place]:
    async with maestro.server() as client:
        async with running_place(region, client, aws_host, authority, (ada, olga), tmp_path) as made:
            made.maestro = client  # type: ignore[attr-defined]
            yield made


class _ToFiles(logging.Handler):
    """What each part writes to its own log in a region, from parts that share this process."""

    ROLES = (
        ("regional.gateway", "supervisor/logs/gateway.log", "gateway"),
        ("regional.platform_api", "nodes/rc/pods/p1/containers/platform-api/log", "platform-api"),
        ("regional.clm.api", "nodes/rc/pods/c1/containers/clm-api/log", "clm-api"),
        ("regional.clm.sentinel", "nodes/rc/pods/c2/containers/sentinel/log", "sentinel"),
        ("regional.clm.adapter", "nodes/rc/pods/c3/containers/adapter/log", "adapter"),
        ("regional.maestro.server", "nodes/rc/pods/m1/containers/maestro-server/log", "maestro-server"),
        ("regional.maestro.agent", "nodes/mc01/pods/a1/containers/maestro-agent/log", "maestro-agent"),
    )

    def __init__(self, root: Path) -> None:
        super().__init__(logging.INFO)
        self._files = {}
        for prefix, name, role in self.ROLES:
            (root / name).parent.mkdir(parents=True)
            self._files[prefix] = (root / name).open("w"), JsonFormatter(role)

    def emit(self, record: logging.LogRecord) -> None:
        for prefix, (file, formatter) in self._files.items():
            if record.name.startswith(prefix):
                file.write(formatter.format(record) + "\n")
                file.flush()

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()
        super().close()


@pytest.fixture
def region_logs(tmp_path: Path) -> Iterator[Path]:
    """The region's log files, where `regionctl trace` looks for them."""
    root = tmp_path / "home" / "regions" / "local"
    handler = _ToFiles(root)
    logger = logging.getLogger("regional")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield root
    logger.removeHandler(handler)
    logger.setLevel(before)
    handler.close()

"""Real PostgreSQL and Mosquitto that a test can kill and restart, and roles as real processes in a pod's clothes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regional.core import pki
from regional.local.provisioner import mosquitto, postgres
from regional.local.provisioner.unprivileged import subprocess_identity
from tests.maestro.harness import all_killed_with

HEALTH = 8083


def free_address(*ports: int) -> str:
    while True:
        address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind((address, port))
            return address


class Service:
    """A program that listens; `kill` is kill -9, `start` after it means a restart on the same data."""

    def __init__(self, argv: list[str], env: Mapping[str, str], identity: Mapping[str, Any], address: str, port: int):
        self._argv, self._env, self._identity = argv, env, identity
        self.address, self.port = address, port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            env={**os.environ, **self._env},
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            **self._identity,
        )
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(self.address, self.port)
                writer.close()
                return
            assert self._process.returncode is None, f"{self._argv[0]} ended at once"
            await asyncio.sleep(0.02)

    async def kill(self) -> None:
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


class Role:
    def __init__(self, process: asyncio.subprocess.Process, address: str, log: Path) -> None:
        self.process, self.address, self._log = process, address, log

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    async def get(self, path: str, port: int = HEALTH) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{self.address}:{port}{path}") as answer:
                return answer.status, await answer.text()

    async def until(self, status: int, containing: str = "") -> str:
        """The body of /readyz once it has this status and text."""
        async with asyncio.timeout(60):
            while True:
                assert self.process.returncode is None, self._log.read_text()[-2000:]
                with contextlib.suppress(OSError, aiohttp.ClientError):
                    found, text = await self.get("/readyz")
                    if found == status and containing in text:
                        return text
                await asyncio.sleep(0.02)

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


Start = Callable[..., Awaitable[Role]]


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Start]:
    """`await pod("clm-api", flags, secrets={file: content})` runs a role as a pod's process and ends it afterwards."""
    roles: list[Role] = []

    async def start(role: str, *flags: str, secrets: Mapping[str, str] | None = None, **env: str) -> Role:
        root = tmp_path / f"{len(roles)}-{role}"
        mount = root / "mnt" / "secrets-store"
        mount.mkdir(parents=True)
        for name, content in (secrets or {}).items():
            (mount / name).write_text(content)
        address = free_address(HEALTH, 8000, 8080)
        log = root / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "import sys; from regional.cli.main import main; sys.exit(main(sys.argv[1:]))",
                "serve",
                role,
                *flags,
                env={"PATH": os.environ["PATH"], "POD_IP": address, "POD_NAME": f"{role}-x", "POD_ROOT": str(root)}
                | env,
                stdout=output,
                stderr=output,
            )
        roles.append(Role(process, address, log))
        return roles[-1]

    yield start
    for role in roles:
        if role.process.returncode is None:
            role.process.kill()
            await role.process.wait()


@pytest.fixture
def reachable() -> AsyncIterator[Path]:
    """A directory that a server's unprivileged user may enter, unlike pytest's own."""
    directory = Path(tempfile.mkdtemp(prefix="roles-"))
    directory.chmod(0o711)
    yield directory  # type: ignore[misc]
    shutil.rmtree(directory, ignore_errors=True)


class TestDatabase(Service):
    __test__ = False
    secrets: dict[str, str]

    async def kill(self) -> None:
        with all_killed_with(self._process.pid if self._process else -1):
            await super().kill()


@pytest.fixture
async def database(reachable: Path) -> AsyncIterator[TestDatabase]:
    server = postgres.Server.at(reachable / "postgres", free_address(postgres.PORT), durable=False)
    await postgres.lay_out(server)
    service = TestDatabase(server.argv, {}, subprocess_identity(server.user), server.address, postgres.PORT)
    await service.start()
    while True:
        try:
            await postgres.ensure_database(server, "clm", "s3cret-word")
            break
        except Exception:  # it listens before it lets anyone in
            await asyncio.sleep(0.05)
    service.secrets = {
        "db.host": server.address,
        "db.port": str(postgres.PORT),
        "db.name": "clm",
        "db.user": "clm",
        "db.password": "s3cret-word",
    }
    yield service
    await service.kill()


class TestBroker(Service):
    __test__ = False
    authorities: mosquitto.Authorities

    def secrets(self, name: str, consumer: str = "+") -> dict[str, str]:
        signer = self.authorities.signer_of(name)
        pair = pki.issue(signer.pair(), name)
        port = mosquitto.SERVER_PORT if name == mosquitto.SERVER_NAME else mosquitto.AGENT_PORT
        topics = f"{mosquitto.TOPICS}/{consumer}"
        config = {
            "brokerHost": f"{self.address}:{port}",
            "caFile": "/mnt/secrets-store/ca.crt",
            "clientCertFile": "/mnt/secrets-store/tls.crt",
            "clientKeyFile": "/mnt/secrets-store/tls.key",
            "topics": {"sourceEvents": f"{topics}/sourceevents", "agentEvents": f"{topics}/agentevents"},
        }
        return {
            "config.yaml": json.dumps(config),
            "ca.crt": self.authorities.agents.certificate,
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "consumerName": name,
        }


@pytest.fixture
async def broker(reachable: Path) -> AsyncIterator[TestBroker]:
    address = free_address(mosquitto.AGENT_PORT, mosquitto.SERVER_PORT)
    authorities = mosquitto.Authorities(reachable / "authorities", "test")
    authorities.ensure()
    spec = mosquitto.service(reachable / "broker", address, authorities)
    service = TestBroker(spec.argv, spec.env, {}, address, mosquitto.AGENT_PORT)
    service.authorities = authorities
    await service.start()
    yield service
    await service.kill()

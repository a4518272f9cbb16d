"""Maestro for tests: real PostgreSQL, real Mosquitto with certificates, a real embedded cluster, our server and agent.

Server and agent run inside the test's own loop, so that a test is quick and sees into them; those tests that kill a
process use `Process` instead.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import yaml
from awscrt import mqtt5

from regional.core import paths, pki
from regional.core.mqtt import Broker, BrokerConfig
from regional.core.process import ProcessRef
from regional.core.web import serving
from regional.kube.apiserver.front import listening
from regional.kube.client import Client
from regional.local.provisioner import mosquitto, postgres
from regional.local.provisioner.unprivileged import subprocess_identity
from regional.maestro.agent.main import Agent
from regional.maestro.agent.main import Settings as AgentSettings
from regional.maestro.client import MaestroClient, MaestroError
from regional.maestro.protocol import topics
from regional.maestro.protocol.events import Event, decode, encode
from regional.maestro.server.main import Server
from regional.maestro.server.main import Settings as ServerSettings
from regional.maestro.server.rest.app import WithoutSlash
from tests.kube_controllers.harness import Cluster

Document = dict[str, Any]
HTTP = 8080
PATIENCE = 60.0
"""For an answer, on a machine that does other things too."""
OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
"""Ends all other sessions with a database."""
TABLES = ("resources", "tombstones", "events", "history", "consumers", "agent_works")
"""What Maestro's server knows."""


def free_address(*ports: int) -> str:
    while True:
        address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind((address, port))
            return address


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """The first truthy answer; an AssertionError or an error of Maestro's inside counts as not yet."""
    deadline = time.monotonic() + seconds
    last: BaseException | None = None
    while time.monotonic() < deadline:
        try:
            if result := await check():
                return result
        except (AssertionError, MaestroError) as error:
            last = error
        await asyncio.sleep(0.02)
    raise AssertionError("never came true") from last


class Service:
    """A program that listens; `kill` is kill -9 of its whole session, `start` after it a restart on the same data."""

    def __init__(self, argv: list[str], env: Mapping[str, str], identity: Mapping[str, Any], address: str, port: int):
        self._argv, self._env, self._identity = argv, env, identity
        self.address, self.port = address, port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self._process = subprocess.Popen(
            self._argv, env={**os.environ, **self._env}, cwd="/", start_new_session=True, **quiet, **self._identity
        )
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
                return
            assert self._process.poll() is None, f"{self._argv[0]} ended at once"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


async def connect(files: Mapping[str, str]) -> asyncpg.Connection:
    """To the database of these files, as whoever they name."""
    return await asyncpg.connect(
        host=files["db.host"],
        port=int(files["db.port"]),
        user=files["db.user"],
        password=files["db.password"],
        database=files["db.name"],
        ssl="disable",
    )


class Postgres(Service):
    """One server with as many databases as are asked for."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.server = postgres.Server.at(directory / "postgres", free_address(postgres.PORT), durable=durable)
        super().__init__(
            self.server.argv, {}, subprocess_identity(self.server.user), self.server.address, postgres.PORT
        )

    def kill(self) -> None:
        with all_killed_with(self._process.pid if self._process else -1):
            super().kill()

    async def database(self) -> dict[str, str]:
        """The files that a pod finds mounted."""
        name, password = f"maestro{secrets.token_hex(4)}", secrets.token_hex(8)
        while True:
            try:
                await postgres.ensure_database(self.server, name, password)
                break
            except (OSError, asyncpg.PostgresError):  # it listens before it lets anyone in
                await asyncio.sleep(0.05)
        found = {"host": self.address, "port": str(self.port), "name": name, "user": name, "password": password}
        return {f"db.{key}": value for key, value in found.items()}


@contextlib.contextmanager
def all_killed_with(postmaster: int) -> Iterator[None]:
    """PostgreSQL's children, each of which has a session of its own, hold memory without which no other server starts
    on the same data. It is stopped before they are counted, so that it makes no more of them, and the last of them is
    gone when this ends."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(postmaster, signal.SIGSTOP)
    children = [ref for ref in map(ProcessRef.of, _children(postmaster)) if ref is not None]
    yield
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    while any(child.alive() for child in children):
        time.sleep(0.005)


def _children(parent: int) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == parent]


def _parent(process: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


async def emptied(files: Mapping[str, str], *tables: str) -> None:
    """While servers are at work: what they do at the same moment may hold the one table and wait for the other."""
    connection = await connect(files)
    try:
        while True:
            with contextlib.suppress(asyncpg.DeadlockDetectedError):
                await connection.execute(f"TRUNCATE {', '.join(tables)}")
                return
    finally:
        await connection.close()


class Mosquitto(Service):
    profile = ""
    """What clients are told of it."""

    def __init__(self, directory: Path) -> None:
        self.authorities = mosquitto.Authorities(directory / "authorities", "test")
        self.authorities.ensure()
        address = free_address(mosquitto.AGENT_PORT, mosquitto.SERVER_PORT)
        spec = mosquitto.service(directory / "broker", address, self.authorities)
        super().__init__(spec.argv, spec.env, {}, address, mosquitto.AGENT_PORT)

    def files(self, name: str, mount: str | Path) -> dict[str, str]:
        """Certificate and configuration of the server or of a consumer's agent, as secrets are mounted."""
        pair = pki.issue(self.authorities.signer_of(name).pair(), name)
        port = mosquitto.SERVER_PORT if name == mosquitto.SERVER_NAME else mosquitto.AGENT_PORT
        config = {
            "brokerHost": f"{self.address}:{port}",
            "caFile": f"{mount}/ca.crt",
            "clientCertFile": f"{mount}/tls.crt",
            "clientKeyFile": f"{mount}/tls.key",
            "topics": {
                "sourceEvents": f"{mosquitto.TOPICS}/+/sourceevents",
                "agentEvents": f"{mosquitto.TOPICS}/+/agentevents",
            },
            "brokerProfile": self.profile,
        }
        return {
            "config.yaml": json.dumps(config),
            "ca.crt": self.authorities.agents.certificate,
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "consumerName": name,
        }


def laid_out(directory: Path, files: Mapping[str, str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory


def applied_work_definition() -> Document:
    chart = paths.checkout() / "argocd" / "config" / "management-cluster" / "maestro-agent" / "templates"
    loaded: Document = yaml.safe_load((chart / "crd-appliedmanifestworks.yaml").read_text())
    return loaded


class Maestro:
    """What a test holds: starts and stops servers and agents on the same database and broker."""

    def __init__(self, directory: Path, database: Mapping[str, str], broker: Mosquitto) -> None:
        self._directory, self.database, self.broker = directory, dict(database), broker
        self.servers: list[Server] = []

    def secrets(self, name: str) -> Path:
        directory = self._directory / f"{name}-{secrets.token_hex(3)}"
        files = self.broker.files(name, directory)
        return laid_out(directory, files | (self.database if name == mosquitto.SERVER_NAME else {}))

    @contextlib.asynccontextmanager
    async def server(self, *, address: str = "", **options: Any) -> AsyncIterator[MaestroClient]:
        mount = self.secrets(mosquitto.SERVER_NAME)
        settings = ServerSettings(
            pod_name=f"maestro-server-{secrets.token_hex(3)}",
            db_credentials_dir=str(mount),
            db_sslmode="disable",
            message_broker_config_file=str(mount / "config.yaml"),
            **options,
        )
        server = Server(settings)
        self.servers.append(server)
        address = address or free_address(HTTP)
        app = WithoutSlash(server.application())
        async with serving(app, address, HTTP), running(server.run()):
            await connected(server.database.dependency, server.source.broker.dependency)
            while server.database.pool is None:  # the schema is being migrated
                await asyncio.sleep(0.005)
            async with MaestroClient(f"http://{address}:{HTTP}", timeout=PATIENCE) as client:
                yield client

    @contextlib.asynccontextmanager
    async def agent(self, client: Client, consumer: str, **options: Any) -> AsyncIterator[Agent]:
        mount = self.secrets(consumer)
        settings = AgentSettings(
            workload_source_config=str(mount / "config.yaml"),
            consumer_name_file=str(mount / "consumerName"),
            **options,
        )
        agent = Agent(settings, client)
        async with running(agent.run()):
            await connected(agent.broker)
            yield agent

    @contextlib.asynccontextmanager
    async def wire(self, name: str) -> AsyncIterator[Wire]:
        """A bare client with the certificate of `name`."""
        wire = Wire(str(self.secrets(name) / "config.yaml"), name)
        async with running(wire.broker.keep_connected()):
            await connected(wire.broker.dependency)
            yield wire


class PatientBroker(Broker):
    """A test has nobody to send again what the broker was slow to take."""

    def _options(self, config: BrokerConfig) -> mqtt5.ClientOptions:
        options = super()._options(config)
        options.ack_timeout_sec = int(PATIENCE)
        return options


class Wire:
    """What another implementation would see and send."""

    def __init__(self, config: str, name: str) -> None:
        self._name = name
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.packets: list[mqtt5.PublishPacket] = []
        self.broker = PatientBroker(config, self._topics, self._receive)

    def _topics(self, config: Any) -> list[str]:
        if self._name == mosquitto.SERVER_NAME:
            return [config.topics.agent_events]
        return [topics.for_consumer(config.topics.source_events, self._name)]

    def _receive(self, packet: mqtt5.PublishPacket) -> None:
        self.packets.append(packet)
        properties = [(found.name, found.value) for found in packet.user_properties or ()]
        self.events.put_nowait(decode(properties, packet.content_type or "", packet.payload or b""))

    async def next(self, *, action: str = "", subresource: str = "", seconds: float = 60.0) -> Event:
        """The next event of a kind; others are passed by."""
        async with asyncio.timeout(seconds):
            while True:
                event = await self.events.get()
                if action in ("", event.action) and subresource in ("", event.subresource):
                    return event

    async def settle(self, seconds: float = 0.3) -> None:
        """Until nothing more comes for a while; what came is forgotten."""
        with contextlib.suppress(TimeoutError):
            while True:
                await self.next(seconds=seconds)

    async def nothing(self, seconds: float = 0.4, *, subresource: str = "spec") -> None:
        with contextlib.suppress(TimeoutError):
            event = await self.next(subresource=subresource, seconds=seconds)
            raise AssertionError(f"unexpected {event}")

    async def send(self, event: Event, consumer: str = "") -> int:
        config = self.broker.config
        assert config is not None
        mine = config.topics.source_events if self._name == mosquitto.SERVER_NAME else config.topics.agent_events
        message = encode(event)
        topic = topics.for_consumer(mine, consumer or event.consumer)
        return await self.broker.publish(topic, message.payload, message.properties, message.content_type)


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if task.done() and not task.cancelled():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def connected(*dependencies: Any) -> None:
    async with asyncio.timeout(60):
        while any(dependency.reason for dependency in dependencies):
            await asyncio.sleep(0.005)


class Process:
    """A role as a process of its own, to be killed. Its secrets are mounted where the charts mount them."""

    def __init__(self, role: str, root: Path, files: Mapping[str, str], *flags: str, address: str = "") -> None:
        self._role, self._root, self._flags = role, root, flags
        self.address = address or free_address(HTTP, 8083)
        laid_out(root / "mnt" / "secrets-store", files)
        self._process: subprocess.Popen[bytes] | None = None
        self.pod = ""

    def start(self) -> None:
        self.pod = f"{self._role}-{secrets.token_hex(3)}"
        program = "import sys; from regional.cli.main import main; sys.exit(main(sys.argv[1:]))"
        environment = {"PATH": os.environ["PATH"], "POD_IP": self.address, "POD_ROOT": str(self._root)}
        with (self._root / "log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "serve", self._role, *self._flags],
                env=environment | {"POD_NAME": self.pod},
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def lines(self) -> list[Document]:
        text = (self._root / "log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@contextlib.asynccontextmanager
async def kubeconfig_of(cluster: Cluster, directory: Path) -> AsyncIterator[Path]:
    """The cluster's API on a socket, for a process: what an agent is given to reach it."""
    assert cluster.api.server is not None
    address, port = free_address(6443), 6443
    authority = pki.create_authority("test")
    served = pki.issue(authority, "kube-apiserver", addresses=[address], server=True)
    agent = pki.issue(authority, "work-agent", organizations=["system:masters"])
    files = {"ca.crt": authority.certificate, "apiserver.crt": served.certificate, "apiserver.key": served.key}
    laid_out(directory / "front", files)

    def inline(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    ca = inline(authority.certificate)
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": f"https://{address}:{port}", "certificate-authority-data": ca}}
        ],
        "users": [
            {
                "name": "u",
                "user": {
                    "client-certificate-data": inline(agent.certificate),
                    "client-key-data": inline(agent.key),
                },
            }
        ],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    async with listening(cluster.api.server, directory / "front", address):
        yield path
        cluster.api.server.store.close_watches()


# -- what is sent ----------------------------------------------------------------------------------------------------


def config_map(name: str, data: Mapping[str, str] | None = None, namespace: str = "default") -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": dict(data or {"key": "value"}),
    }


def config_for(name: str, *paths: tuple[str, str], strategy: str = "ServerSideApply", **more: Any) -> Document:
    rules = [{"type": "JSONPaths", "jsonPaths": [{"name": n, "path": p} for n, p in paths]}]
    return {
        "resourceIdentifier": {"group": "", "resource": "configmaps", "name": name, "namespace": "default"},
        "updateStrategy": {"type": strategy, **more},
        "feedbackRules": rules if paths else [],
    }


def condition(bundle: Document, kind: str) -> str:
    conditions = (bundle.get("status") or {}).get("conditions") or []
    return next((found["status"] for found in conditions if found["type"] == kind), "")


def values(bundle: Document) -> Document:
    """What was fed back of all objects, by name."""
    found: Document = {}
    for resource in (bundle.get("status") or {}).get("resourceStatus") or []:
        for value in (resource.get("statusFeedback") or {}).get("values") or []:
            field = value["fieldValue"]
            found[value["name"]] = next(field[kind] for kind in field if kind != "type")
    return found


async def applied(client: MaestroClient, bundle_id: str, version: int = 0, seconds: float = 60.0) -> Document:
    async def check() -> Any:
        bundle = await client.get_bundle(bundle_id)
        done = bundle["delivery"]["state"] == "applied" and bundle["version"] >= version
        assert done, bundle["delivery"]
        return bundle

    found: Document = await eventually(check, seconds)
    return found


async def gone(client: MaestroClient, bundle_id: str, seconds: float = 60.0) -> None:
    async def check() -> bool:
        return await client.get_bundle_or_none(bundle_id) is None

    await eventually(check, seconds)

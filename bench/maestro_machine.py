"""What the Maestro bench runs: PostgreSQL with fsync, Mosquitto with certificates, our server, simulated agents.

Each is a process of its own, as in production, so that its CPU time is its own. The bench itself and the simulated
agents share the machine with them: seconds depend on that, CPU times do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from regional.core import pki
from regional.local.provisioner import mosquitto, postgres
from regional.local.provisioner.unprivileged import subprocess_identity

PATIENCE = 120.0
HTTP_PORT = 8080
HEALTH_PORT = 8083
_TICKS = os.sysconf("SC_CLK_TCK")
_REGIONCTL = "import sys; from regional.cli.main import main; sys.exit(main(sys.argv[1:]))"


def until(look: Callable[[], bool], what: str, pause: float = 0.02) -> None:
    deadline = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(pause)


@dataclass
class Program:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def cpu(self) -> float:
        """Seconds of CPU so far, of its threads, of its children and of those that have ended."""
        own = _times(self.process.pid)
        return sum(own) + sum(sum(_times(child)[:2]) for child in _children(self.process.pid))

    def memory(self) -> float:
        """Resident MB."""
        return self._status("VmRSS")

    def peak(self) -> float:
        """Resident MB at most since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status(self, field: str) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1e3 for line in text.splitlines() if line.startswith(field))

    def lines(self, start: int = 0) -> list[dict[str, Any]]:
        """What it has logged behind so many bytes."""
        with self.log.open("rb") as file:
            file.seek(start)
            return [json.loads(line) for line in file.read().splitlines() if line.startswith(b"{")]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _times(pid: int) -> list[float]:
    """User, system, and both of the children that have ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return [int(ticks) / _TICKS for ticks in fields[11:15]]
    return [0.0] * 4


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


class Machine:
    """A directory, and the programs that live in it while the block runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._programs: list[Program] = []
        self._taken: set[str] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.postgres = self._postgres()
            self.broker = self._broker()
            yield
        finally:
            for program in reversed(self._programs):
                program.stop()

    def start(self, name: str, argv: list[str], env: Mapping[str, str] | None = None, identity: Any = None) -> Program:
        log = self.home / f"{name}.log"
        environment = {"PATH": os.environ.get("PATH", os.defpath), **(env or {})}
        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
                **(identity or {}),
            )
        program = Program(name, process, log)
        self._programs.append(program)
        return program

    def address(self, *ports: int) -> str:
        while True:
            address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
            if address in self._taken:
                continue
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                for port in ports:
                    stack.enter_context(socket.socket()).bind((address, port))
                self._taken.add(address)
                return address

    # -- what it stands on -------------------------------------------------------------------------------------------

    def _postgres(self) -> Program:
        server = postgres.Server.at(self.home / "postgres", self.address(postgres.PORT), durable=True)
        asyncio.run(postgres.lay_out(server))
        self._server = server
        program = self.start("postgres", server.argv, identity=subprocess_identity(server.user))
        listening(server.address, postgres.PORT, program)
        return program

    def _broker(self) -> Program:
        self.authorities = mosquitto.Authorities(self.home / "authorities", "bench")
        self.authorities.ensure()
        self.broker_address = self.address(mosquitto.AGENT_PORT, mosquitto.SERVER_PORT)
        spec = mosquitto.service(self.home / "broker", self.broker_address, self.authorities)
        program = self.start("broker", list(spec.argv), spec.env)
        listening(self.broker_address, mosquitto.AGENT_PORT, program)
        return program

    async def database(self) -> dict[str, str]:
        """A new one; the files that a pod finds mounted."""
        name, password = f"maestro{secrets.token_hex(4)}", secrets.token_hex(8)
        while True:
            try:
                await postgres.ensure_database(self._server, name, password)
                break
            except (OSError, asyncpg.PostgresError):  # it listens before it lets anyone in
                await asyncio.sleep(0.05)
        found = {"host": self._server.address, "port": str(postgres.PORT), "name": name}
        return {f"db.{key}": value for key, value in (found | {"user": name, "password": password}).items()}

    def mounted(self, name: str, files: Mapping[str, str] | None = None) -> Path:
        """The certificate and configuration of the server or of a consumer's agent, and more files beside them."""
        directory = self.home / f"{name}-{secrets.token_hex(3)}"
        pair = pki.issue(self.authorities.signer_of(name).pair(), name)
        port = mosquitto.SERVER_PORT if name == mosquitto.SERVER_NAME else mosquitto.AGENT_PORT
        config = {
            "brokerHost": f"{self.broker_address}:{port}",
            "caFile": f"{directory}/ca.crt",
            "clientCertFile": f"{directory}/tls.crt",
            "clientKeyFile": f"{directory}/tls.key",
            "topics": {
                "sourceEvents": f"{mosquitto.TOPICS}/+/sourceevents",
                "agentEvents": f"{mosquitto.TOPICS}/+/agentevents",
            },
        }
        found = {
            "config.yaml": json.dumps(config),
            "ca.crt": self.authorities.agents.certificate,
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "consumerName": name,
        }
        directory.mkdir()
        for file, content in (found | dict(files or {})).items():
            (directory / file).write_text(content)
        return directory

    # -- ours --------------------------------------------------------------------------------------------------------

    def role(self, role: str, address: str, *flags: str) -> Program:
        name = f"{role}-{secrets.token_hex(3)}"
        environment = {"POD_IP": address, "POD_NAME": name}
        return self.start(name, [sys.executable, "-c", _REGIONCTL, "serve", role, *flags], environment)

    def script(self, name: str, *argv: str) -> Program:
        file = Path(__file__).with_name(f"{name}.py")
        return self.start(f"{name}-{secrets.token_hex(3)}", [sys.executable, str(file), *argv])


def listening(address: str, port: int, program: Program) -> None:
    def look() -> bool:
        if program.process.poll() is not None:
            raise SystemExit(f"{program.name} ended: {program.log.read_text(errors='replace')[-800:]}")
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return True
        return False

    until(look, f"{program.name} to listen")

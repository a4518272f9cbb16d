"""How the rest of the product talks to a region's supervisor: JSON lines over a Unix socket, one request a connection.

A service's specification is the whole truth about it: `ensure` is level-triggered, so asking for what already runs
changes nothing, and asking for something else restarts it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import msgspec

from regional.core import paths
from regional.core.problems import UserError


class ServiceSpec(msgspec.Struct, frozen=True):
    name: str
    description: str
    kind: Literal["exec", "fork"]  # exec: a program of its own; fork: a role, forked from the warm parent
    argv: list[str]
    env: dict[str, str] = {}
    user: str = ""  # run as this user when we are root
    cwd: str = ""
    address: str = ""  # what `regionctl status` shows
    ready: str = ""  # tcp:HOST:PORT | postgres:HOST:PORT | https:URL (any answer counts) | http:URL | unix:PATH
    needs: list[str] = []
    stop_signal: Literal["TERM", "INT", "QUIT"] = "TERM"
    stop_grace: float = 5.0


class ServiceStatus(msgspec.Struct):
    name: str
    description: str
    state: Literal["starting", "ready", "waiting", "failed", "stopped"]  # stopped: by us, or by a signal (SIGSTOP)
    address: str
    pid: int = 0
    since: str = ""  # RFC 3339: when it entered this state
    restarts: int = 0
    message: str = ""
    log: str = ""


def socket_path(region: paths.RegionPaths) -> Path:
    """Short, and unique for a region's data directory: parallel test regions share a runtime directory."""
    import hashlib

    digest = hashlib.sha256(str(region.root).encode()).hexdigest()[:10]
    return paths.runtime() / digest / "supervisor.sock"


class SupervisorGone(UserError):
    pass


class SupervisorClient:
    def __init__(self, socket: Path, region: str = "") -> None:
        self._socket = socket
        self._region = region

    @classmethod
    def of(cls, region: paths.RegionPaths) -> SupervisorClient:
        return cls(socket_path(region), region.region)

    async def ensure(self, spec: ServiceSpec, timeout: float = 30.0) -> ServiceStatus:
        """Create or update, and return once it is ready. Raises UserError with the reason and the log's last lines."""
        answer = await self._ask({"op": "ensure", "spec": spec, "timeout": timeout}, timeout + 5)
        return msgspec.convert(answer["service"], ServiceStatus)

    async def services(self) -> list[ServiceStatus]:
        answer = await self._ask({"op": "services"}, 10)
        return msgspec.convert(answer["services"], list[ServiceStatus])

    async def remove(self, name: str) -> None:
        await self._ask({"op": "remove", "name": name}, 30)

    async def shutdown(self) -> None:
        await self._ask({"op": "shutdown"}, 60)

    async def ping(self) -> bool:
        try:
            await self._ask({"op": "ping"}, 3)
            return True
        except UserError:
            return False

    async def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=16 * 1024 * 1024)
        except OSError as error:
            name = f" {self._region}" if self._region else ""
            raise SupervisorGone(f"region{name} is not running", f"start it with `regionctl up{name}`") from error
        try:
            writer.write(msgspec.json.encode(request) + b"\n")
            await writer.drain()
            async with asyncio.timeout(timeout):
                line = await reader.readline()
        except (TimeoutError, ConnectionError) as error:
            raise SupervisorGone(f"the supervisor did not answer `{request['op']}`", "see `regionctl logs`") from error
        finally:
            writer.close()
        if not line:
            raise SupervisorGone(f"the supervisor went away during `{request['op']}`", "run the command again")
        answer: dict[str, Any] = msgspec.json.decode(line)
        if "error" in answer:
            raise UserError(answer["error"], answer.get("hint", ""))
        return answer

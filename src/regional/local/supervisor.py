"""The supervisor of one region: runs what the cloud would provide, and keeps it running.

Its desired state is one file (services.json). Whatever is written there is started when the supervisor starts, in
the order of `needs`, and restarted when it dies. Killed itself, it is started again by the guardian and adopts every
process that is still alive. `shutdown` stops everything in order: nodes, the pods they left, then the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

import msgspec

from regional.core import paths
from regional.core.files import read_json, write_json
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.core.settings import load
from regional.local import pods
from regional.local.service import Service
from regional.local.supervisor_client import ServiceSpec, socket_path

log = logging.getLogger(__name__)

WARM = "warm"
_DOOR_SECONDS = 2.0
_LAST = ("aws", WARM)  # stopped last: others may still need them while they leave


class Settings(msgspec.Struct):
    region: str
    guardian: int = 0


class Supervisor:
    def __init__(self, region: paths.RegionPaths) -> None:
        self._region = region
        self._directory = region.supervisor
        self._file = services_file(region)
        self._services: dict[str, Service] = {}
        self._lock = asyncio.Lock()
        self.stopped = asyncio.Event()

    @property
    def warm_socket(self) -> Path:
        return socket_path(self._region).with_name("warm.sock")

    def start(self) -> None:
        for spec in self._stored():
            self._add(spec)

    def _stored(self) -> list[ServiceSpec]:
        try:
            return read_json(self._file, list[ServiceSpec])
        except FileNotFoundError:
            return []

    def _store(self) -> None:
        write_json(self._file, [service.spec for service in self._services.values()])

    def _add(self, spec: ServiceSpec) -> Service:
        service = Service(spec, self._directory, self.warm_socket)
        self._services[spec.name] = service
        needs = list(spec.needs) + ([WARM] if spec.kind == "fork" and WARM not in spec.needs else [])
        service.start(asyncio.ensure_future(self._all_ready(needs)))
        return service

    async def _all_ready(self, names: list[str]) -> None:
        for name in names:
            while name not in self._services or not await self._services[name].wait_ready(5):
                await asyncio.sleep(0.05)

    async def ensure(self, spec: ServiceSpec, timeout: float) -> dict[str, Any]:
        async with self._lock:
            service = self._services.get(spec.name)
            if service is None or service.spec != spec:
                if service is not None:
                    await service.stop()
                service = self._add(spec)
                self._store()
        if not await service.wait_ready(timeout):
            if service.hopeless:
                raise RuntimeError(f"{spec.name} {service.hopeless}")
            status = service.status()
            reason = f"{status.state}: {status.message}" if status.message else status.state
            tail = service.last_log_lines()
            raise RuntimeError(f"{spec.name} is not ready after {timeout:.0f} s ({reason})\n{tail}")
        return {"service": service.status()}

    async def remove(self, name: str) -> None:
        async with self._lock:
            service = self._services.pop(name, None)
            if service is not None:
                self._store()
                await service.stop()

    async def shutdown(self) -> None:
        async with self._lock:
            nodes = [s for s in self._services.values() if s.spec.name.endswith("-node")]
            last = [s for s in self._services.values() if s.spec.name in _LAST]
            rest = [s for s in self._services.values() if s not in nodes and s not in last]
            await asyncio.gather(*(service.stop() for service in nodes))
            await pods.stop_all(self._region)
            await asyncio.gather(*(service.stop() for service in rest))
            await asyncio.gather(*(service.stop() for service in last))
        self.stopped.set()

    async def abandon(self) -> None:
        await asyncio.gather(*(service.abandon() for service in self._services.values()))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(await reader.readline())
            try:
                result = await self._dispatch(request)
            except Exception as error:
                result = {"error": str(error) or type(error).__name__, "hint": "see `regionctl logs`"}
            writer.write(msgspec.json.encode(result) + b"\n")
            await writer.drain()
        except (ConnectionError, msgspec.DecodeError):
            pass
        finally:
            writer.close()

    async def _dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("op"):
            case "ping":
                return {"pid": os.getpid()}
            case "services":
                return {"services": [service.status() for service in self._services.values()]}
            case "ensure":
                spec = msgspec.convert(request["spec"], ServiceSpec)
                return await self.ensure(spec, float(request.get("timeout", 30)))
            case "remove":
                await self.remove(str(request["name"]))
                return {}
            case "shutdown":
                await self.shutdown()
                return {}
            case other:
                return {"error": f"unknown request {other!r}"}


def services_file(region: paths.RegionPaths) -> Path:
    """What the supervisor is to run: written by it, read when it starts."""
    return region.supervisor / "services.json"


def running_mark(region: paths.RegionPaths) -> Path:
    """Exists while the region is meant to run: `up` makes it, `down` and an orderly shutdown remove it."""
    return region.supervisor / "running"


def identity_file(region: paths.RegionPaths, who: str) -> Path:
    """Where the region's `supervisor` and `guardian` say which processes they are."""
    return region.supervisor / f"{who}.json"


async def _serve(settings: Settings) -> None:
    region = paths.RegionPaths(settings.region)
    lock = await _only_one(region)
    if lock is None:
        log.error("another supervisor runs this region")
        return
    write_json(identity_file(region, "supervisor"), ProcessRef.of(os.getpid()))
    supervisor = Supervisor(region)
    supervisor.start()
    door = _Door(supervisor, socket_path(region))
    await door.open()
    watches = [asyncio.create_task(_watch_guardian(settings, region)), asyncio.create_task(door.keep_open())]
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    log.info("supervisor runs", extra={"region": settings.region})
    await asyncio.wait(
        [asyncio.create_task(supervisor.stopped.wait()), asyncio.create_task(leaving.wait())],
        return_when=asyncio.FIRST_COMPLETED,
    )
    for watch in watches:
        watch.cancel()
    if not supervisor.stopped.is_set():
        await supervisor.shutdown()
    door.close()
    running_mark(region).unlink(missing_ok=True)
    lock.close()


class _Door:
    """The socket that `regionctl` speaks to. Runtime directories get cleaned (a user logs out): it is opened again."""

    def __init__(self, supervisor: Supervisor, socket: Path) -> None:
        self._supervisor = supervisor
        self._socket = socket
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def open(self) -> None:
        paths.own_runtime()
        self._socket.parent.mkdir(exist_ok=True, mode=0o700)
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._supervisor.answer, str(self._socket), limit=16 * 1024 * 1024
        )
        self._inode = self._socket.stat().st_ino

    async def keep_open(self) -> None:
        while True:
            await asyncio.sleep(_DOOR_SECONDS)
            with contextlib.suppress(OSError, UserError):
                if self._is_ours():
                    continue
                log.warning("the supervisor's socket is gone; opening it again", extra={"socket": str(self._socket)})
                if self._server is not None:
                    self._server.close()
                await self.open()

    def _is_ours(self) -> bool:
        try:
            return self._socket.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._is_ours():
            self._socket.unlink(missing_ok=True)


async def _only_one(region: paths.RegionPaths) -> IO[bytes] | None:
    """Two supervisors of one region would fight over its services. A dying one gets a moment to leave."""
    region.supervisor.mkdir(parents=True, exist_ok=True)
    handle = (region.supervisor / "lock").open("wb")
    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        await asyncio.sleep(0.1)
    handle.close()
    return None


async def _watch_guardian(settings: Settings, region: paths.RegionPaths) -> None:
    """The guardian restarts us; we restart it. It only has to outlive one of the two."""
    from regional.local import guardian

    pid = settings.guardian
    while True:
        ref = ProcessRef.of(pid) if pid else None
        if ref is not None:
            await ref.wait()
        await asyncio.sleep(0.1)
        if not running_mark(region).exists():
            return  # `down` is at work
        with contextlib.suppress(OSError):
            pid = guardian.start(settings.region, supervisor_pid=os.getpid())
            log.warning("guardian was gone; started another", extra={"pid": pid})


def main(argv: list[str]) -> int:
    setup_logging("supervisor")
    try:
        run(_serve(load(Settings, argv, {})))
    except UserError as error:
        log.error("the supervisor cannot run", extra={"reason": error.message, "hint": error.hint})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

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
from regional.core.files import write_json
from regional.core.logs import setup_logging
from regional.core.loop import run
from regional.core.process import ProcessRef
from regional.core.settings import load
from regional.local import pods
from regional.local.service import Service
from regional.local.supervisor_client import ServiceSpec, socket_path

log = logging.getLogger(__name__)

WARM = "warm"
_LAST = ("aws", WARM)  # stopped last: others may still need them while they leave


class Settings(msgspec.Struct):
    region: str
    guardian: int = 0


class Supervisor:
    def __init__(self, region: paths.RegionPaths) -> None:
        self._region = region
        self._directory = region.supervisor
        self._file = self._directory / "services.json"
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
            return msgspec.json.decode(self._file.read_bytes(), type=list[ServiceSpec])
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
            status = service.status()
            if service.hopeless:
                raise RuntimeError(f"{spec.name} {status.message}")
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


def running_mark(region: paths.RegionPaths) -> Path:
    """Exists while the region is meant to run: `up` makes it, an orderly shutdown removes it."""
    return region.supervisor / "running"


async def _serve(settings: Settings) -> None:
    region = paths.RegionPaths(settings.region)
    lock = await _only_one(region)
    if lock is None:
        log.error("another supervisor runs this region")
        return
    socket = socket_path(region)
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    socket.unlink(missing_ok=True)
    supervisor = Supervisor(region)
    supervisor.start()
    server = await asyncio.start_unix_server(supervisor.answer, str(socket), limit=16 * 1024 * 1024)
    watch = asyncio.create_task(_watch_guardian(settings))
    loop = asyncio.get_running_loop()
    leaving = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    log.info("supervisor runs", extra={"region": settings.region})
    await asyncio.wait(
        [asyncio.create_task(supervisor.stopped.wait()), asyncio.create_task(leaving.wait())],
        return_when=asyncio.FIRST_COMPLETED,
    )
    watch.cancel()
    if not supervisor.stopped.is_set():
        await supervisor.shutdown()
    server.close()
    socket.unlink(missing_ok=True)
    running_mark(region).unlink(missing_ok=True)
    lock.close()


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


async def _watch_guardian(settings: Settings) -> None:
    """The guardian restarts us; we restart it. It only has to outlive one of the two."""
    from regional.local import guardian

    pid = settings.guardian
    while True:
        ref = ProcessRef.of(pid) if pid else None
        if ref is not None:
            await ref.wait()
        await asyncio.sleep(0.1)
        with contextlib.suppress(OSError):
            pid = guardian.start(settings.region, supervisor_pid=os.getpid())
            log.warning("guardian was gone; started another", extra={"pid": pid})


def main(argv: list[str]) -> int:
    setup_logging("supervisor")
    run(_serve(load(Settings, argv, {})))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

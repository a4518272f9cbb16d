"""One supervised service: started, probed, restarted with backoff, adopted when its supervisor was restarted.

Before a process runs its first instruction it has written its pid and start time to a file, so that there is no moment
at which a killed supervisor could leave a process that nobody knows of.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import ssl
import subprocess
import urllib.parse
from datetime import datetime
from pathlib import Path

import aiohttp
import msgspec

from regional.core.clock import Clock, SystemClock, rfc3339
from regional.core.process import ProcessRef, is_stopped, start_ticks
from regional.core.spawn import SpawnError, SpawnRequest, spawn
from regional.local import postgres_door
from regional.local.ports import holder
from regional.local.supervisor_client import ServiceSpec, ServiceStatus

log = logging.getLogger(__name__)

_PROBE_INTERVAL = 0.05
_DOOR_SECONDS, _DOOR_MISSES = 10.0, 3
_LAUNCH_SECONDS = 20.0
_BACKOFF_FIRST, _BACKOFF_CAP, _SETTLED_SECONDS = 0.1, 5.0, 10.0


class AddressTaken(OSError):
    """Not ours to solve: waiting would not help, a person has to."""


class Service:
    def __init__(self, spec: ServiceSpec, directory: Path, warm_socket: Path, clock: Clock | None = None) -> None:
        self.spec = spec
        self._clock: Clock = clock or SystemClock()
        self._pid_file = directory / "run" / f"{spec.name}.json"
        self._log_file = directory / "logs" / f"{spec.name}.log"
        self._log_start = 0  # where the present process began to write
        self._warm_socket = warm_socket
        self._ref: ProcessRef | None = None
        self._state: str = "starting"
        self._since: datetime = self._clock.now()
        self._message = ""
        self._restarts = 0
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._launching: asyncio.Task[ProcessRef] | None = None
        self.hopeless = ""
        """Why waiting cannot help, whatever the next attempt is just doing."""

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    def status(self) -> ServiceStatus:
        state, message = self._state, self._message
        if self._ref is not None and state == "ready" and is_stopped(self._ref.pid):
            state, message = "stopped", f"by a signal; `kill -CONT {self._ref.pid}` lets it go on"
        return ServiceStatus(
            name=self.spec.name,
            description=self.spec.description,
            state=state,  # type: ignore[arg-type]
            address=self.spec.address,
            pid=self._ref.pid if self._ref and state in ("ready", "starting") else 0,
            since=rfc3339(self._since),
            restarts=self._restarts,
            message=message,
            log=str(self._log_file),
        )

    def start(self, gate: asyncio.Future[None] | None = None) -> None:
        self._task = asyncio.create_task(self._keep_running(gate), name=f"service-{self.spec.name}")

    async def wait_ready(self, timeout: float) -> bool:
        """Ends early when waiting cannot help."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._ready.is_set() and not self.hopeless:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.5):
                            await self._ready.wait()
        return self._ready.is_set()

    async def abandon(self) -> None:
        """Stop watching, leave the process running (the next supervisor adopts it)."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._settle_launch()

    async def stop(self) -> None:
        await self.abandon()
        ref = self._ref or self._recorded()
        if ref is not None:
            await ref.stop(self.spec.stop_grace, signal.Signals[f"SIG{self.spec.stop_signal}"])
        self._pid_file.unlink(missing_ok=True)
        self._set("stopped")
        self._ready.clear()

    def last_log_lines(self, count: int = 5) -> str:
        try:
            with self._log_file.open("rb") as stream:
                stream.seek(max(0, self._log_file.stat().st_size - 8192))
                return "\n".join(stream.read().decode(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def _complaint(self) -> str:
        """Why the process gave up, if it said so: one line of its log, and the hint after it."""
        try:
            with self._log_file.open("rb") as stream:
                stream.seek(max(self._log_start, self._log_file.stat().st_size - 8192))
                lines = stream.read().decode(errors="replace").splitlines()[-2:]
        except OSError:
            return ""
        said = [line for line in lines if line.startswith(("error: ", "hint: "))]
        return ": " + "; ".join(said) if said and said[0].startswith("error: ") else ""

    def _set(self, state: str, message: str = "") -> None:
        if state != self._state:
            self._since = self._clock.now()
        self._state, self._message = state, message

    def _recorded(self) -> ProcessRef | None:
        try:
            ref = msgspec.json.decode(self._pid_file.read_bytes(), type=ProcessRef)
        except (OSError, msgspec.DecodeError):
            return None
        return ref if ref.alive() else None

    async def _keep_running(self, gate: asyncio.Future[None] | None) -> None:
        self._ref = self._recorded()
        if self._ref is not None:
            log.info("adopted", extra={"service": self.spec.name, "pid": self._ref.pid})
        if gate is not None and self._ref is None:
            self._set("waiting", "for " + ", ".join(self.spec.needs))
            await gate
        delay = _BACKOFF_FIRST
        while True:
            started = self._clock.monotonic()
            self._set("starting")
            try:
                if self._ref is None:
                    self._launching = asyncio.create_task(self._launch(), name=f"launch-{self.spec.name}")
                    self._ref = await asyncio.shield(self._launching)
                    self._launching = None
                await self._until_ready_or_dead(self._ref)
                if self._ref.alive():
                    self.hopeless = ""
                    self._set("ready")
                    self._ready.set()
                    await self._until_dead_or_doorless(self._ref)
                message = f"process {self._ref.pid} ended" + self._complaint()
            except (OSError, SpawnError) as error:
                message = f"cannot start: {error}"
                self.hopeless = message if isinstance(error, AddressTaken) else ""
            self._ready.clear()
            self._ref = None
            self._restarts += 1
            if self._clock.monotonic() - started > _SETTLED_SECONDS:
                delay = _BACKOFF_FIRST
            self._set("failed", message)
            log.warning("service ended", extra={"service": self.spec.name, "reason": message, "retry_seconds": delay})
            await self._clock.sleep(delay)
            delay = min(_BACKOFF_CAP, delay * 2)

    async def _settle_launch(self) -> None:
        """A request that is with the warm parent cannot be taken back: who leaves meanwhile waits for what it makes."""
        launching, self._launching = self._launching, None
        if launching is None:
            return
        await asyncio.wait([launching], timeout=_LAUNCH_SECONDS)
        if not launching.done():
            launching.cancel()
            log.error("the warm parent does not answer", extra={"service": self.spec.name, "seconds": _LAUNCH_SECONDS})
        elif launching.exception() is None:
            self._ref = launching.result()

    async def _launch(self) -> ProcessRef:
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log_file.stat().st_size if self._log_file.exists() else 0
        if taken := holder(self.spec.address):
            raise AddressTaken(f"{self.spec.address} is taken by {taken}; stop that program")
        self._pid_file.unlink(missing_ok=True)  # of a process that is gone: a fork would take it for its twin
        if self.spec.kind == "fork":
            return await spawn(
                self._warm_socket,
                SpawnRequest(
                    argv=self.spec.argv,
                    env={**_base_environment(), **self.spec.env},
                    cwd=self.spec.cwd or "/",
                    log=str(self._log_file),
                    state_file=str(self._pid_file),
                    title=self.spec.name,
                ),
            )
        return self._launch_program()

    def _launch_program(self) -> ProcessRef:
        identity = os.open(self._pid_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

        def record() -> None:
            pid = os.getpid()
            os.write(identity, b'{"pid":%d,"start":%d}' % (pid, start_ticks(pid) or 0))

        user = self.spec.user
        options = {"user": user, "group": _group(user), "extra_groups": []} if user else {}
        try:
            with self._log_file.open("ab") as output:
                child = subprocess.Popen(  # type: ignore[call-overload]
                    self.spec.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**_base_environment(), **self.spec.env},
                    cwd=self.spec.cwd or "/",
                    start_new_session=True,
                    preexec_fn=record,
                    **options,
                )
        finally:
            os.close(identity)
        ref = ProcessRef.of(child.pid)
        if ref is None:
            raise OSError(f"{self.spec.argv[0]} ended at once: {self.last_log_lines(1)}")
        _reap_in_background(child)
        return ref

    async def _until_ready_or_dead(self, ref: ProcessRef) -> None:
        while ref.alive():
            if await probe(self.spec.ready):
                return
            await self._clock.sleep(_PROBE_INTERVAL)

    async def _until_dead_or_doorless(self, ref: ProcessRef) -> None:
        """A process that lives but cannot be reached any more (its socket was removed, say) is started anew."""
        missed = 0
        while ref.alive():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DOOR_SECONDS):
                    await ref.wait()
            missed = missed + 1 if await door_is_gone(self.spec.ready) else 0
            if missed >= _DOOR_MISSES and ref.alive():
                log.warning("it lives but nobody can reach it", extra={"service": self.spec.name, "pid": ref.pid})
                await ref.stop(self.spec.stop_grace, signal.Signals[f"SIG{self.spec.stop_signal}"])


_children: set[asyncio.Task[None]] = set()


def _reap_in_background(child: subprocess.Popen[bytes]) -> None:
    """A dead child must be reaped at once: PostgreSQL refuses to start while its old pid still exists."""

    async def reap() -> None:
        ref = ProcessRef.of(child.pid)
        if ref is not None:
            await ref.wait()
        while child.poll() is None:
            await asyncio.sleep(0.01)

    task = asyncio.create_task(reap())
    _children.add(task)
    task.add_done_callback(_children.discard)


def _group(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


def _base_environment() -> dict[str, str]:
    keep = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
    return {name: os.environ[name] for name in keep if name in os.environ}


async def probe(ready: str) -> bool:
    kind, _, target = ready.partition(":")
    try:
        if kind == "tcp":
            await _connect(*target.rsplit(":", 1))
        elif kind == "unix":
            async with asyncio.timeout(2):
                _, writer = await asyncio.open_unix_connection(target)
            writer.close()
        elif kind in ("http", "https"):
            return await _answers(ready)
        elif kind == "postgres":
            return await postgres_door.lets_in(*_host_and_port(target))
        return True
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False


async def door_is_gone(ready: str) -> bool:
    """Refused at once, or no socket there, or a PostgreSQL that never lets anybody in again. Slow is not gone: a loaded
    or a stopped process keeps its door."""
    kind, _, target = ready.partition(":")
    try:
        if kind == "unix":
            async with asyncio.timeout(2):
                _, writer = await asyncio.open_unix_connection(target)
            writer.close()
        elif kind == "tcp":
            await _connect(*target.rsplit(":", 1))
        elif kind == "postgres":
            return await postgres_door.is_stuck(*_host_and_port(target))
        elif kind in ("http", "https"):
            address = urllib.parse.urlsplit(ready)
            await _connect(str(address.hostname), str(address.port))
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, TimeoutError):
        return False
    return False


def _host_and_port(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    return host, int(port)


async def _connect(host: str, port: str) -> None:
    async with asyncio.timeout(2):
        _, writer = await asyncio.open_connection(host, int(port))
    writer.close()


async def _answers(url: str) -> bool:
    """Any answer but a server error. A bare connect goes first: it is cheap, and mostly there is nobody yet."""
    address = urllib.parse.urlsplit(url)
    await _connect(str(address.hostname), str(address.port))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
        async with session.get(url, ssl=_unverified() if address.scheme == "https" else False) as answer:
            return answer.status < 500


@functools.cache
def _unverified() -> ssl.SSLContext:
    """Whether it answers is all that is asked; nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context

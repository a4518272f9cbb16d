"""The warm parent: a process that has imported everything and forks itself on request.

One thread, one select loop, no event loop, no client of anything: what a fork may safely copy. Requests are JSON lines
on a Unix socket (core.spawn is the client). Children belong to themselves (own session, no death signal): they outlive
this process and are then adopted by the region's guardian.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.core import process_title
from regional.core.forked import become
from regional.core.logs import setup_logging
from regional.core.packing import fill_holes
from regional.core.problems import UserError
from regional.core.settings import load
from regional.core.spawn import SpawnRequest, read_state, write_exit

log = logging.getLogger(__name__)

# Imported before the first fork so that all children share the pages. None of them starts a thread.
MODULES = (
    "asyncpg",
    "msgspec",
    "starlette.applications",
    "starlette.requests",
    "starlette.responses",
    "starlette.routing",
    "uvicorn",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.loops.uvloop",
    "httptools",
    "uvloop",
    "aiohttp",
    "cryptography.x509",
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.backends.openssl.backend",
    "awscrt.mqtt5",
    "yaml",
    "jwt",
    "prometheus_client",
    "botocore.auth",
    "botocore.awsrequest",
    "botocore.credentials",
    "jmespath",
    "sqlite3",
    "click",
    "regional.core.loop",
    "regional.core.web",
    "regional.core.reconcile",
    "regional.kube.apiserver.main",
    "regional.kube.preload",
    "regional.kube.node.main",
    "regional.gitops.main",
    "regional.gateway.main",
    "regional.platform_api.main",
    "regional.clm.api.main",
    "regional.clm.sentinel.main",
    "regional.clm.adapter.main",
    "regional.maestro.server.main",
    "regional.maestro.agent.main",
    "regional.hypershift.main",
    "regional.cloud.preload",
    "regional.local.provisioner.command",
    "regional.local.registration",
    "regional.local.customer",
    "regional.pipelines.tasks",
    "regional.gitops.bootstrap",
    "regional.cli.steps",
    "regional.cli.serve",
)
_REQUEST_LIMIT = 4 << 20
_STREAMS = 3
Entry = Callable[[list[str]], int]


class WarmSettings(msgspec.Struct):
    socket: str
    modules: list[str] = []  # instead of MODULES
    entry: str = "regional.cli.main:main"  # what an argv that starts with `regionctl` is handed to


class _Child(msgspec.Struct):
    start: int
    exit_file: str
    state_file: str
    title: str


class _Client(msgspec.Struct):
    connection: socket.socket
    received: bytearray
    descriptors: list[int]  # sent along, for the next request


class WarmParent:
    def __init__(self, socket_path: Path, entry: Entry) -> None:
        self._path = socket_path
        self._entry = entry
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._stopping = False

    def serve(self) -> None:
        listener = _listen(self._path)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(wake_read, selectors.EVENT_READ)
        log.info("warm parent ready", extra={"socket": str(self._path), "modules": len(sys.modules)})
        while not self._stopping:
            for key, _ in self._selector.select():
                if key.fileobj is listener:
                    self._accept(listener)
                elif key.fileobj == wake_read:
                    os.read(wake_read, 4096)
                    self._reap()
                else:
                    self._receive(key.data)
        self._path.unlink(missing_ok=True)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, _Client(connection, bytearray(), []))

    def _receive(self, client: _Client) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(client.connection, 1 << 16, _STREAMS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        client.descriptors += descriptors
        client.received += data
        while (end := client.received.find(b"\n")) >= 0:
            line = bytes(client.received[:end])
            del client.received[: end + 1]
            self._answer(client, line)
        if len(client.received) > _REQUEST_LIMIT:
            self._reply(client, {"error": f"a request may have {_REQUEST_LIMIT} bytes"})
            data = b""
        if not data:
            self._selector.unregister(client.connection)
            client.connection.close()
            _close(client.descriptors)

    def _answer(self, client: _Client, line: bytes) -> None:
        try:
            request = msgspec.json.decode(line, type=SpawnRequest)
            if not request.argv:
                raise ValueError("argv is empty")
            if request.streams and len(client.descriptors) != _STREAMS:
                raise ValueError(f"{_STREAMS} descriptors are needed, {len(client.descriptors)} came")
            answer = self._spawn(request, client.descriptors)
        except (msgspec.MsgspecError, ValueError, OSError) as error:
            answer = {"error": f"cannot spawn: {error}"}
            log.warning("request refused", extra={"reason": str(error)})
        finally:
            _close(client.descriptors)
        self._reply(client, answer)

    @staticmethod
    def _reply(client: _Client, answer: dict[str, int | str]) -> None:
        try:
            client.connection.send(msgspec.json.encode(answer) + b"\n")
        except OSError:
            log.info("asker left before the answer", extra=dict(answer))

    def _spawn(self, request: SpawnRequest, streams: list[int]) -> dict[str, int | str]:
        if request.state_file and (existing := read_state(Path(request.state_file))):
            return {"pid": existing.pid, "start": existing.start}
        began = time.perf_counter()
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            become(request, ready_write, self._entry, streams)  # does not return
        os.close(ready_write)
        child = _Child(_start_of(pid), request.exit_file, request.state_file, request.title)
        self._children[pid] = child
        # End of file says that the child is set up (an exec has happened); text says why it could not be.
        with os.fdopen(ready_read, "rb") as stream:
            problem = stream.read().decode(errors="replace")
        if problem:
            return {"error": problem}
        milliseconds = round((time.perf_counter() - began) * 1000, 1)
        log.info("forked", extra={"pid": pid, "title": request.title, "milliseconds": milliseconds})
        return {"pid": pid, "start": child.start}

    def _reap(self) -> None:
        while self._children:
            try:
                # The exit file first, the zombie after: core.spawn.wait_exit relies on this order.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            child = self._children.pop(ended.si_pid, None)
            if child is not None:
                self._record(ended.si_pid, child, ended)
            os.waitpid(ended.si_pid, 0)

    @staticmethod
    def _record(pid: int, child: _Child, ended: os.waitid_result) -> None:
        number = 0 if ended.si_code == os.CLD_EXITED else ended.si_status
        code = 128 + number if number else ended.si_status
        log.info("child ended", extra={"pid": pid, "title": child.title, "code": code, "signal": number})
        if not child.exit_file:
            return
        if child.state_file:
            owner = read_state(Path(child.state_file))
            if owner is None or owner.pid != pid:
                return  # it lost the race for its state file, so it never ran
        try:
            write_exit(child.exit_file, code, number)
        except OSError as error:  # its directory was removed meanwhile
            log.info("no exit file", extra={"pid": pid, "reason": str(error)})


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _start_of(pid: int) -> int:
    """Unlike start_ticks also for a zombie: a short-lived child may have ended before we look."""
    raw = Path(f"/proc/{pid}/stat").read_bytes()
    return int(raw[raw.rindex(b")") + 2 :].split()[19])


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise UserError(f"another warm parent serves {path}", hint="stop it first")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(256)
    listener.setblocking(False)
    return listener


def warm_up(modules: tuple[str, ...] | list[str]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # one broken role must not take all others down
            log.warning("module skipped", extra={"skipped": name, "reason": str(error)})


def main(argv: list[str]) -> int:
    settings = load(WarmSettings, argv)
    setup_logging("warm")
    gc.disable()  # garbage found before the freeze would leave holes in pages that children share
    began = time.perf_counter()
    module, _, function = settings.entry.partition(":")
    entry: Entry = getattr(importlib.import_module(module), function)
    warm_up(settings.modules or MODULES)
    gc.collect()
    fill_holes()
    gc.freeze()
    process_title.set_name("warm")
    log.info("imports done", extra={"seconds": round(time.perf_counter() - began, 2)})
    WarmParent(Path(settings.socket), entry).serve()
    return 0

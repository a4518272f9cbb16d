"""The client's side of the warm parent: ask for a process, learn how it ended.

Starting an interpreter and importing our libraries costs seconds of CPU and tens of megabytes for every pod; a fork of
a parent that has done it costs milliseconds and shares the pages (the parent itself: core.warm).

No process may get lost, whoever dies when. So a request names a `state_file`, and the *child* links its own pid and
start time there before it runs anything else: link(2) succeeds for one child only, so repeating a request (the asker
died, the warm parent died) never gives two processes. How it ended is in `exit_file`: written by the child when it
leaves by itself, by the warm parent when a signal ended it. With neither, it was killed together with its warm parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from regional.core.process import ProcessRef

KILLED = 137  # 128 + SIGKILL, what a shell and Kubernetes say
_LINE_LIMIT = 4 << 20
_LOOKS, _LOOKS_AT_AN_ORPHAN = 6000, 200  # for an exit file, a hundred a second


class SpawnRequest(msgspec.Struct):
    argv: list[str]
    env: dict[str, str]  # complete: nothing of the warm parent's own environment is passed on
    cwd: str = "/"
    log: str = ""  # appended to by stdout and stderr; "" discards
    exit_file: str = ""
    state_file: str = ""
    title: str = ""
    streams: bool = False  # three descriptors come with the request: its standard input, output and error
    terminal: bool = False  # they are a terminal, which becomes the process's own


class ExitStatus(msgspec.Struct):
    code: int
    signal: int = 0
    finished: str = ""  # RFC 3339
    problem: str = ""  # why it never came to run


class SpawnError(Exception):
    """The warm parent answered, and said no: the message says why."""


class _Answer(msgspec.Struct):
    pid: int = 0
    start: int = 0
    error: str = ""


async def spawn(socket_path: Path, request: SpawnRequest) -> ProcessRef:
    """Raises SpawnError if the request is refused, OSError if the warm parent is not there (try again)."""
    reader, writer = await asyncio.open_unix_connection(str(socket_path), limit=_LINE_LIMIT)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    return _parse(line)


async def spawn_with(socket_path: Path, request: SpawnRequest, streams: tuple[int, int, int]) -> ProcessRef:
    """Like `spawn`, for a process that reads and writes the asker's own descriptors (they may be closed after)."""
    loop = asyncio.get_running_loop()
    request.streams = True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(socket_path))
        # Descriptors travel with the first byte; the rest may be longer than the socket's buffer.
        socket.send_fds(connection, [b" "], streams)
        await loop.sock_sendall(connection, msgspec.json.encode(request) + b"\n")
        line = b""
        while not line.endswith(b"\n") and (data := await loop.sock_recv(connection, 1 << 16)):
            line += data
    return _parse(line)


def spawn_sync(socket_path: Path, request: SpawnRequest) -> ProcessRef:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(socket_path))
        connection.sendall(msgspec.json.encode(request) + b"\n")
        with connection.makefile("rb") as stream:
            line = stream.readline(_LINE_LIMIT)
    return _parse(line)


def _parse(line: bytes) -> ProcessRef:
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the warm parent went away before it answered")
    answer = msgspec.json.decode(line, type=_Answer)
    if answer.error:
        raise SpawnError(answer.error)
    return ProcessRef(answer.pid, answer.start)


def read_state(path: Path) -> ProcessRef | None:
    """The process that a state file names; None while no child has written it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessRef)
    except (OSError, msgspec.MsgspecError):
        return None


def read_exit(path: Path) -> ExitStatus | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ExitStatus)
    except (OSError, msgspec.MsgspecError):
        return None


async def wait_exit(process: ProcessRef, exit_file: Path) -> ExitStatus:
    """Waits for the end of a process and says how it ended, also to those who are not its parent."""
    await process.wait()
    # The warm parent writes the file before it reaps, so while it has a zombie the file may still come, and one that is
    # only slow must not make a failure of a success. Of an orphan's end nobody writes, and its zombie may stay.
    for looks in range(_LOOKS):
        if (status := read_exit(exit_file)) is not None:
            return status
        parent = _parent_of_zombie(process.pid)
        if parent is None or (parent <= 1 and looks >= _LOOKS_AT_AN_ORPHAN):
            break
        await asyncio.sleep(0.01)
    return read_exit(exit_file) or ExitStatus(KILLED, 9, timestamp())


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_exit(path: str, code: int, signal: int = 0, problem: str = "") -> None:
    """First writer wins: the child's own word is better than what its parent sees."""
    publish(path, {"code": code, "signal": signal, "finished": timestamp(), "problem": problem})


def publish(path: str, value: dict[str, int | str]) -> bool:
    """A whole file or none, and only once: False if it exists already."""
    temporary = f"{path}.{os.getpid()}"
    Path(temporary).write_text(json.dumps(value) + "\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink()
    return True


def _parent_of_zombie(pid: int) -> int | None:
    """Who has not yet asked how it ended; None if somebody has."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, parent = raw[raw.rindex(b")") + 2 :].split(maxsplit=2)[:2]
    return int(parent) if state == b"Z" else None


def main(argv: list[str]) -> int:
    """Role `warm`. Imported late: whoever only asks for processes need not carry the parent."""
    from regional.core.warm import main as warm_main

    return warm_main(argv)

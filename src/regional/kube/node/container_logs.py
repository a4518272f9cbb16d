"""Reading and rotating what containers print.

A process writes its log by itself (O_APPEND), so it never waits for the node and loses nothing when the node dies. The
price: a file is rotated by copying and truncating, and a line's time is what the line itself says (our roles log JSON
with a `time`), else the container's start.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from regional.core.clock import Clock
from regional.kube.objects import parse_time

_BLOCK = 64 * 1024
_FOLLOW_SECONDS = 0.2
_KEPT = 2


class LogOptions(msgspec.Struct, frozen=True):
    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class _Timed(msgspec.Struct):
    time: str = ""


def parse_options(query: dict[str, str], now: datetime) -> LogOptions:
    """Raises ValueError with a text for the client."""

    def number(name: str) -> int | None:
        if name not in query:
            return None
        if not query[name].isdigit():
            raise ValueError(f"{name} must be a whole number, not {query[name]!r}")
        return int(query[name])

    since = parse_time(query.get("sinceTime"))
    if (seconds := number("sinceSeconds")) is not None:
        since = now - timedelta(seconds=seconds)
    return LogOptions(
        follow=_is_true(query, "follow"),
        tail_lines=number("tailLines"),
        since=since,
        timestamps=_is_true(query, "timestamps"),
        limit_bytes=number("limitBytes"),
    )


def _is_true(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


async def read_log(
    path: Path, options: LogOptions, started: str, running: Callable[[], bool], clock: Clock
) -> AsyncIterator[bytes]:
    """Chunks of whole lines; with `follow`, until the container has ended and all of it is read."""
    left = options.limit_bytes
    for chunk in _chunks(path, options, started, running):
        if chunk is None:
            await clock.sleep(_FOLLOW_SECONDS)
            continue
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        if chunk:
            yield chunk
        if left == 0:
            return
        await asyncio.sleep(0)


def _chunks(path: Path, options: LogOptions, started: str, running: Callable[[], bool]) -> Iterator[bytes | None]:
    """None means: nothing new, look again later."""
    dress = _Dresser(options, started)
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        stream.seek(_tail_offset(stream.fileno(), options.tail_lines))
        rest = b""
        while True:
            alive = running()  # before reading: what a process wrote before it ended must still be read
            block = stream.read(_BLOCK)
            if block:
                lines = (rest + block).split(b"\n")
                rest = lines.pop()
                yield dress(lines)
            elif options.follow and alive:
                if os.fstat(stream.fileno()).st_size < stream.tell():
                    stream.seek(0)  # rotated under us
                yield None
            else:
                break
        if rest:
            yield dress([rest])


class _Dresser:
    """Filters by time and puts times in front, where asked for; otherwise bytes pass as they are."""

    def __init__(self, options: LogOptions, started: str) -> None:
        self._options = options
        self._last = started
        self._plain = options.since is None and not options.timestamps

    def __call__(self, lines: list[bytes]) -> bytes:
        if self._plain:
            return b"".join(line + b"\n" for line in lines)
        kept = []
        for line in lines:
            self._last = _time_of(line) or self._last
            moment = parse_time(self._last)
            if self._options.since and moment and moment < self._options.since:
                continue
            kept.append(f"{self._last} ".encode() + line if self._options.timestamps else line)
        return b"".join(line + b"\n" for line in kept)


def _time_of(line: bytes) -> str:
    if not line.startswith(b"{"):
        return ""
    try:
        return msgspec.json.decode(line, type=_Timed).time
    except msgspec.MsgspecError:
        return ""


def _tail_offset(descriptor: int, lines: int | None) -> int:
    """Where the last `lines` lines begin, found from the end."""
    if lines is None:
        return 0
    size = position = os.fstat(descriptor).st_size
    wanted = lines + 1
    while position > 0:
        start = max(0, position - _BLOCK)
        block = os.pread(descriptor, position - start, start)
        if position == size and not block.endswith(b"\n"):
            wanted -= 1
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A:
                wanted -= 1
                if wanted == 0:
                    return start + index + 1
        position = start
    return 0 if lines else size


def rotate(path: Path, limit: int) -> bool:
    """Copy and truncate a log that has grown beyond `limit`, keeping two old pieces."""
    try:
        if path.stat().st_size <= limit:
            return False
        for number in range(_KEPT, 1, -1):
            older = path.with_name(f"{path.name}.{number - 1}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number}"))
        with path.open("r+b") as source, path.with_name(f"{path.name}.1").open("wb") as target:
            shutil.copyfileobj(source, target, _BLOCK)
            # Lines that arrive between the last read and this call are lost; the copy loop makes that window tiny.
            source.truncate(0)
    except FileNotFoundError:
        return False
    return True

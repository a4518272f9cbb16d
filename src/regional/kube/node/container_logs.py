"""Reading and rotating what containers print.

A process writes its log by itself (O_APPEND), so it never waits for the node and loses nothing when the node dies. The
price: a file is rotated by copying its beginning and taking that out of it, and a line's time is what the line itself
says (our roles log JSON with a `time`), else the container's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import logging
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import msgspec

from regional.core.clock import Clock
from regional.kube.objects import parse_time

log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_COLLAPSE_RANGE = 0x08  # FALLOC_FL_COLLAPSE_RANGE of linux/falloc.h
_BLOCK = 64 * 1024
_FOLLOW_SECONDS = 0.2


class LogOptions(msgspec.Struct, frozen=True):
    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    offset: int | None = None  # where to begin, instead of a number of lines before the end


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
    rest = b""
    for block in _blocks(path, options, running):
        if block is None:
            yield None
            continue
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        yield dress(lines)
    if rest:
        yield dress([rest])


def _blocks(path: Path, options: LogOptions, running: Callable[[], bool]) -> Iterator[bytes | None]:
    """Every byte from the beginning that was asked for, also when the log is rotated meanwhile."""
    seen = _identity(_piece(path, 1))
    with contextlib.ExitStack() as opened:
        try:
            number = opened.enter_context(path.open("rb")).fileno()
        except FileNotFoundError:
            return
        position = _tail_offset(number, options.tail_lines) if options.offset is None else options.offset
        unread: deque[BinaryIO] = deque()  # old pieces, from where we had come to when they were one with the log
        while True:
            alive = running()  # before reading: what a process wrote before it ended must still be read
            if _identity(_piece(path, 1)) != seen:
                for file, identity in _newer_pieces(path, seen):
                    unread.append(opened.enter_context(file))
                    file.seek(position)
                    seen, position = identity, max(0, position - identity[-1])
            if unread:
                if block := unread[0].read(_BLOCK):
                    yield block
                else:
                    unread.popleft().close()
                continue
            block = os.pread(number, _BLOCK, position)
            position += len(block)
            if block:
                yield block
            elif options.follow and alive:
                yield None
            else:
                return


_Identity = tuple[int, int, int]


def _identity(piece: Path) -> _Identity | None:
    """Of the latest old piece: another one means that the log was rotated, by as many bytes as that has."""
    try:
        return _identity_of(piece.stat())
    except FileNotFoundError:
        return None


def _identity_of(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_size  # the number of one that is gone may be given out again


def _newer_pieces(path: Path, seen: _Identity | None) -> list[tuple[BinaryIO, _Identity]]:
    """The old pieces since the one that was seen, oldest first: whoever reads slowly misses more than one rotation."""
    found: list[tuple[BinaryIO, _Identity]] = []
    for number in itertools.count(1):
        try:
            file = _piece(path, number).open("rb")
        except FileNotFoundError:
            break
        identity = _identity_of(os.fstat(file.fileno()))
        if identity == seen:
            file.close()
            break
        if any(identity == other for _, other in found):  # it was moved on while we looked
            file.close()
        else:
            found.append((file, identity))
    return found[::-1]


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


def rotate(path: Path, limit: int, kept: int = 2) -> bool:
    """Move the content of a log that has grown beyond `limit` into a piece of its own, keeping this many of them."""
    moving = path.with_name(f"{path.name}.moving")
    try:
        if path.stat().st_size <= limit:
            return False
        _piece(path, kept).unlink(missing_ok=True)  # first: the disk may be full
        try:
            with path.open("r+b") as source, moving.open("wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
                target.flush()
                target.truncate(_take_out(source.fileno(), target.tell()))
        except OSError:
            moving.unlink(missing_ok=True)
            raise
        for number in range(kept - 1, 0, -1):
            if (older := _piece(path, number)).exists():
                older.replace(_piece(path, number + 1))
        moving.replace(_piece(path, 1))  # last: who follows the log takes it for the sign of its rotation
    except FileNotFoundError:
        return False
    except OSError as error:  # a full disk is no reason for the node to end; it is tried again
        log.warning("a log cannot be rotated: %s", error, extra={"file": str(path)})
        return False
    return True


def _piece(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _take_out(descriptor: int, copied: int) -> int:
    """Remove what was copied from the beginning of the file, as far as that goes; says how many bytes it were.

    ext4 and XFS can take whole blocks out from under a process that goes on writing. Elsewhere the file is emptied, and
    a line that arrives between the copy and that is lost.
    """
    block = os.fstatvfs(descriptor).f_bsize
    whole = (copied - 1) // block * block  # something must be left
    if whole > 0 and _libc.fallocate(descriptor, _COLLAPSE_RANGE, 0, whole) == 0:
        return whole
    os.ftruncate(descriptor, 0)
    return copied

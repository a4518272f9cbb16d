"""An append-only file of calls that survives a crash at any byte.

Frames are length, CRC-32, payload; a frame cut short by a crash was never acknowledged, so it is dropped. Appends are
synced by one thread in groups: calls that arrive while a sync runs share the next one. Nobody is answered before the
sync that covers what the answer shows.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from regional.core.files import write_atomic
from regional.core.problems import UserError

MAGIC = b"regional-aws-journal 1\n"
_FRAME = struct.Struct("<II")
_FRAME_LIMIT = 256 << 20


class Header(msgspec.Struct, array_like=True):
    root_seed: bytes  # for what moto makes up outside any call: default VPCs and the like
    moto_version: str


class JournalState(msgspec.Struct):
    header: Header
    payloads: list[bytes]
    dropped_bytes: int = 0


class Journal:
    """One writer (flock). `append` and `rewrite` belong to one thread; `wait_for` may be called from any."""

    def __init__(self, directory: Path, moto_version: str) -> None:
        self._path = directory / "journal"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock_file)
            raise UserError(
                f"another aws host keeps its journal in {directory}", hint="stop it first, or give another --journal"
            ) from None
        if not self._path.exists():
            header = Header(os.urandom(32), moto_version)
            write_atomic(self._path, MAGIC + frame(msgspec.msgpack.encode(header)))
        self.state = self._open()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._appended = 0
        self._synced = 0
        self._failure: OSError | None = None
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, Callable[[OSError | None], None]]] = []
        self._closing = False
        self._syncer = threading.Thread(target=self._sync_forever, name="journal-sync", daemon=True)
        self._syncer.start()

    @property
    def size(self) -> int:
        return self._path.stat().st_size

    @property
    def position(self) -> int:
        """Number of the last append: what an answer given now may have seen."""
        return self._appended

    def append(self, payload: bytes) -> int:
        data = frame(payload)
        with self._changed:
            if self._failure:
                raise self._failure
            try:
                written = 0
                while written < len(data):
                    written += os.write(self._file, data[written:])
            except OSError as error:  # disk full: memory is now ahead of the file, so only a restart is honest
                self._failure = error
                self._changed.notify()
                raise
            self._appended += 1
            self._changed.notify()
            return self._appended

    def when_synced(self, position: int, done: Callable[[OSError | None], None]) -> None:
        """Calls `done` (in some thread) once everything up to `position` is on disk, with the error if it cannot be."""
        with self._changed:
            if position > self._synced and self._failure is None:
                self._waiting.append((position, done))
                return
        done(self._failure)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Put a shorter history in place of the present one; whole or not at all."""
        with self._changed:
            header = frame(msgspec.msgpack.encode(self.state.header))
            write_atomic(self._path, b"".join([MAGIC, header, *map(frame, payloads)]))
            os.close(self._file)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            released = self._settle(self._appended)
        for done in released:
            done(None)

    def payloads(self) -> list[bytes]:
        return list(read_frames(self._path.read_bytes()[len(MAGIC) :]))[1:]

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._syncer.join()
        os.close(self._file)
        os.close(self._lock_file)

    def _open(self) -> JournalState:
        raw = self._path.read_bytes()
        if not raw.startswith(MAGIC):
            raise UserError(
                f"{self._path} was not written by this version",
                hint="`regionctl down --purge` starts afresh; keep a copy of the file if you need what is in it",
            )
        body = raw[len(MAGIC) :]
        frames = list(read_frames(body))
        if not frames:
            raise UserError(f"{self._path} has no readable header", hint="`regionctl down --purge` starts afresh")
        good = len(MAGIC) + sum(_FRAME.size + len(payload) for payload in frames)
        dropped = len(raw) - good
        if dropped:
            # Never acknowledged if a crash cut it; kept beside in case it is damage of another kind.
            write_atomic(self._path.with_name("journal.cut"), raw[good:])
            with self._path.open("r+b") as stream:
                stream.truncate(good)
                os.fsync(stream.fileno())
        header = msgspec.msgpack.decode(frames[0], type=Header)
        return JournalState(header, frames[1:], dropped)

    def _sync_forever(self) -> None:
        while True:
            with self._changed:
                while self._appended == self._synced and not self._closing and self._failure is None:
                    self._changed.wait()
                if self._failure is not None or self._appended == self._synced:
                    break
                target, descriptor = self._appended, os.dup(self._file)
            try:
                os.fdatasync(descriptor)
                failure = None
            except OSError as error:
                failure = error
            finally:
                os.close(descriptor)
            with self._changed:
                # After a failed sync the kernel may have dropped the pages: nothing later can be trusted either.
                self._failure = self._failure or failure
                released = self._settle(target)
            for done in released:
                done(self._failure)
        with self._changed:
            released = self._settle(self._synced)
        for done in released:
            done(self._failure)

    def _settle(self, target: int) -> list[Callable[[OSError | None], None]]:
        self._synced = max(self._synced, target)
        ready = [done for position, done in self._waiting if position <= self._synced or self._failure]
        self._waiting = [item for item in self._waiting if item[0] > self._synced and not self._failure]
        return ready


def frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def read_frames(raw: bytes) -> Iterator[bytes]:
    """Whole frames from the start; ends silently at the first that is not whole."""
    offset = 0
    while offset + _FRAME.size <= len(raw):
        length, checksum = _FRAME.unpack_from(raw, offset)
        payload = raw[offset + _FRAME.size : offset + _FRAME.size + length]
        if length > _FRAME_LIMIT or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload
        offset += _FRAME.size + length

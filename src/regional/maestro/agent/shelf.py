"""Works on disk, a file each: a restarted agent knows what it has, applies nothing anew that has not changed, and says
nothing that it has said already.

Only a help: whatever is lost or torn here comes again with the next resync, so files are replaced whole but not synced.
Two things must not be. A file that outlives its work would bring the dead back: it goes before the first object does.
And a file that is older than what is on the cluster would take it back: a new spec is written before it is applied.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path

import msgspec

from regional.core.mounts import mounted
from regional.maestro.agent.works import Work, Works

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
LARGEST = 16 * 1024 * 1024
_SUFFIX = ".work"
_NAME = re.compile(r"^[a-zA-Z0-9][-a-zA-Z0-9.]{0,127}\Z")
_encode = msgspec.json.Encoder().encode


class Shelf:
    def __init__(self, directory: str, place: str) -> None:
        """`place` is the consumer and the hub: another's works are not ours. Without a directory nothing is kept."""
        self._directory = mounted(directory) / place if directory else None
        self._dirty: dict[str, Work] = {}
        self._wake = asyncio.Event()
        self._complained = False

    def load(self, works: Works) -> int:
        """How many works were found."""
        if self._directory is None:
            return 0
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            paths = sorted(self._directory.iterdir())
        except OSError as error:
            self._complain(error)
            return 0
        found = [work for path in paths if (work := self._read(path)) is not None]
        for work in found:
            works.put_back(work, time.monotonic())
        return len(found)

    def _read(self, path: Path) -> Work | None:
        if path.suffix != _SUFFIX:
            path.unlink(missing_ok=True)  # of a write that was cut off
            return None
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError("it is larger than a work can be")
            return msgspec.json.decode(path.read_bytes(), type=Work)
        except (OSError, ValueError, RecursionError) as error:
            log.warning("a kept work cannot be read; it comes with the resync", extra={"reason": str(error)})
            path.unlink(missing_ok=True)
            return None

    def keep(self, work: Work) -> None:
        """Soon; many changes of one work are one write."""
        if self._directory is not None and _NAME.match(work.id):
            self._dirty[work.id] = work
            self._wake.set()

    def keep_now(self, work: Work) -> None:
        """Raises OSError if neither the new content can be written nor the old one removed."""
        self._dirty.pop(work.id, None)
        if self._directory is None or not _NAME.match(work.id):
            return
        try:
            self._write(work)
        except OSError as error:
            self._complain(error)
            self.drop(work)

    def drop(self, work: Work) -> None:
        """At once. Raises OSError: what is on the cluster must not be touched then."""
        self._dirty.pop(work.id, None)
        if self._directory is not None and _NAME.match(work.id):
            (self._directory / f"{work.id}{_SUFFIX}").unlink(missing_ok=True)

    async def keep_writing(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self.flush()
                await asyncio.sleep(FLUSH_SECONDS)
        finally:
            self.flush()

    def flush(self) -> None:
        while self._dirty:
            _, work = self._dirty.popitem()
            try:
                self._write(work)
                self._complained = False
            except OSError as error:
                self._complain(error)

    def _write(self, work: Work) -> None:
        assert self._directory is not None
        beside = self._directory / f"{work.id}.new"
        beside.write_bytes(_encode(work))
        beside.replace(self._directory / f"{work.id}{_SUFFIX}")

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            log.warning("works are not kept on disk", extra={"reason": str(error)})
            self._complained = True

"""The threads that write the files of all clusters of this process, and the files they have open.

Fair: a file goes to the end of the line after each batch, so a cluster that is flooded with writes shares the disk with
the others. Frugal: a file that nobody has written to for a while is closed, and so is the one that has rested longest
when too many are open; a thousand clusters then need neither a thousand threads nor four thousand descriptors.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Protocol

THREADS = 4  # commits of different clusters that may wait for the disk at the same time
OPEN_FILES = 64  # each costs three descriptors
IDLE_SECONDS = 60.0


class WrittenFile(Protocol):
    def commit_some(self) -> bool:
        """Commits one batch; says whether there is more. Never raises."""

    def rest(self) -> bool:
        """Closes the file unless it is being written to; says whether it is closed now."""


class Writers:
    def __init__(self, threads: int = THREADS, open_files: int = OPEN_FILES, idle: float = IDLE_SECONDS) -> None:
        self._limit, self._open_limit, self._idle = threads, open_files, idle
        self._line: queue.SimpleQueue[WrittenFile] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._threads = 0
        self._waiting = 0
        self._open: dict[WrittenFile, float] = {}  # in the order of their last use

    def wake(self, file: WrittenFile) -> None:
        """`file` has something to commit. To be called once until its `commit_some` has said that there is no more."""
        self._line.put(file)
        if self._threads < self._limit and self._line.qsize() > self._waiting:
            with self._mutex:
                if self._threads == self._limit:
                    return
                self._threads += 1
            threading.Thread(target=self._work, name="storage", daemon=True).start()

    def opened(self, file: WrittenFile) -> None:
        """Note that the file is open (and has just been used), and let others rest if these are too many."""
        self._note(file)
        if len(self._open) > self._open_limit:
            with self._mutex:
                surplus = list(self._open)[: len(self._open) - self._open_limit]
            self._let_rest(surplus)

    def _note(self, file: WrittenFile) -> None:
        with self._mutex:
            self._open.pop(file, None)
            self._open[file] = time.monotonic()

    def closed(self, file: WrittenFile) -> None:
        with self._mutex:
            self._open.pop(file, None)

    @property
    def open_files(self) -> int:
        return len(self._open)

    def _work(self) -> None:
        while True:
            with self._mutex:
                self._waiting += 1
            try:
                file = self._line.get(timeout=self._idle if self._open else None)
            except queue.Empty:
                self._let_rest(self._idle_files())
                continue
            finally:
                with self._mutex:
                    self._waiting -= 1
            self.opened(file)
            if file.commit_some():
                self._line.put(file)

    def _idle_files(self) -> list[WrittenFile]:
        before = time.monotonic() - self._idle
        with self._mutex:
            return [file for file, used in self._open.items() if used <= before]

    def _let_rest(self, files: list[WrittenFile]) -> None:
        for file in files:
            self.closed(file)  # before it is: if a writer opens it again meanwhile, its note stays
            if not file.rest():
                self._note(file)


_shared: tuple[int, Writers] | None = None


def shared() -> Writers:
    """This process's own: threads do not survive a fork."""
    global _shared
    if _shared is None or _shared[0] != os.getpid():
        _shared = (os.getpid(), Writers())
    return _shared[1]

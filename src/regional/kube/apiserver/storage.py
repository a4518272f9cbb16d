"""The cluster's file: SQLite in etcd's place. Acknowledged means on disk.

One thread owns the connection. Writes queue up while a commit is being flushed and go down together with the next one
(group commit), so that the price of `synchronous=FULL` is shared. Every write carries its revision; the highest one is
kept in the same transaction, so the counter never goes back, not even after the history has been trimmed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from regional.core.problems import UserError

log = logging.getLogger(__name__)

BATCH = 512
HISTORY_KEEP = 1_000  # rows kept for watches that resume over a restart
HISTORY_SLACK = 1_000  # rows tolerated above that before a trim

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, uid TEXT NOT NULL, body BLOB NOT NULL,
    UNIQUE (resource, namespace, name)
);
CREATE TABLE IF NOT EXISTS history (
    revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    event TEXT NOT NULL, body BLOB NOT NULL, previous BLOB
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class Write(msgspec.Struct, frozen=True, gc=False):
    """One revision. `previous` is the content before, kept only where a selector may see a difference."""

    revision: int
    resource: str
    namespace: str
    name: str
    event: str  # ADDED, MODIFIED, DELETED
    uid: str
    body: bytes
    previous: bytes | None = None


Committed = Callable[[list[Write], Exception | None], None]


def _lock(path: Path) -> int:
    """One process a file: what is in memory here must be all there is. The kernel lets go when the process dies."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UserError(
            f"the cluster's data file {path} is in use by another process",
            hint="only one API process may serve a cluster; stop the other one",
        ) from None
    return descriptor


class Storage:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        try:
            self._connection = self._open(path)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise UserError(
                f"the cluster's data file {path} cannot be opened: {error}",
                hint="restore it from a snapshot, or remove it to start an empty cluster",
            ) from error
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._rows_since_trim = 0
        self.working = True

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cache_size=-2000")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"it was written by another version (format {version})")
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
        path.chmod(0o600)
        return connection

    def _fact(self, name: str) -> int:
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    @property
    def revision(self) -> int:
        return self._fact("revision")

    @property
    def compacted(self) -> int:
        """Every revision above this one is still in the history."""
        return self._fact("compacted")

    def objects(self) -> Iterator[tuple[str, str, str, int, str, bytes]]:
        return self._connection.execute("SELECT resource, namespace, name, revision, uid, body FROM objects")

    def history(self) -> Iterator[tuple[int, str, str, str, str, bytes, bytes | None]]:
        return self._connection.execute(
            "SELECT revision, resource, namespace, name, event, body, previous FROM history ORDER BY revision"
        )

    def start(self, committed: Committed) -> None:
        """From here the writer thread owns the connection; `committed` is called on it, in revision order."""
        self._thread = threading.Thread(target=self._work, args=(committed,), name="storage", daemon=True)
        self._thread.start()

    def submit(self, write: Write) -> None:
        self._queue.put(write)

    def close(self) -> None:
        """Flushes what was submitted."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._connection.close()
        os.close(self._lock)

    def _work(self, committed: Committed) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            closing = False
            while len(batch) < BATCH:
                try:
                    write = self._queue.get_nowait()
                except queue.Empty:
                    break
                if write is None:
                    closing = True
                    break
                batch.append(write)
            try:
                self._commit(batch)
            except sqlite3.Error as error:
                log.exception("a batch of writes was refused by the disk", extra={"file": str(self.path)})
                self.working = False
                committed(batch, error)
            else:
                self.working = True
                committed(batch, None)
            if closing:
                return

    def _commit(self, batch: list[Write]) -> None:
        cursor = self._connection
        cursor.execute("BEGIN IMMEDIATE")
        try:
            for write in batch:
                if write.event == "DELETED":
                    cursor.execute(
                        "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?",
                        (write.resource, write.namespace, write.name),
                    )
                else:
                    cursor.execute(
                        "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (resource, namespace, name) "
                        "DO UPDATE SET revision = excluded.revision, uid = excluded.uid, body = excluded.body",
                        (write.resource, write.namespace, write.name, write.revision, write.uid, write.body),
                    )
            cursor.executemany(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(w.revision, w.resource, w.namespace, w.name, w.event, w.body, w.previous) for w in batch],
            )
            self._set_fact("revision", batch[-1].revision)
            self._rows_since_trim += len(batch)
            if self._rows_since_trim >= HISTORY_SLACK:
                self._trim()
            cursor.execute("COMMIT")
        except BaseException:
            if cursor.in_transaction:
                cursor.execute("ROLLBACK")
            raise

    def _trim(self) -> None:
        row = self._connection.execute(
            "SELECT revision FROM history ORDER BY revision DESC LIMIT 1 OFFSET ?", (HISTORY_KEEP,)
        ).fetchone()
        if row:
            self._connection.execute("DELETE FROM history WHERE revision <= ?", row)
            self._set_fact("compacted", row[0])
        self._rows_since_trim = 0

    def _set_fact(self, name: str, value: int) -> None:
        self._connection.execute(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
        )

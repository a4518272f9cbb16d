"""The cluster's file: SQLite in etcd's place. Acknowledged means on disk.

Writes queue up while a commit is being flushed and go down together with the next one (group commit), so that the price
of `synchronous=FULL` is shared. Every write carries its revision; the highest one is kept in the same transaction, so
the counter never goes back, not even after the history has been trimmed. While nothing is written the file is closed
(`writers`); it is opened again with the next batch.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from regional.kube.apiserver import datafile, snapshots, writers
from regional.kube.apiserver.datafile import Damaged

log = logging.getLogger(__name__)

BATCH = 512
HISTORY_KEEP = 1_000  # rows kept for watches that resume over a restart
HISTORY_SLACK = 1_000  # rows tolerated above that before a trim


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


class Storage:
    def __init__(self, path: Path, *, exclusive: bool = True, pool: writers.Writers | None = None) -> None:
        """`exclusive=False` is for a host of many clusters that holds one lock for all of them."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = datafile.lock(path) if exclusive else -1
        try:
            self._connection: sqlite3.Connection | None = self._open()
            self._revision = datafile.fact(self._connection, "revision")
            self._untrimmed = self._revision - datafile.fact(self._connection, "compacted") - HISTORY_KEEP
        except BaseException:
            self._unlock()
            raise
        self._pool = pool or writers.shared()
        self._gate = threading.Lock()  # held while the connection is in use, opened or closed
        self._queue: deque[Write] = deque()
        self._awake = False
        self._closed = False
        self._calm = threading.Condition()
        self._committed: Committed = lambda batch, error: None
        self.working = True

    # --- the file ------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        fresh = not self.path.exists()
        try:
            connection = datafile.connect(self.path)
            try:
                datafile.look_over(connection)
                datafile.prepare(connection)
            except BaseException:
                connection.close()
                raise
        except (sqlite3.Error, Damaged) as error:
            raise snapshots.refusal(self.path, error) from error
        if fresh:
            self.path.chmod(0o600)
            datafile.sync_folder(self.path.parent)
        return connection

    def _live(self) -> sqlite3.Connection:
        """The connection, opened again if the file has been resting."""
        if self._connection is None:
            if self._closed:
                raise sqlite3.ProgrammingError("the cluster is not served here any more")
            if not self.path.exists():  # SQLite would begin a new one
                raise sqlite3.OperationalError(f"the file {self.path} is gone")
            connection = datafile.connect(self.path)
            try:
                found = datafile.fact(connection, "revision")
                if found != self._revision:
                    raise sqlite3.DatabaseError(f"the file is at revision {found} instead of {self._revision}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def rest(self) -> bool:
        if not self._gate.acquire(blocking=False):
            return False
        try:
            self._close()
        finally:
            self._gate.release()
        return True

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except sqlite3.Error:  # what was acknowledged is in the log, which the next one to open it reads
                log.exception("a data file could not be closed", extra={"file": str(self.path)})

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def compacted(self) -> int:
        """Every revision above this one is still in the history."""
        return datafile.fact(self._live(), "compacted")

    def objects(self) -> Iterator[tuple[str, str, str, int, str, bytes]]:
        return self._read("SELECT resource, namespace, name, revision, uid, body FROM objects")

    def history(self) -> Iterator[tuple[int, str, str, str, str, bytes, bytes | None]]:
        return self._read(
            "SELECT revision, resource, namespace, name, event, body, previous FROM history ORDER BY revision"
        )

    def _read(self, query: str) -> Iterator[Any]:
        try:
            yield from self._live().execute(query)
        except sqlite3.Error as error:
            raise snapshots.refusal(self.path, error) from error

    # --- writing -------------------------------------------------------------------------------------------------

    def start(self, committed: Committed) -> None:
        """From here the writers own the connection; `committed` is called by them, in revision order."""
        self._committed = committed
        self._pool.opened(self)

    def submit(self, write: Write) -> None:
        with self._calm:
            self._queue.append(write)
            if self._awake:
                return
            self._awake = True
        self._pool.wake(self)

    def close(self) -> None:
        """Flushes what was submitted."""
        with self._calm:
            self._calm.wait_for(lambda: not self._awake)
        with self._gate:
            self._closed = True
            self._close()
        self._pool.closed(self)
        self._unlock()

    def commit_some(self) -> bool:
        queue = self._queue
        batch = [queue.popleft() for _ in range(min(len(queue), BATCH))]
        try:
            with self._gate:
                self._commit(self._live(), batch)
                self._revision = batch[-1].revision
        except Exception as error:  # whatever it is: a writer's thread that died of it would leave everybody waiting
            log.exception("a batch of writes was refused by the disk", extra={"file": str(self.path)})
            self.working = False
            self._committed(batch, error)
        else:
            self.working = True
            self._committed(batch, None)
        with self._calm:
            if not queue:
                self._awake = False
                self._calm.notify_all()
            return self._awake

    def _commit(self, connection: sqlite3.Connection, batch: list[Write]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for write in batch:
                if write.event == "DELETED":
                    connection.execute(
                        "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?",
                        (write.resource, write.namespace, write.name),
                    )
                else:
                    connection.execute(
                        "INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (resource, namespace, name) "
                        "DO UPDATE SET revision = excluded.revision, uid = excluded.uid, body = excluded.body",
                        (write.resource, write.namespace, write.name, write.revision, write.uid, write.body),
                    )
            connection.executemany(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(w.revision, w.resource, w.namespace, w.name, w.event, w.body, w.previous) for w in batch],
            )
            datafile.set_fact(connection, "revision", batch[-1].revision)
            self._untrimmed += len(batch)
            if self._untrimmed >= HISTORY_SLACK:
                self._trim(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _trim(self, connection: sqlite3.Connection) -> None:
        row = connection.execute(
            "SELECT revision FROM history ORDER BY revision DESC LIMIT 1 OFFSET ?", (HISTORY_KEEP,)
        ).fetchone()
        if row:
            connection.execute("DELETE FROM history WHERE revision <= ?", row)
            datafile.set_fact(connection, "compacted", row[0])
        self._untrimmed = 0

"""A cluster's file goes back to a snapshot; its revisions do not.

Every restored object gets a revision above all that the cluster ever gave out, and the history before is forgotten. So
a client that remembers anything from before is told 410 and lists again, and no object's version runs backwards.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from regional.core.problems import UserError
from regional.kube.apiserver import datafile, snapshots
from regional.kube.apiserver.datafile import Damaged
from regional.kube.apiserver.entries import decode_body, encode_body

# If the present file is lost or cannot say how far it came, nobody writes that much after a snapshot.
UNKNOWN_GAP = 1_000_000_000


class Restored(msgspec.Struct, frozen=True):
    objects: int
    revision: int  # the cluster's first one from now on
    before: Path | None  # where the file that was there is now


def restore(
    path: Path, snapshot: Path, progress: snapshots.Progress | None = None, *, locked: bool = False
) -> Restored:
    """Refuses while the cluster is served, unless the caller holds its lock (`locked`)."""
    if not snapshot.exists():
        raise UserError(f"there is no snapshot {snapshot}", _choices(path))
    if not snapshots.is_good(snapshot):
        raise UserError(f"{snapshot} is not a sound snapshot of a cluster; nothing was changed", _choices(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = -1 if locked else datafile.lock(path)
    try:
        return _replace(path, snapshot, progress)
    except (sqlite3.Error, Damaged) as error:
        raise UserError(f"{snapshot} could not be restored: {error}; nothing was changed") from error
    finally:
        if lock >= 0:
            os.close(lock)


def refuse_if_served(path: Path) -> None:
    """The error of `restore`, before anybody is asked whether to do it."""
    if path.exists():
        os.close(datafile.lock(path))


def _choices(path: Path) -> str:
    names = [str(snapshot.path) for snapshot in snapshots.known(path)]
    return "snapshots: " + ", ".join(names) if names else f"there is no snapshot in {snapshots.folder_of(path)}"


def _replace(path: Path, snapshot: Path, progress: snapshots.Progress | None) -> Restored:
    reached = _reached(path, snapshot)
    # We hold the lock: what lies about is a killed restore's, and its journal must not be played into ours.
    for left in path.parent.glob(".restored*"):
        left.unlink(missing_ok=True)
    fresh = path.with_name(".restored.db")
    try:
        shutil.copyfile(snapshot, fresh)
        fresh.chmod(0o600)
        objects, revision = _restamp(fresh, reached, progress)
        before = _set_aside(path)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    datafile.sync_folder(path.parent)
    return Restored(objects, revision, before)


def _reached(path: Path, snapshot: Path) -> int:
    """The highest revision that the cluster may have given out; opening its file also folds its log into it."""
    newest = max(_revision(snapshot), *(each.revision for each in snapshots.known(path)), 0)
    if not path.exists():
        return newest + UNKNOWN_GAP
    try:
        connection = datafile.connect(path)
        try:
            datafile.look_over(connection)
            return max(newest, datafile.fact(connection, "revision"))
        finally:
            connection.close()
    except (sqlite3.Error, Damaged):
        return newest + UNKNOWN_GAP


def _revision(snapshot: Path) -> int:
    connection = datafile.read_only(snapshot)
    try:
        return datafile.fact(connection, "revision")
    finally:
        connection.close()


def _restamp(file: Path, reached: int, progress: snapshots.Progress | None) -> tuple[int, int]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        base = max(reached, datafile.fact(connection, "revision"))
        # In the order in which they were written: what is newer stays newer.
        rows = connection.execute("SELECT rowid, body FROM objects ORDER BY revision, rowid").fetchall()
        for number, (row, body) in enumerate(rows, 1):
            obj = decode_body(body)
            obj["metadata"]["resourceVersion"] = str(base + number)
            connection.execute(
                "UPDATE objects SET revision = ?, body = ? WHERE rowid = ?", (base + number, encode_body(obj), row)
            )
            if progress is not None and number % 500 == 0:
                progress(number, len(rows))
        revision = base + len(rows) + 1
        connection.execute("DELETE FROM history")
        datafile.set_fact(connection, "revision", revision)
        datafile.set_fact(connection, "compacted", revision)
        connection.execute("COMMIT")
        datafile.look_over(connection)
        return len(rows), revision
    finally:
        connection.close()


def _set_aside(path: Path) -> Path | None:
    """What was there is kept (one of it): a restore of the wrong snapshot can be taken back."""
    if not path.exists():
        return None
    for old in path.parent.glob(f"{path.name}.before-restore-*"):
        old.unlink(missing_ok=True)
    before = path.with_name(f"{path.name}.before-restore-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}")
    # A log that could not be folded in belongs to the damaged file; it must not be played into the restored one.
    for suffix in ("-wal", "-shm"):
        log = path.with_name(path.name + suffix)
        if log.exists():
            log.rename(before.with_name(before.name + suffix))
    os.link(path, before)  # a second name: at no moment is there no file, which would mean an empty cluster
    return before

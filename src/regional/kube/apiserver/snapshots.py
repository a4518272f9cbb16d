"""Snapshots of a cluster's file, beside it: taken while the cluster is served, few are kept, each is known to be sound.

A snapshot is a whole data file of its own, named after its moment and revision. It appears under its name only once it
is complete, checked and on disk; what a crash leaves of an unfinished one goes with the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.kube.apiserver import datafile
from regional.kube.apiserver.datafile import Damaged

log = logging.getLogger(__name__)

KEEP = 4
SOON = 60.0  # seconds after the start until the first one
STEP_PAGES = 256

_NAME = re.compile(r"^(\d{8}T\d{6}\.\d{3}Z)-r(\d+)\.db$")
_MOMENT = "%Y%m%dT%H%M%S"

Progress = Callable[[int, int], None]  # pages done, pages in all


class Snapshot(msgspec.Struct, frozen=True):
    path: Path
    taken: datetime
    revision: int


def folder_of(path: Path) -> Path:
    return path.parent / "snapshots"


def known(path: Path) -> list[Snapshot]:
    """Of the data file `path`, newest first, as their names say."""
    folder = folder_of(path)
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return [_named(folder / name, match) for name in sorted(names, reverse=True) if (match := _NAME.match(name))]


def _named(path: Path, match: re.Match[str]) -> Snapshot:
    taken = datetime.strptime(match[1][:-5], _MOMENT).replace(tzinfo=UTC, microsecond=int(match[1][-4:-1]) * 1000)
    return Snapshot(path, taken, int(match[2]))


def take(path: Path, into: Path | None = None, progress: Progress | None = None) -> Snapshot:
    """Copies one consistent state; writers go on meanwhile. `into` is a file of the caller's choice."""
    if not path.exists():
        raise UserError(f"there is no data file {path}", "has the cluster been started yet?")
    folder = into.parent if into is not None else folder_of(path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _clear(folder)
    unfinished = folder / f".unfinished-{os.getpid()}-{os.urandom(4).hex()}.db"
    now = datetime.now(UTC)
    try:
        revision = _copy(path, unfinished, progress)
        stamp = f"{now.strftime(_MOMENT)}.{now.microsecond // 1000:03d}Z"
        target = into if into is not None else folder / f"{stamp}-r{revision}.db"
        unfinished.replace(target)
    except (sqlite3.Error, Damaged) as error:
        raise UserError(f"no snapshot of {path} could be taken: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    datafile.sync_folder(folder)
    return Snapshot(target, now, revision)


def _clear(folder: Path) -> None:
    """Removes what processes that were killed meanwhile have left: nobody else ever would."""
    for left in folder.glob(".unfinished-*"):
        writer = left.name.split("-")[1]
        if writer.isdigit() and ProcessRef.of(int(writer)) is None:
            left.unlink(missing_ok=True)


def _copy(path: Path, target: Path, progress: Progress | None) -> int:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source, copy = datafile.read_only(path), sqlite3.connect(target, isolation_level=None, check_same_thread=False)
    try:
        copy.execute("PRAGMA synchronous=FULL")
        source.execute("BEGIN")  # one read transaction for all steps, or every write of others would start it over
        revision = datafile.fact(source, "revision")

        def tell(_: int, remaining: int, total: int) -> None:
            if progress is not None:
                progress(total - remaining, total)

        source.backup(copy, pages=STEP_PAGES, progress=tell, sleep=0)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
        datafile.look_over(copy)
        return revision
    finally:
        copy.close()
        source.close()


def prune(path: Path, keep: int = KEEP) -> None:
    """Removes all but the newest, but never the only one that can still be restored."""
    snapshots = known(path)
    for old in snapshots[max(1, keep) :]:
        if is_good(snapshots[0].path):
            old.path.unlink(missing_ok=True)


def is_good(path: Path) -> bool:
    try:
        connection = datafile.read_only(path)
    except sqlite3.Error:
        return False
    try:
        datafile.look_over(connection)
        return bool(connection.execute("PRAGMA user_version").fetchone()[0] == datafile.SCHEMA_VERSION)
    except (sqlite3.Error, Damaged):
        return False
    finally:
        connection.close()


def last_good(path: Path) -> Snapshot | None:
    return next((snapshot for snapshot in known(path) if is_good(snapshot.path)), None)


async def keep_taking(path: Path, revision: Callable[[], int], every: float, keep: int = KEEP) -> None:
    """One soon, then one in each period in which something was written; the oldest go."""
    latest = next((snapshot.revision for snapshot in known(path)), -1)
    pause = min(every, SOON)
    while True:
        await asyncio.sleep(pause)
        pause = every
        if revision() == latest:
            continue
        try:
            latest = (await asyncio.to_thread(take, path)).revision
            await asyncio.to_thread(prune, path, keep)
        except (UserError, OSError) as error:
            log.warning("no snapshot could be taken: %s", error, extra={"file": str(path)})


def refusal(path: Path, error: Exception) -> UserError:
    """Why a data file is not opened, in one line; for a damaged one, what to go back to."""
    if isinstance(error, sqlite3.Error) and not datafile.is_damage(error):
        hint = "is the disk full, or does the file belong to another user? nothing in it was changed"
        return UserError(f"the cluster's data file {path} cannot be opened: {error}", hint)
    message = f"the cluster's data file {path} cannot be opened: it is damaged ({error})"
    snapshot = last_good(path)
    if snapshot is None:
        return UserError(
            f"{message}; there is no good snapshot of it",
            f"move it away to start an empty cluster, or put a copy of it back; snapshots belong in {folder_of(path)}",
        )
    taken = snapshot.taken.strftime("%Y-%m-%d %H:%M:%S UTC")
    return UserError(
        f"{message}; the last good snapshot is {snapshot.path} (revision {snapshot.revision}, {taken})",
        f"go back to it with `regionctl kube restore --file {path} --from {snapshot.path}`",
    )

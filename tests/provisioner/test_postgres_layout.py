"""PostgreSQL's files: laid out once, found again, whatever a crash left beside them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import asyncpg
import pytest

from regional.core.problems import UserError
from regional.local.provisioner.postgres import Server, lay_out, running_postgres
from regional.local.provisioner.unprivileged import require_passage, subprocess_identity, user_for
from tests.provisioner.harness import Ground


async def test_a_private_server_for_tests(tmp_path: Path) -> None:
    async with running_postgres(tmp_path) as dsn:
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT 1 + 1") == 2
        await connection.close()


async def test_what_a_killed_initialisation_left_is_swept_away(regional_home: Path) -> None:
    server = Server.at(regional_home / "postgres", "127.0.0.1", durable=False)
    leftover = server.directory / "initdb-killed"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    await lay_out(server)
    assert not leftover.exists()
    before = (server.data / "global" / "pg_control").read_bytes()
    await lay_out(server)
    assert (server.data / "global" / "pg_control").read_bytes() == before


async def test_a_lock_file_with_somebody_elses_pid_does_not_stop_it(ground: Ground) -> None:
    """After a reboot the old pid may belong to any process, even one of the server's own user."""
    for root in ("network", "database"):
        await ground.provision(root, ground.regional_inputs())
    await ground.context().supervisor.remove("postgres")
    server = Server.at(ground.paths.postgres, ground.context().database_address())
    with subprocess.Popen(["sleep", "300"], **subprocess_identity(server.user)) as stranger:
        try:
            for file in (server.data / "postmaster.pid", server.sockets / ".s.PGSQL.5432.lock"):
                file.write_text(f"{stranger.pid}\n{server.data}\n1\n5432\n../socket\n\n\n")
            await ground.provision("database", ground.regional_inputs())
            assert await ground.service_pid("postgres")
        finally:
            stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to another user")
def test_a_closed_parent_directory_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "postgres").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(UserError, match="may not pass through"):
        require_passage(closed / "postgres", user_for("postgres"), "PostgreSQL")

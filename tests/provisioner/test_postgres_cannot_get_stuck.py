"""A postmaster whose startup process is killed while it handles another crash waits for ever: it is started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import asyncpg
import msgspec
import pytest

from regional.core.process import ProcessRef
from regional.local import postgres_door, service
from regional.local.provisioner.postgres import PORT
from regional.local.provisioner.roots.database import Credentials, secret_name
from tests.provisioner.harness import Ground


def children(pid: int) -> dict[int, str]:
    """pid → title, such as `postgres: startup`."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if parent == pid:
                found[int(entry.name)] = title
    return found


def kill_child(postmaster: int, kind: str) -> bool:
    """Whether there was one to kill."""
    for pid, title in children(postmaster).items():
        if kind in title:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
    return False


async def get_stuck(postmaster: ProcessRef, address: str) -> None:
    """Now and then its startup process had already begun to replay, or was done before anybody saw it: then once more.
    Who comes late finds that the server has been started again already."""
    async with asyncio.timeout(120):
        while postmaster.alive():
            kill_child(postmaster.pid, "checkpointer")
            deadline = time.monotonic() + 1
            while not kill_child(postmaster.pid, "startup") and time.monotonic() < deadline:
                await asyncio.sleep(0)
            await asyncio.sleep(0.5)
            with contextlib.suppress(OSError):
                if await postgres_door.is_stuck(address, PORT):
                    return


async def test_a_stuck_server_is_started_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_DOOR_SECONDS", 0.3)
    await ground.provision("network", ground.regional_inputs())
    await ground.provision("database", ground.regional_inputs())
    stored = ground.secret(ground.regional(), secret_name("clm"))
    known = msgspec.json.decode(stored, type=Credentials)
    before = await ground.service_pid("postgres")
    postmaster = ProcessRef.of(before)
    assert postmaster is not None
    await get_stuck(postmaster, known.host)
    dsn = f"postgresql://{known.username}:{known.password}@{known.host}:{known.port}/{known.dbname}"
    connection = await ground.connect_when_back(dsn)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await asyncpg.connect(dsn.replace(known.password, "wrong"))
    assert await ground.service_pid("postgres") != before

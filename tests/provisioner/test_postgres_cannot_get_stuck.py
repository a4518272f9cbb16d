"""A postmaster whose startup process is killed while it handles another crash waits for ever: it is started again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import asyncpg
import msgspec
import pytest

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


async def get_stuck(postmaster: int, address: str) -> None:
    async with asyncio.timeout(60):
        while True:
            victim = next((pid for pid, title in children(postmaster).items() if "checkpointer" in title), 0)
            if victim:
                os.kill(victim, signal.SIGKILL)
            while not (startup := [p for p, title in children(postmaster).items() if "startup" in title]):
                await asyncio.sleep(0)
            os.kill(startup[0], signal.SIGKILL)
            await asyncio.sleep(0.5)
            # Now and then it had already begun to replay, and all is well again.
            if await postgres_door.is_stuck(address, PORT):
                return


async def test_a_stuck_server_is_started_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_DOOR_SECONDS", 0.3)
    await ground.provision("network", ground.regional_inputs())
    await ground.provision("database", ground.regional_inputs())
    stored = ground.secret(ground.regional(), secret_name("clm"))
    known = msgspec.json.decode(stored, type=Credentials)
    before = await ground.service_pid("postgres")
    await get_stuck(before, known.host)
    dsn = f"postgresql://{known.username}:{known.password}@{known.host}:{known.port}/{known.dbname}"
    connection = await ground.connect_when_back(dsn)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await asyncpg.connect(dsn.replace(known.password, "wrong"))
    assert await ground.service_pid("postgres") != before

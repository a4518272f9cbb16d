"""A stop reaches a service in whatever it is just doing: were it lost, the supervisor would answer nobody any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regional.core.clock import SystemClock
from regional.local import service as services
from regional.local.service import Service
from regional.local.supervisor_client import ServiceSpec


class Restless(SystemClock):
    """Looks again at once, so that the turns of the loop are the same each time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("ready", ["unix:{directory}/nobody.sock", "tcp:127.127.251.1:9"])
async def test_a_service_that_is_not_ready_yet_stops_at_once(tmp_path: Path, ready: str) -> None:
    spec = ServiceSpec(
        name="never-ready",
        description="sleeps behind a closed door",
        kind="exec",
        argv=["/bin/sleep", "600"],
        ready=ready.format(directory=tmp_path),
    )
    for turns in range(40):
        service = Service(spec, tmp_path, tmp_path / "warm.sock", Restless())
        service.start()
        while service.status().pid == 0:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await service.stop()
        assert service.status().state == "stopped"
    while services._children:  # reaped beside
        await asyncio.sleep(0.01)

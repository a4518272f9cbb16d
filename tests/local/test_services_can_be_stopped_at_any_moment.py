"""A stop reaches a service in whatever it is just doing: were it lost, the supervisor would answer nobody any more."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from regional.core.clock import SystemClock
from regional.local import service as services
from regional.local.region import Region
from regional.local.service import Service
from regional.local.supervisor import Supervisor
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


async def test_why_waiting_cannot_help_is_told_whatever_the_next_attempt_is_just_doing(regional_home: Path) -> None:
    """Between two attempts there is no message: who asked just then was told a name and nothing more."""
    region = Region("taken")
    region.paths.supervisor.mkdir(parents=True)
    supervisor = Supervisor(region.paths)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        spec = ServiceSpec("x", "a listener", "exec", ["/bin/sleep", "60"], address=address, ready=f"tcp:{address}")
        service = supervisor._services["x"] = Service(spec, region.paths.supervisor, supervisor.warm_socket, Restless())
        service.start()
        try:
            for turns in range(40):
                for _ in range(turns):
                    await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match=f"x cannot start: {address} is taken by pid {os.getpid()}"):
                    await supervisor.ensure(spec, 60)
        finally:
            await service.stop()

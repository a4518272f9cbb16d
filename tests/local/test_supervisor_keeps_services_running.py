"""The supervisor restarts what dies, adopts what lives, and is itself restarted by the guardian."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.core.spawn import SpawnRequest
from regional.local.region import Region, _recorded
from regional.local.service import Service
from regional.local.supervisor import identity_file
from regional.local.supervisor_client import ServiceSpec, socket_path

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    server.accept()[0].close()
"""


def service(region: Region, name: str = "echo", **changes: object) -> ServiceSpec:
    from regional.local.addresses import Addresses

    host = Addresses(region.paths).block("region").infra(9)
    values: dict[str, object] = {
        "name": name,
        "description": "a listener",
        "kind": "exec",
        "argv": [sys.executable, "-c", ECHO, host, "5000"],
        "ready": f"tcp:{host}:5000",
    }
    return ServiceSpec(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
async def region(regional_home: Path) -> AsyncIterator[Region]:
    target = Region("sup")
    target.paths.root.mkdir(parents=True)
    await target.start_supervisor()
    yield target
    await target.down(purge=True)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(90):
        while not await check():
            await asyncio.sleep(0.05)


async def pid_of(region: Region, name: str = "echo") -> int:
    for status in await region.client.services():
        if status.name == name and status.state == "ready":
            return status.pid
    return 0


async def supervisor_pid(region: Region) -> int:
    return int((await region.client._ask({"op": "ping"}, 60))["pid"])


async def test_a_killed_service_comes_back(region: Region) -> None:
    before = (await region.client.ensure(service(region))).pid
    os.kill(before, signal.SIGKILL)

    async def back() -> bool:
        return await pid_of(region) not in (0, before)

    await eventually(back)


async def test_asking_again_for_what_runs_changes_nothing(region: Region) -> None:
    first = await region.client.ensure(service(region))
    assert (await region.client.ensure(service(region))).pid == first.pid


async def test_a_changed_specification_restarts_the_service(region: Region) -> None:
    first = await region.client.ensure(service(region))
    assert (await region.client.ensure(service(region, env={"X": "1"}))).pid != first.pid


async def test_a_killed_supervisor_is_restarted_and_adopts(region: Region) -> None:
    before = (await region.client.ensure(service(region))).pid
    old = await supervisor_pid(region)
    os.kill(old, signal.SIGKILL)

    async def back() -> bool:
        return await region.running() and await supervisor_pid(region) != old and await pid_of(region) == before

    await eventually(back)


async def test_a_killed_guardian_is_replaced(region: Region) -> None:
    supervisor = await supervisor_pid(region)
    old = _parent(supervisor)
    os.kill(old, signal.SIGKILL)

    async def replaced() -> bool:
        guardian = _recorded(identity_file(region.paths, "guardian"))
        return guardian is not None and guardian.pid != old and guardian.alive()

    await eventually(replaced)
    os.kill(supervisor, signal.SIGKILL)

    async def back() -> bool:
        return await region.running() and await supervisor_pid(region) != supervisor

    await eventually(back)


async def test_a_service_that_never_gets_ready_is_reported_with_its_last_words(region: Region) -> None:
    broken = service(region, argv=["/bin/sh", "-c", "echo no luck today; exit 3"])

    async def told() -> bool:
        """On a busy machine it may not have said anything in this time."""
        with pytest.raises(UserError) as failed:
            await region.client.ensure(broken, timeout=2)
        return "no luck today" in str(failed.value)

    await eventually(told)


async def test_down_leaves_no_process(region: Region) -> None:
    status = await region.client.ensure(service(region))
    ref = ProcessRef.of(status.pid)
    assert ref is not None
    supervisor = ProcessRef.of(await supervisor_pid(region))
    await region.down()
    assert not ref.alive()
    assert supervisor is not None
    await asyncio.wait_for(supervisor.wait(), 60)


async def test_down_works_on_what_killed_keepers_left(region: Region) -> None:
    status = await region.client.ensure(service(region))
    ref = ProcessRef.of(status.pid)
    supervisor = await supervisor_pid(region)
    os.kill(_parent(supervisor), signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(_parent_stopped(region), signal.SIGKILL)
    await region.down()
    assert ref is not None and not ref.alive()


async def test_nothing_comes_back_after_down_even_while_the_guardian_waits_to_restart(region: Region) -> None:
    status = await region.client.ensure(service(region))
    for _ in range(5):  # each time the guardian waits longer
        old = await supervisor_pid(region)
        os.kill(old, signal.SIGKILL)
        await eventually(lambda old=old: _another(region, old))  # type: ignore[misc]
    os.kill(await supervisor_pid(region), signal.SIGKILL)
    assert await region.down()
    guardian = _recorded(identity_file(region.paths, "guardian"))
    assert guardian is None
    assert ProcessRef.of(status.pid) is None
    await asyncio.sleep(6)  # longer than the guardian's longest wait
    assert not await region.running()


async def test_a_supervisor_that_cannot_answer_is_ended_too(region: Region) -> None:
    status = await region.client.ensure(service(region))
    supervisor = await supervisor_pid(region)
    os.kill(supervisor, signal.SIGSTOP)
    assert await region.down()
    assert ProcessRef.of(supervisor) is None
    assert ProcessRef.of(status.pid) is None


async def test_a_removed_socket_is_opened_again(region: Region) -> None:
    status = await region.client.ensure(service(region))
    shutil.rmtree(socket_path(region.paths).parent)
    assert not await region.running()
    await eventually(region.running)
    assert await pid_of(region) == status.pid


async def test_a_stopped_process_is_not_called_well(region: Region) -> None:
    pid = (await region.client.ensure(service(region))).pid
    os.kill(pid, signal.SIGSTOP)

    async def said() -> bool:
        (seen,) = await region.client.services()
        return seen.state == "stopped" and f"kill -CONT {pid}" in seen.message

    await eventually(said)
    os.kill(pid, signal.SIGCONT)
    await eventually(lambda: _is_ready(region))


class SlowParent:
    """A warm parent that has read a request and takes its time, as on a loaded machine, before the process exists."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.asked, self.may_fork = asyncio.Event(), asyncio.Event()
        self.children: list[subprocess.Popen[bytes]] = []
        self._answering: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def __aenter__(self) -> SlowParent:
        self._server = await asyncio.start_unix_server(self._answer, str(self._socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task, writer in self._answering:
            task.cancel()
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
        for child in self.children:
            child.kill()
            child.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.append((task, writer))
        request = msgspec.json.decode(await reader.readline(), type=SpawnRequest)
        self.asked.set()
        await self.may_fork.wait()
        child = subprocess.Popen(request.argv, start_new_session=True)
        self.children.append(child)
        ref = ProcessRef.of(child.pid)
        assert ref is not None
        text = json.dumps({"pid": ref.pid, "start": ref.start})
        Path(request.state_file).write_text(text)
        writer.write(text.encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


@pytest.fixture
async def slow_parent(tmp_path: Path) -> AsyncIterator[SlowParent]:
    async with SlowParent(tmp_path / "warm.sock") as parent:
        yield parent


def forked(directory: Path) -> Service:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    spec = ServiceSpec(name="slow", description="", kind="fork", argv=sleeper, ready="unix:/nowhere", stop_grace=1)
    return Service(spec, directory, directory / "warm.sock")


async def test_what_is_stopped_while_it_is_being_forked_does_not_stay(tmp_path: Path, slow_parent: SlowParent) -> None:
    one = forked(tmp_path)
    one.start()
    await asyncio.wait_for(slow_parent.asked.wait(), 60)
    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(0.05)
    slow_parent.may_fork.set()
    await asyncio.wait_for(stopping, 60)
    (child,) = slow_parent.children
    assert child.wait(60) < 0
    assert not (tmp_path / "run" / "slow.json").exists()
    assert one.status().state == "stopped"


async def test_what_is_abandoned_while_it_is_being_forked_is_adopted(tmp_path: Path, slow_parent: SlowParent) -> None:
    one = forked(tmp_path)
    one.start()
    await asyncio.wait_for(slow_parent.asked.wait(), 60)
    leaving = asyncio.create_task(one.abandon())
    await asyncio.sleep(0.05)
    slow_parent.may_fork.set()
    await asyncio.wait_for(leaving, 60)
    (child,) = slow_parent.children
    next_keeper = forked(tmp_path)
    next_keeper.start()

    async def found() -> bool:
        return next_keeper.status().pid != 0

    await eventually(found)
    assert next_keeper.status().pid == child.pid and child.poll() is None
    await next_keeper.stop()
    assert child.wait(60) < 0
    assert len(slow_parent.children) == 1


async def test_a_parent_that_never_answers_does_not_keep_anybody_from_stopping(
    tmp_path: Path, slow_parent: SlowParent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.local.service._LAUNCH_SECONDS", 0.2)
    one = forked(tmp_path)
    one.start()
    await asyncio.wait_for(slow_parent.asked.wait(), 60)
    await asyncio.wait_for(one.stop(), 60)
    assert one.status().state == "stopped"


async def _another(region: Region, old: int) -> bool:
    return await region.running() and await supervisor_pid(region) != old


async def _is_ready(region: Region) -> bool:
    return await pid_of(region) != 0


_stopped: dict[str, int] = {}


def _parent(pid: int) -> int:
    raw = Path(f"/proc/{pid}/stat").read_text()
    parent = int(raw.rsplit(")", 1)[1].split()[1])
    _stopped["last"] = parent
    return parent


def _parent_stopped(_: Region) -> int:
    return _stopped["last"]


async def test_a_service_that_gives_up_says_why(region: Region) -> None:
    complaint = "print('error: the file is damaged'); print('hint: go back'); raise SystemExit(1)"
    spec = service(region, argv=[sys.executable, "-c", complaint])
    with pytest.raises(UserError):
        await region.client.ensure(spec, timeout=2)

    async def told() -> bool:
        said = [status.message for status in await region.client.services() if status.state == "failed"]
        return any(text.endswith("ended: error: the file is damaged; hint: go back") for text in said)

    await eventually(told)

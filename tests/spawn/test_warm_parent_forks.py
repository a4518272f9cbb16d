"""What is asked of the warm parent becomes a process of its own, and everybody can learn how it ended."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.core.process import ProcessRef, is_stopped
from regional.core.spawn import KILLED, SpawnError, SpawnRequest, read_state, spawn, wait_exit
from regional.core.warm import WarmParent
from tests.spawn.conftest import Warm


async def test_exit_codes_reach_those_who_are_not_the_parent(warm: Warm) -> None:
    for argv, code in ((["exit", "0"], 0), (["exit", "3"], 3), (["quit", "4"], 4), (["raise"], 1)):
        exit_file = warm.directory / f"{'-'.join(argv)}.exit"
        process = warm.role(*argv, exit_file=str(exit_file))
        assert (await wait_exit(process, exit_file)).code == code


async def test_forks_draw_keys_of_their_own(warm: Warm) -> None:
    files = [warm.directory / f"key-{number}" for number in range(3)]
    for file in files:
        await warm.role("key", str(file)).wait()
    assert len({file.read_text() for file in files}) == 3


async def test_a_process_ended_by_a_signal_says_which(warm: Warm) -> None:
    exit_file = warm.directory / "exit"
    process = warm.role("sleep", "60", exit_file=str(exit_file))
    process.signal(signal.SIGKILL)
    status = await wait_exit(process, exit_file)
    assert (status.code, status.signal) == (137, 9)


async def test_a_parent_that_is_slow_to_notice_changes_nothing_about_an_end(warm: Warm) -> None:
    go, exit_file = warm.directory / "go", warm.directory / "exit"
    script = f"while [ ! -f {go} ]; do sleep 0.01; done; exit 5"
    process = warm.spawn("sh", "-c", script, exit_file=str(exit_file))
    assert warm.process is not None
    warm.process.send_signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            while not is_stopped(warm.process.pid):
                await asyncio.sleep(0.01)
        go.touch()
        await process.wait()
        asking = asyncio.create_task(wait_exit(process, exit_file))
        await asyncio.wait({asking}, timeout=3)
        assert not asking.done()
    finally:
        warm.process.send_signal(signal.SIGCONT)
    assert (await asking).code == 5


async def test_output_and_tracebacks_are_appended_to_the_log(warm: Warm) -> None:
    log, exit_file = warm.directory / "log", warm.directory / "exit"
    log.write_text("before\n")
    await warm.role("say", "hello", "world", log=str(log)).wait()
    await wait_exit(warm.role("raise", log=str(log), exit_file=str(exit_file)), exit_file)
    text = log.read_text()
    assert text.startswith("before\nhello world\n")
    assert "RuntimeError: something unexpected" in text


async def test_a_child_has_only_what_it_was_given(warm: Warm) -> None:
    seen, open_files = warm.directory / "seen", warm.directory / "open"
    await warm.role("environment", str(seen), cwd=str(warm.directory)).wait()
    await warm.role("descriptors", str(open_files)).wait()
    lines = seen.read_text().splitlines()
    assert f"cwd={warm.directory}" in lines
    assert "session=True" in lines
    assert "GIVEN=yes" in lines
    assert not any(line.startswith(("WARM_PARENTS_OWN", "PYTHONPATH")) for line in lines)
    descriptors = open_files.read_text().splitlines()
    assert not any(name.startswith(("socket:", "pipe:")) for name in descriptors)


async def test_proc_shows_the_childs_own_command_line_and_environment(warm: Warm) -> None:
    process = warm.role("sleep", "60", title="my-pod")
    proc = Path(f"/proc/{process.pid}")
    async with asyncio.timeout(60):
        while (proc / "comm").read_text() != "my-pod\n":  # the last thing a child sets before it runs its role
            await asyncio.sleep(0.01)
    assert (proc / "cmdline").read_bytes().split(b"\0")[:3] == [b"regionctl", b"sleep", b"60"]
    assert b"GIVEN=yes" in (proc / "environ").read_bytes()
    assert b"WARM_PARENTS_OWN" not in (proc / "environ").read_bytes()


async def test_a_program_is_executed_and_a_missing_one_says_so(warm: Warm) -> None:
    log, good, bad = (warm.directory / name for name in ("log", "good", "bad"))
    process = warm.spawn("sh", "-c", "echo $GIVEN; exit 5", log=str(log), exit_file=str(good))
    assert (await wait_exit(process, good)).code == 5
    missing = warm.spawn("no-such-program", log=str(log), exit_file=str(bad))
    assert (await wait_exit(missing, bad)).code == 127
    assert log.read_text().splitlines() == ["yes", "no-such-program: no such program on this pod's PATH"]


async def test_the_same_request_twice_is_one_process(warm: Warm) -> None:
    state = warm.directory / "state"
    first = warm.role("sleep", "60", state_file=str(state))
    again = warm.role("sleep", "60", state_file=str(state))
    assert first == again == read_state(state)


async def test_children_outlive_their_parent_and_its_successor_knows_them(warm: Warm) -> None:
    state, exit_file = warm.directory / "state", warm.directory / "exit"
    child = warm.role("sleep", "60", state_file=str(state), exit_file=str(exit_file))
    warm.kill()
    assert child.alive()
    warm.start()
    assert warm.role("sleep", "60", state_file=str(state)) == child
    child.signal(signal.SIGKILL)
    assert (await wait_exit(child, exit_file)).code == KILLED


async def test_bad_requests_are_refused_and_harm_nobody(warm: Warm) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(warm.socket))
        connection.sendall(b"not json\n" + b'{"argv": [], "env": {}}\n')
        with connection.makefile("rb") as stream:
            assert b"error" in stream.readline()
            assert b"argv is empty" in stream.readline()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(warm.socket))
        connection.sendall(b'{"argv": ["half a requ')
    with pytest.raises(SpawnError, match="No such file or directory"):
        await spawn(warm.socket, SpawnRequest(["regionctl", "exit", "0"], {}, cwd="/no/such/place"))
    assert warm.process is not None
    assert ProcessRef.of(warm.process.pid) is not None
    assert warm.role("exit", "0").pid > 0


async def test_a_second_parent_on_the_same_socket_is_refused(warm: Warm) -> None:
    with pytest.raises(UserError, match="another warm parent serves"):
        WarmParent(warm.socket, lambda argv: 0).serve()
    assert warm.role("exit", "0").pid > 0

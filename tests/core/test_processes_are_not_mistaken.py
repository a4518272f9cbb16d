from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from regional.core.files import write_atomic
from regional.core.process import ProcessRef, proportional_memory


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


async def test_a_reused_pid_is_another_process() -> None:
    child = sleeper()
    real = ProcessRef.of(child.pid)
    assert real is not None and real.alive()
    impostor = ProcessRef(child.pid, real.start + 1)
    assert not impostor.alive()
    assert not impostor.signal(signal.SIGKILL)
    assert real.alive()
    child.kill()
    child.wait()
    assert not real.alive()


async def test_waiting_ends_with_the_process_even_as_a_zombie() -> None:
    child = sleeper()
    ref = ProcessRef.of(child.pid)
    assert ref is not None
    os.kill(child.pid, signal.SIGKILL)
    await asyncio.wait_for(ref.wait(), 60)
    child.wait()


async def test_stop_kills_what_does_not_listen() -> None:
    program = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    ref = ProcessRef.of(child.pid)
    assert ref is not None
    assert not await ref.stop(0.2)
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL


def test_memory_of_a_process_that_is_gone_is_nothing() -> None:
    assert proportional_memory(os.getpid()) > 1_000_000
    assert proportional_memory(2**22 - 1) == 0


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_atomic(file, "old")
    try:
        write_atomic(file, 5)  # type: ignore[arg-type]
    except TypeError:
        pass
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


async def test_a_process_is_not_over_before_its_last_thread_is() -> None:
    """A zombie of a first thread says little: locks and ports are held until the last one has ended."""
    program = (
        "import ctypes, platform, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)\n"  # this thread's exit
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    process = ProcessRef.of(child.pid)
    assert process is not None
    while b") Z " not in Path(f"/proc/{child.pid}/stat").read_bytes():
        await asyncio.sleep(0.01)
    assert process.alive()
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert process.signal(signal.SIGKILL)
    await asyncio.wait_for(waiting, 60)
    await child.wait()
    assert not process.alive()

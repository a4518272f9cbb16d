"""Finding processes by what nobody but their pod gave them: POD_ROOT in their environment.

The last resort of a pod's end, for processes that left their container's group or whose parents died unseen. One pass
over /proc serves everybody who waits: a namespace that is deleted ends dozens of pods at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection

from regional.core.process import ProcessRef


class Sweeper:
    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def sweep(self, directory: str) -> None:
        """Kill everything whose POD_ROOT is inside `directory`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(directory, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await future

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            await asyncio.to_thread(kill_inside, list(batch))
            for futures in batch.values():
                for future in futures:
                    if not future.done():
                        future.set_result(None)


def kill_inside(directories: Collection[str]) -> int:
    wanted = tuple(f"POD_ROOT={directory.rstrip('/')}/".encode() for directory in directories)
    killed = 0
    with os.scandir("/proc") as entries:
        numbers = [entry.name for entry in entries if entry.name.isdigit()]
    for number in numbers:
        process = ProcessRef.of(int(number))
        if process is not None and any(line.startswith(wanted) for line in _environment(number)):
            killed += process.signal(signal.SIGKILL)
    return killed


def _environment(pid: str) -> list[bytes]:
    """Empty for kernel threads, other users' processes and those that are gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(descriptor, 1 << 20).split(b"\0")
    except OSError:
        return []
    finally:
        os.close(descriptor)

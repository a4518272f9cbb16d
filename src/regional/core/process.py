"""Processes named so that they cannot be mistaken: a pid alone is reused, pid and start time are not.

`ProcessRef` works for any process of ours, child or not: it waits on a pidfd, so a restarted supervisor or node can
adopt what its predecessor started. Exit codes reach non-parents through an exit file (see core.spawn).
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from signal import SIGKILL, SIGTERM, pidfd_send_signal

import msgspec


class ProcessRef(msgspec.Struct, frozen=True):
    pid: int
    start: int  # field 22 of /proc/<pid>/stat: clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> ProcessRef | None:
        start = start_ticks(pid)
        return None if start is None else cls(pid, start)

    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start

    def signal(self, number: int) -> bool:
        """False if it is gone. The pidfd closes the race between the check and the kill."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive():
                return False
            pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    async def wait(self) -> None:
        """Returns when the process has ended (a zombie counts as ended)."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno in (errno.ESRCH, errno.EINVAL):
                return
            raise
        try:
            if not self.alive():
                return
            loop = asyncio.get_running_loop()
            ended = asyncio.Event()
            loop.add_reader(descriptor, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)

    async def stop(self, grace: float, first: int = SIGTERM) -> bool:
        """Ask, wait `grace` seconds, then kill. True if it left by itself."""
        if not self.signal(first):
            return True
        try:
            async with asyncio.timeout(grace):
                await self.wait()
            return True
        except TimeoutError:
            self.signal(SIGKILL)
            await self.wait()
            return False


def start_ticks(pid: int) -> int | None:
    """None if there is no such process, or only its zombie.

    Of a killed process the first thread may be a zombie while another one still waits for the disk: until that has
    ended, too, its locks are held and its ports are taken.
    """
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:
        return None
    return int(fields[19])


def is_stopped(pid: int) -> bool:
    """By a signal or a debugger: it lives, and does nothing."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return raw[raw.rindex(b")") + 2 :].split(maxsplit=1)[0] in (b"T", b"t")


def proportional_memory(pid: int) -> int:
    """Proportional set size in bytes; 0 if the process is gone or not ours."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0

"""One at a time between processes. The kernel frees such a lock when its holder dies, however it dies."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.asynccontextmanager
async def one_at_a_time(file: Path) -> AsyncIterator[None]:
    """The same, without holding up the loop while another process has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        await asyncio.to_thread(fcntl.flock, handle, fcntl.LOCK_EX)
        yield

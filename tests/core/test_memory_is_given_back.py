"""What start-up took and freed does not stay with a server for the rest of its life."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from regional.core import loop, memory

_TAKES_AND_FREES = """
from pathlib import Path
from regional.core.memory import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

taken = [bytes(2000) for _ in range(30_000)]
last = bytes(2000)  # above all of them: without it the allocator would cut the heap by itself
del taken
before = resident()
give_back()
print(before - resident())
"""


def test_freed_memory_below_what_is_in_use_goes_back() -> None:
    ran = subprocess.run([sys.executable, "-c", _TAKES_AND_FREES], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 40_000_000


def test_a_server_gives_back_once_it_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(memory, "SETTLED", (0.0, 0.01))
    monkeypatch.setattr(memory, "give_back", lambda: given.append("back"))

    async def serve() -> None:
        while len(given) < 2:
            await asyncio.sleep(0.005)

    loop.run(serve())
    assert given == ["back", "back"]

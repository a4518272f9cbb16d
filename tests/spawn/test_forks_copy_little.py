"""What a fork makes lies in pages of its own, not in the holes of pages that it would have to copy."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys
from regional.core.packing import fill_holes

def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private"))

# Twenty megabytes with a hole of each size in every page: small ones of Python's, larger ones of malloc's.
made = [bytes(size) for _ in range(20_000) for size in (20, 60, 150, 300, 500)]
made += [bytes(size) for _ in range(2_000) for size in (600, 1_000, 2_500)]
del made[::31]
if sys.argv[1] == "filled":
    fill_holes()
reading, writing = os.pipe()
if os.fork() == 0:
    before = private()
    own = [bytes(size) for _ in range(200) for size in (20, 60, 150, 300, 500, 600, 1_000, 2_500)]
    os.write(writing, str(private() - before).encode())
    os._exit(0)
os.wait()
print(os.read(reading, 100).decode())
"""


def _copied(how: str) -> int:
    """Kilobytes that a fork has for itself after it has made a megabyte of objects."""
    ran = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True)
    assert ran.stderr == "", "the interpreter's statistics are not for people"
    return int(ran.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are counted by /proc")
def test_a_fork_of_a_parent_without_holes_copies_less() -> None:
    filled, holes = _copied("filled"), _copied("holes")
    assert filled < 2_000
    assert holes > filled * 2

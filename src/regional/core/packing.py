"""No holes in the pages that forks share.

Allocators serve a fork's first objects from the holes that its parent's work has left, and each hole lies in a page
that the fork must copy for it: a few thousand small objects cost megabytes. So the parent fills its holes with nothing,
once, and what a fork makes lies side by side in pages of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys

_ROW = re.compile(r"^\s*\d+\s+(\d+)\s+\d+\s+\d+\s+(\d+)\s*$", re.MULTILINE)  # class, size, pools, in use, available
_BYTES_HEAD = 33  # sys.getsizeof(b"")
_LARGEST, _SMALLEST = 64 * 1024, 24  # of malloc's chunks; beyond, memory comes from the kernel in pieces of its own
_MOST_CHUNKS = 100_000
_kept: list[object] = []


def fill_holes() -> None:
    """To be called with all imports done and only one thread running. Where an allocator is not known: nothing."""
    _fill_pools()
    _fill_heap()


def _fill_pools() -> None:
    """Python's own allocator, for objects of up to 512 bytes: a pool of blocks for each size."""
    for size, free in _pools():
        if size == 16:
            _kept.extend(object() for _ in range(free))
        elif size == 32:
            _kept.extend(float(number) for number in range(free))
        elif size > _BYTES_HEAD:
            _kept.extend(bytes(size - _BYTES_HEAD) for _ in range(free))


def _pools() -> list[tuple[int, int]]:
    """(size of its blocks, how many of them are free): the interpreter tells it on its standard error only."""
    tell = getattr(sys, "_debugmallocstats", None)
    if tell is None or not hasattr(os, "memfd_create"):
        return []
    with os.fdopen(os.memfd_create("pools"), "w+b") as file:  # in memory: the disk may be full
        sys.stderr.flush()
        usual = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            tell()
        finally:
            os.dup2(usual, 2)
            os.close(usual)
        file.seek(0)
        told = file.read().decode(errors="replace")
    return [(int(size), int(free)) for size, free in _ROW.findall(told)]


class _Heap(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    )


def _fill_heap() -> None:
    """The C library's, for everything larger: chunks are taken until the next one would come from the heap's end."""
    library = ctypes.CDLL(None)
    try:
        tell, trim = library.mallinfo2, library.malloc_trim
    except AttributeError:  # another C library, or an old one
        return
    tell.restype = _Heap
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    trim(0)
    size, taken = _LARGEST, 0
    while size >= _SMALLEST and taken < _MOST_CHUNKS:
        before = tell()
        chunk = library.malloc(size)
        after = tell()
        if (after.top, after.arena) == (before.top, before.arena):
            taken += 1  # and is never given back
            continue
        library.free(chunk)
        size = size - 16 if size <= 1024 else size * 3 // 4 // 16 * 16 + 8

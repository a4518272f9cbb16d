"""What `ps` and /proc show of a forked process.

A fork keeps the command line and the environment block of the program that was once executed: the warm parent's. So
`ps` could not tell pods apart, and /proc/<pid>/environ would show the supervisor's environment in every pod, though no
pod can use it. The kernel lets a process point these two areas to memory of its own (prctl PR_SET_MM_MAP, no
privilege needed). Where a kernel does not, the inherited block is blanked in place.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.sbrk.restype = ctypes.c_void_p
_libc.sbrk.argtypes = [ctypes.c_ssize_t]
_PR_SET_NAME, _PR_SET_MM, _PR_SET_MM_MAP = 15, 35, 14
_blocks: list[mmap.mmap] = []  # what the kernel points to must stay mapped


class _MemoryMap(ctypes.Structure):
    """struct prctl_mm_map of linux/prctl.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data", "start_brk", "brk")),
        *((name, ctypes.c_uint64) for name in ("start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv")),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def set_name(name: str) -> None:
    """The short name (15 bytes) that `top` and `pgrep` show."""
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def show(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Best effort: a process that cannot change what `ps` shows is still a good process."""
    arguments = b"".join(part.encode() + b"\0" for part in argv)
    variables = b"".join(f"{key}={value}".encode() + b"\0" for key, value in env.items())
    try:
        stat = Path("/proc/self/stat").read_bytes()
        fields = [int(field) for field in stat[stat.rindex(b")") + 4 :].split()]
        if not _point(fields, arguments, variables):
            _overwrite(fields, arguments)
    except (OSError, ValueError, IndexError) as error:
        log.debug("process title not set", extra={"reason": str(error)})


def _point(fields: list[int], arguments: bytes, variables: bytes) -> bool:
    # Private: the kernel shows only anonymous pages in /proc, and a shared mapping is a file to it.
    block = mmap.mmap(-1, len(arguments) + len(variables) + 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(arguments + variables)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    # Field n of proc(5) is fields[n - 4]: the first three (pid, name, state) are cut off.
    wanted = _MemoryMap(
        start_code=fields[22],
        end_code=fields[23],
        start_stack=fields[24],
        start_data=fields[41],
        end_data=fields[42],
        start_brk=fields[43],
        arg_start=address,
        arg_end=address + len(arguments),
        env_start=address + len(arguments),
        env_end=address + len(arguments) + len(variables),
        exe_fd=0xFFFFFFFF,
    )
    size, pointer = ctypes.c_size_t(ctypes.sizeof(wanted)), ctypes.byref(wanted)
    wanted.brk = _libc.sbrk(0)  # last, so that no allocation moves the break in between
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, pointer, size, 0) != 0:
        return False
    _blocks.append(block)
    return True


def _overwrite(fields: list[int], arguments: bytes) -> None:
    arg_start, arg_end, env_start, env_end = fields[44:48]
    if not 0 < arg_start < arg_end <= env_start < env_end:
        return
    ctypes.memset(arg_start, 0, arg_end - arg_start)
    ctypes.memmove(arg_start, arguments, min(len(arguments), arg_end - arg_start - 1))
    ctypes.memset(env_start, 0, env_end - env_start)

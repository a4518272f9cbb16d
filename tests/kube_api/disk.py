"""A disk that tests can look at: SQLite's own file layer, with every write and sync seen on its way to the kernel.

Works with nothing but Python: the methods of each file that SQLite opens are replaced (through ctypes) by ours, which
note the call, may refuse it, and otherwise pass it on to the real one.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import shutil
import threading
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

SQLITE_FULL = 13

_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", _Write),
        ("truncate", c_void_p),
        ("sync", _Sync),
        ("others", c_void_p * 13),
    ]


class _File(ctypes.Structure):
    _fields_ = [("methods", POINTER(_Methods))]


class _Layer(ctypes.Structure):
    """The head of `sqlite3_vfs`, as far as `xOpen`."""

    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("path_length", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", _Open),
    ]


class WatchedDisk:
    """`log` holds ("write" | "sync", file name) in order; tests add marks of their own."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.full = False
        self.durable: Path | None = None  # if set: a folder with each file as it was at its last sync
        self._library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        self._library.sqlite3_vfs_find.restype = POINTER(_Layer)
        self._library.sqlite3_vfs_find.argtypes = [c_char_p]
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # what C points at must not be collected
        self._swapped: dict[int, _Methods] = {}
        self._mutex = threading.Lock()

    @contextlib.contextmanager
    def watching(self) -> Iterator[WatchedDisk]:
        layer = self._library.sqlite3_vfs_find(None).contents
        real_open = _Open(ctypes.cast(layer.open, c_void_p).value or 0)

        def opened(vfs: int, name: int, file: int, flags: int, out: int) -> int:
            result = int(real_open(vfs, name, file, flags, out))
            if result == 0 and name:
                path = ctypes.cast(name, c_char_p).value or b""
                self._names[file] = path.decode()
                handle = ctypes.cast(file, POINTER(_File)).contents
                handle.methods = ctypes.pointer(self._ours(handle.methods))
            return result

        ours = _Open(opened)
        self._kept += [real_open, ours]
        layer.open = ours
        try:
            yield self
        finally:
            layer.open = real_open

    def _ours(self, real: ctypes._Pointer[_Methods]) -> _Methods:
        place = ctypes.addressof(real.contents)
        with self._mutex:
            if place not in self._swapped:
                self._swapped[place] = self._swap(real.contents)
            return self._swapped[place]

    def _swap(self, real: _Methods) -> _Methods:
        methods = _Methods()
        ctypes.memmove(ctypes.byref(methods), ctypes.byref(real), ctypes.sizeof(_Methods))
        real_write = _Write(ctypes.cast(real.write, c_void_p).value or 0)
        real_sync = _Sync(ctypes.cast(real.sync, c_void_p).value or 0)

        def write(file: int, data: int, size: int, offset: int) -> int:
            path = self._names.get(file, "")
            if self.full:
                return SQLITE_FULL
            self.log.append(("write", Path(path).name))
            return int(real_write(file, data, size, offset))

        def sync(file: int, flags: int) -> int:
            result = int(real_sync(file, flags))
            path = Path(self._names.get(file, ""))
            if result == 0:
                if self.durable is not None:
                    shutil.copyfile(path, self.durable / path.name)
                self.log.append(("sync", path.name))
            return result

        methods.write, methods.sync = _Write(write), _Sync(sync)
        self._kept += [real_write, real_sync, methods.write, methods.sync]
        return methods

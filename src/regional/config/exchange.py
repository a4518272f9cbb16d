"""A directory replaced in one step: the new one is built beside the old, then the two swap names.

Readers see the old tree or the new one, never a mixture, and a render that dies leaves the old one. Files that do not
change are hard links, so a small change to a large tree is cheap. `renameat2` with RENAME_EXCHANGE does the swap; where
the file system cannot (some network and overlay mounts), files are renamed into place one by one, index last.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY, errno.ENOTSUP}
STAGING = ".deploy-"


def replace_files(top: Path, writes: Mapping[str, bytes], removed: set[str]) -> None:
    """Brings `writes` into the tree at `top` and takes `removed` out, all at once."""
    top = top.resolve()
    if not top.exists():
        with _staged(top) as staging:
            _fill(staging, writes)
            staging.rename(top)
        return
    # The smallest directory that holds every change: one changed region costs one region, unless the index tells of it.
    folders = {os.path.dirname(path) for path in [*writes, *removed]}  # noqa: PTH120
    inner = os.path.commonpath(folders) if "" not in folders else ""
    while inner and not (top / inner).is_dir():
        inner = os.path.dirname(inner)  # noqa: PTH120
    _replace(top, inner, writes, removed)
    _remove_empty(top, {os.path.dirname(path) for path in removed})  # noqa: PTH120


def _replace(top: Path, inner: str, writes: Mapping[str, bytes], removed: set[str]) -> None:
    target = top / inner if inner else top
    start = len(inner) + 1 if inner else 0
    mine = {path[start:]: content for path, content in writes.items()}
    gone = {path[start:] for path in removed}
    with _staged(top) as staging:
        _link(target, staging, gone | mine.keys())
        _fill(staging, mine)
        staging.chmod(target.stat().st_mode & 0o7777)
        if not _exchange(staging, target):
            _one_by_one(staging, target, mine, gone)


def _link(source: Path, target: Path, left_out: set[str], below: str = "") -> None:
    with os.scandir(source / below if below else source) as entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                (target / path).mkdir()
                _link(source, target, left_out, path)
            elif path not in left_out:
                try:
                    os.link(entry.path, target / path, follow_symlinks=False)
                except OSError:
                    shutil.copy2(entry.path, target / path, follow_symlinks=False)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    made = {""}
    base = f"{folder}/"
    for path, content in files.items():
        parent = path.rpartition("/")[0]
        if parent not in made:
            os.makedirs(base + parent, exist_ok=True)  # noqa: PTH103 - thousands of files: strings are quicker
            made.add(parent)
        descriptor = os.open(base + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)


def _one_by_one(staging: Path, target: Path, writes: Mapping[str, bytes], removed: set[str]) -> None:
    for path in removed:
        (target / path).unlink()
    for path in sorted(writes, key=lambda path: (path == "index.json", path)):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (staging / path).replace(target / path)


def _remove_empty(top: Path, folders: set[str]) -> None:
    """Directories that lost their last file: Git does not know them, so neither does a fresh clone."""
    for folder in sorted(folders, key=len, reverse=True):
        current = top / folder
        while current != top:
            try:
                current.rmdir()
            except OSError:
                break
            current = current.parent


@contextlib.contextmanager
def _staged(top: Path) -> Iterator[Path]:
    staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=top.parent))
    staging.chmod(0o755)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One render at a time, from what it reads to what it writes; what a killed one left behind is cleared away."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in folder.glob(f"{STAGING}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    rename = _renameat2()
    if rename is None:
        return False
    ctypes.set_errno(0)
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return found

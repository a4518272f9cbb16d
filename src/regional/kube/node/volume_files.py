"""Files of a volume that change all at once or not at all, the way kubelet does it.

A reader sees `<volume>/key`, a link to `..data/key`; `..data` is a link to a directory with a name of its own. A new
content is a new directory and one rename of the `..data` link: no reader ever sees half of an update, and whoever
watches the directory (our roles, other people's) sees the familiar pattern.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

_DATA = "..data"


class File(msgspec.Struct, frozen=True):
    content: bytes
    mode: int = 0o644


class BadPath(ValueError):
    pass


def write_files(volume: Path, files: Mapping[str, File]) -> bool:
    """False if the volume holds exactly this already."""
    for path in files:
        check_relative(path)
    volume.mkdir(parents=True, exist_ok=True)
    current = volume / _DATA
    if current.is_symlink() and _holds(current.resolve(), files):
        return False
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=volume))
    fresh.chmod(0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    old = current.resolve() if current.is_symlink() else None
    swap = volume / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(fresh.name)
    swap.replace(current)
    _link_names(volume, {PurePosixPath(path).parts[0] for path in files})
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _link_names(volume: Path, names: set[str]) -> None:
    for name in names:
        with contextlib.suppress(FileExistsError):
            (volume / name).symlink_to(f"{_DATA}/{name}")
    for entry in volume.iterdir():
        stale = entry.is_symlink() and entry.name not in names and not entry.name.startswith("..")
        if stale and str(entry.readlink()) == f"{_DATA}/{entry.name}":
            entry.unlink()


def _holds(directory: Path, files: Mapping[str, File]) -> bool:
    present = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    if present.keys() != files.keys():
        return False
    return all(
        path.read_bytes() == files[name].content and path.stat().st_mode & 0o777 == files[name].mode
        for name, path in present.items()
    )


def check_relative(path: str) -> None:
    """Kubernetes' rule for paths inside a volume: relative, no `..`, not starting with `..`."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise BadPath(f"path {path!r} must be relative and may not contain '..'")

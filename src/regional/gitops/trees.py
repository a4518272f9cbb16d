"""Trees of Git as files in a cache: made beside and renamed, so never half there; the oldest go when there are many."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

TREES = 128


def unpack(archive: bytes, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                # Symbolic links could lead out of the tree; charts that need them are not ours.
                parts = PurePosixPath(member.name).parts
                source = tar.extractfile(member) if member.isfile() else None
                if source is not None and ".." not in parts and not member.name.startswith("/"):
                    file = beside.joinpath(*parts)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(source.read())
        beside.chmod(0o755)
        beside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def forget_oldest(trees: Path) -> None:
    """The cache has a size limit, and every commit may add to it."""
    found = [place for place in trees.iterdir() if place.is_dir()]
    if len(found) <= TREES:
        return
    found.sort(key=lambda place: place.stat().st_mtime)
    for place in found[:-TREES]:
        shutil.rmtree(place, ignore_errors=True)

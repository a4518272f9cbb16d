"""What was rendered before, by the text that it came from: a change of one region costs one region, not hundreds.

A region's result depends on its own entry in config.yaml, on `defaults` and `sectors`, and on this package's code. The
digest of all three is remembered in the user's cache with the resolved region and, as in Git's index, with size and
modification time of its files. Anything that does not match is done anew; the cache may be lost at any time, and
`render --check` does not use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from regional.config.model import Region
from regional.config.source import Document, Node

Signature = tuple[int, int, int]  # size, modification time, inode


class Remembered(msgspec.Struct, array_like=True):
    region: Region
    files: dict[str, Signature]  # below deploy/


class _Shelf(msgspec.Struct, array_like=True):
    checkout: str
    entries: dict[str, Remembered]


class Memory:
    """Entries are looked up by digest while a configuration loads, and noted again once its files are written."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = str(checkout.resolve())
        self._file = folder() / f"{hashlib.sha256(self._checkout.encode()).hexdigest()[:24]}.msgpack"
        self._old = self._read()
        self._digests: dict[str, str] = {}  # region key -> digest
        self._known: dict[str, Remembered] = {}

    def digests(self, document: Document, entries: list[Node]) -> list[str]:
        """One per entry of `region_deployments`, in its order."""
        around = [document.root.get("defaults"), document.root.get("sectors")]
        shared = msgspec.json.encode([node.plain() if node else None for node in around])
        base = hashlib.blake2b(_code() + shared, digest_size=16).digest()
        starts = [document.offset(entry) for entry in entries]
        slices = zip(starts, [*starts, len(document.text)][1:], strict=True)
        return [
            hashlib.blake2b(document.text[start:end].encode(), key=base, digest_size=16).hexdigest()
            for start, end in slices
        ]

    def recall(self, digest: str) -> Region | None:
        found = self._old.get(digest)
        if found is None:
            return None
        self._known[found.region.key] = found
        return found.region

    def note(self, digest: str, region: Region) -> None:
        self._digests[region.key] = digest

    def intact(self, region: Region, present: Mapping[str, Signature]) -> Mapping[str, Signature]:
        """The region's files if they are as they were written, otherwise nothing."""
        known = self._known.get(region.key)
        if known is None or any(present.get(path) != signature for path, signature in known.files.items()):
            return {}
        return known.files

    def keep(self, regions: list[Region], deploy_dir: Path, written: Mapping[str, frozenset[str]]) -> None:
        """`written` holds, per region key, the files of every region that was rendered; the others are as recalled."""
        entries: dict[str, Remembered] = {}
        for region in regions:
            known = self._known.get(region.key)
            if region.key in written:
                known = Remembered(region, {path: signature(deploy_dir / path) for path in written[region.key]})
            if known is not None and region.key in self._digests:
                entries[self._digests[region.key]] = known
        with contextlib.suppress(OSError, OverflowError, TypeError):  # a cache that cannot be written is no fault
            self._write(msgspec.msgpack.encode(_Shelf(self._checkout, entries)))

    def _read(self) -> dict[str, Remembered]:
        try:
            shelf = msgspec.msgpack.decode(self._file.read_bytes(), type=_Shelf)
        except (OSError, msgspec.MsgspecError):
            return {}
        return shelf.entries if shelf.checkout == self._checkout else {}

    def _write(self, content: bytes) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self._file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            Path(name).replace(self._file)
            _forget(self._file.parent)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def signature(path: Path | os.DirEntry[str]) -> Signature:
    found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - takes entries of a directory too
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "regional" / "render"


def _forget(shelves: Path, days: int = 30) -> None:
    """Checkouts come and go."""
    for file in shelves.glob("*.msgpack"):
        if time.time() - file.stat().st_mtime > days * 86400:
            file.unlink()


def _code() -> bytes:
    """Changes whenever this package does."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return repr([(file.name, *signature(file)) for file in files]).encode()

"""The node's own files, by which a restarted node process knows again what runs and why.

    <root>/hosts                                     names of Services, for what is no pod
    <root>/pods/<uid>/pod.json                       who it is and which address it holds
                     /hosts                          its names
                     /volumes/<volume>/              what is mounted
                     /containers/<name>/record.json  which attempt we are at, how the last ones ended
                                       /rootfs/      POD_ROOT: mount paths as links into volumes/
                                       /<n>.state    written by attempt n itself before it runs (core.spawn)
                                       /<n>.exit     how attempt n ended
                                       /<n>.log      its output
                                       /state.json, /log   links to the current attempt's files

Every attempt has files of its own, so a request that arrives late or twice can never be taken for another attempt.
Nothing here is flushed to disk: these files describe processes, and those do not survive a power cut either.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class Termination(msgspec.Struct, omit_defaults=True):
    code: int
    finished: str
    started: str = ""
    signal: int = 0
    reason: str = ""
    message: str = ""
    process: str = ""


class PodRecord(msgspec.Struct):
    uid: str
    namespace: str
    name: str
    address: str


class ContainerRecord(msgspec.Struct):
    """`ended` is about the current attempt; `last` about the one before. Neither means it runs or is about to."""

    digest: str  # of what was asked for; a different one means that the container must be replaced
    attempt: int = 0
    asked: str = ""  # when the process was asked for
    ended: Termination | None = None
    last: Termination | None = None
    restarts_in_a_row: int = 0  # without a long run in between: decides the back-off
    unwatched_end: bool = False  # it ended while no node was there to see why


class ContainerDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.rootfs = path / "rootfs"
        self._record = path / "record.json"

    def log(self, attempt: int) -> Path:
        return self.path / f"{attempt}.log"

    def state(self, attempt: int) -> Path:
        return self.path / f"{attempt}.state"

    def exit(self, attempt: int) -> Path:
        return self.path / f"{attempt}.exit"

    def load(self) -> ContainerRecord | None:
        return _load(self._record, ContainerRecord)

    def save(self, record: ContainerRecord) -> None:
        write_whole(self._record, msgspec.json.encode(record))

    def begin(self, attempt: int) -> None:
        """Point the well-known names at this attempt, and keep only the previous one's files beside it."""
        replace_link(self.path / "state.json", f"{attempt}.state")
        replace_link(self.path / "log", f"{attempt}.log")
        for old in self.path.glob("*.*"):
            number = old.name.partition(".")[0]
            if number.isdigit() and int(number) < attempt - 1:
                old.unlink(missing_ok=True)


class PodDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.hosts = path / "hosts"
        self.volumes = path / "volumes"

    @property
    def uid(self) -> str:
        return self.path.name

    def container(self, name: str) -> ContainerDirectory:
        return ContainerDirectory(self.path / "containers" / name)

    def containers(self) -> Iterator[ContainerDirectory]:
        for path in sorted((self.path / "containers").glob("*")):
            yield ContainerDirectory(path)

    def load(self) -> PodRecord | None:
        return _load(self.path / "pod.json", PodRecord)

    def save(self, record: PodRecord) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self.path / "pod.json", msgspec.json.encode(record))

    def remove(self) -> None:
        """Renamed first: a half-removed directory must not look like a pod."""
        grave = self.path.with_name(f".{self.path.name}")
        try:
            self.path.rename(grave)
        except FileNotFoundError:
            pass
        shutil.rmtree(grave, ignore_errors=True)


class NodeDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.hosts = root / "hosts"
        self._pods = root / "pods"

    def prepare(self) -> None:
        self._pods.mkdir(parents=True, exist_ok=True, mode=0o700)
        for grave in self._pods.glob(".*"):
            shutil.rmtree(grave, ignore_errors=True)

    def pod(self, uid: str) -> PodDirectory:
        return PodDirectory(self._pods / uid)

    def pods(self) -> Iterator[PodDirectory]:
        for path in sorted(self._pods.iterdir()):
            if not path.name.startswith("."):
                yield PodDirectory(path)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """All of it or nothing, to a reader and to a crash of this process."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.chmod(mode)
    temporary.replace(path)


def replace_link(link: Path, target: str | Path) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None

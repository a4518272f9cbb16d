"""The state of a run on disk: one directory, one `run.json` replaced whole at every transition, logs beside it.

    <store>/<run>/run.json            what happened to each task
    <store>/<run>/<task>/<step>.log   what its steps printed, all attempts one after the other
    <store>/<run>/<task>/.<attempt>/  <step>.state and .exit (see core.spawn), results/<name>

A task goes Pending → Running → Succeeded | Failed, or Pending → Skipped; Running → Pending when a runner finds that
the step died with its predecessor. Nothing else is possible.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from regional.core.files import write_json
from regional.core.problems import UserError
from regional.pipelines.model import Value

TaskStatus = Literal["Pending", "Running", "Succeeded", "Failed", "Skipped"]
RunStatus = Literal["Running", "Succeeded", "Failed"]
_LEGAL: dict[TaskStatus, tuple[TaskStatus, ...]] = {
    "Pending": ("Running", "Skipped", "Failed"),
    "Running": ("Running", "Succeeded", "Failed", "Pending"),
    "Failed": ("Pending",),
    "Skipped": ("Pending",),
    "Succeeded": ("Pending",),
}


class TaskRecord(msgspec.Struct, rename="camel"):
    name: str
    task: str
    status: TaskStatus = "Pending"
    attempt: int = 0  # directories used so far, interrupted ones included
    failures: int = 0  # attempts that count against `retries`
    inputs: str = ""  # digest of the resolved inputs of this attempt
    started: float = 0.0
    finished: float = 0.0
    message: str = ""
    exit_code: int | None = None
    results: dict[str, str] = {}

    def become(self, status: TaskStatus, message: str = "") -> None:
        if status not in _LEGAL[self.status]:
            raise AssertionError(f"task {self.name} cannot go from {self.status} to {status}")
        self.status = status
        self.message = message

    @property
    def seconds(self) -> float:
        return max(0.0, self.finished - self.started)


class RunRecord(msgspec.Struct, rename="camel"):
    name: str
    pipeline: str
    inputs: str  # digest of the pipeline's files and parameters: another one is another run
    params: dict[str, Value]
    status: RunStatus = "Running"
    started: float = 0.0
    finished: float = 0.0
    message: str = ""
    results: dict[str, str] = {}
    tasks: dict[str, TaskRecord] = {}


class RunStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def directory(self, run: str) -> Path:
        return self._directory / run

    def names(self) -> list[str]:
        return sorted(path.parent.name for path in self._directory.glob("*/run.json"))

    def load(self, run: str) -> RunRecord | None:
        try:
            return msgspec.json.decode((self.directory(run) / "run.json").read_bytes(), type=RunRecord)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise UserError(
                f"the record of pipeline run {run} cannot be read: {error}",
                hint=f"remove {self.directory(run)} to run it afresh",
            ) from None

    def save(self, record: RunRecord) -> None:
        write_json(self.directory(record.name) / "run.json", record)

    def set_aside(self, run: str) -> None:
        """Keep a finished or abandoned run under `<run>.1` (the newest), `.2`, …"""
        last = 1
        while self.directory(f"{run}.{last}").exists():
            last += 1
        for number in range(last, 1, -1):
            self.directory(f"{run}.{number - 1}").rename(self.directory(f"{run}.{number}"))
        self.directory(run).rename(self.directory(f"{run}.1"))

    @contextmanager
    def alone(self, run: str) -> Iterator[None]:
        """Two runners of one run would start every step twice."""
        locks = self._directory / ".locks"
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (locks / run).open("a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                raise UserError(
                    f"pipeline run {run} is being executed by process {handle.read().strip() or 'unknown'}",
                    hint="wait for it, or stop that process: the next run goes on where it was",
                ) from None
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            yield


def digest(*values: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:32]


def tail(path: Path, lines: int = 20, limit: int = 16_384) -> list[str]:
    """The last lines of a log, however long it is."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]

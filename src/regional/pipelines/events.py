"""What a run tells while it goes on, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from regional.core.problems import UserError

EventKind = Literal[
    "run-started",
    "task-started",
    "task-adopted",  # its step was still running when we came
    "task-retried",
    "task-finished",
    "task-reused",  # had finished in an earlier attempt of the same run
    "task-skipped",
    "task-failed",
    "run-finished",
]


class Event(msgspec.Struct, frozen=True):
    kind: EventKind
    run: str
    task: str = ""
    seconds: float = 0.0
    message: str = ""
    log: str = ""  # path of the log of the step that runs or failed
    lines: tuple[str, ...] = ()  # its last lines, for a failure


OnEvent = Callable[[Event], None]


class RunResult(msgspec.Struct):
    name: str
    pipeline: str
    succeeded: bool
    seconds: float
    results: dict[str, str]
    failures: list[Event]
    directory: Path

    def require_success(self) -> RunResult:
        if self.succeeded:
            return self
        first = self.failures[0] if self.failures else None
        lines = [f"pipeline run {self.name} failed" + (f" in task {first.task}: {first.message}" if first else "")]
        lines += [f"  {line}" for line in (first.lines if first else ())]
        place = first.log if first and first.log else str(self.directory)
        raise UserError("\n".join(lines), hint=f"the whole log is in {place}; running it again goes on from there")

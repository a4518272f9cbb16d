"""One container: a process that is asked for, watched, adopted and stopped, attempt by attempt."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.core.clock import Clock, rfc3339
from regional.core.process import ProcessRef
from regional.core.spawn import ExitStatus, SpawnRequest, read_state, spawn, wait_exit
from regional.kube.node.layout import ContainerDirectory, ContainerRecord, Termination
from regional.kube.objects import Obj, parse_time

log = logging.getLogger(__name__)
_MESSAGE_BYTES = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80
_LONG_RUN = 600.0


class Launch(msgspec.Struct):
    """What to run, with everything of the manifest resolved."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


class Waiting(msgspec.Struct, frozen=True):
    reason: str
    message: str = ""


def digest_of(spec: Obj) -> str:
    """Only what may change in a pod that exists: its image."""
    return hashlib.sha256(str(spec.get("image")).encode()).hexdigest()[:16]


class Container:
    """The process itself is known by the files in `directory`; this object is rebuilt from them after a crash."""

    def __init__(
        self,
        spec: Obj,
        directory: ContainerDirectory,
        spawner: Path,
        clock: Clock,
        on_change: Callable[[], None],
        *,
        init: bool = False,
    ) -> None:
        self.name: str = spec["name"]
        self.spec = spec
        self.directory = directory
        self.init = init
        self.sidecar = init and spec.get("restartPolicy") == "Always"
        self.process: ProcessRef | None = None
        self.record: ContainerRecord | None = None
        self.launch: Launch | None = None
        self.waiting: Waiting | None = None
        self.started = False  # its startup probe has passed, or it has none
        self.ready = False
        self.adopted = False
        self._spawner = spawner
        self._clock = clock
        self._on_change = on_change
        self._watch: asyncio.Task[None] | None = None

    # -- what it is doing --------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def ended(self) -> Termination | None:
        return self.record.ended if self.record is not None else None

    @property
    def attempts(self) -> int:
        return self.record.attempt if self.record is not None else 0

    @property
    def identity(self) -> str:
        return f"process://{self.process.pid}-{self.process.start}" if self.process is not None else ""

    # -- life --------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Find again what a predecessor of this node process started."""
        self.record = self.directory.load()
        if self.record is None or self.record.ended is not None:
            return
        process = read_state(self.directory.state(self.record.attempt))
        if process is not None:
            self.adopted = process.alive()
            if not self.adopted:  # the region was down, or its machine was off: that is no crash of the container
                self.record.restarts_in_a_row = 0
                self.record.unwatched_end = True
            self._follow(process, seen_alive=self.adopted)

    async def start(self, launch: Launch, *, title: str) -> None:
        """Begin the next attempt, or repeat the request of one that never came to be.

        The record goes to disk first: whoever reads it later either finds the attempt's state file, or may ask again
        for the same attempt without fear of a twin (core.spawn).
        """
        if self.record is None:
            self.record = ContainerRecord(digest_of(self.spec))
        elif self.record.ended is not None:
            previous = self.record
            self.record = ContainerRecord(
                digest_of(self.spec),
                previous.attempt + 1,
                last=previous.ended,
                restarts_in_a_row=0
                if previous.unwatched_end or ran_long(previous.ended)
                else previous.restarts_in_a_row + 1,
            )
        self.record.asked = rfc3339(self._clock.now())
        attempt = self.record.attempt
        self.directory.save(self.record)
        self.directory.begin(attempt)
        self._clear_message()
        request = SpawnRequest(
            argv=launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            log=str(self.directory.log(attempt)),
            exit_file=str(self.directory.exit(attempt)),
            state_file=str(self.directory.state(attempt)),
            title=title,
        )
        answered = await spawn(self._spawner, request)
        self.launch, self.waiting = launch, None
        self._follow(read_state(self.directory.state(attempt)) or answered, seen_alive=True)

    def _follow(self, process: ProcessRef, *, seen_alive: bool) -> None:
        self.process = process
        self._watch = asyncio.create_task(self._until_end(process, seen_alive), name=f"container {self.name}")

    async def _until_end(self, process: ProcessRef, seen_alive: bool) -> None:
        assert self.record is not None
        status = await wait_exit(process, self.directory.exit(self.record.attempt))
        if seen_alive:  # else its number may be somebody else's by now
            end_group(process)
        self.record.ended = Termination(
            code=status.code,
            finished=status.finished,
            started=self.record.asked,
            signal=status.signal,
            reason=_reason(status),
            message=status.problem or self._last_words(status.code),
            process=self.identity,
        )
        with contextlib.suppress(FileNotFoundError):  # its pod was removed in the same moment
            self.directory.save(self.record)
        self.process = None
        self.started = self.ready = self.adopted = False
        log.info("container ended", extra={"container": self.name, "code": status.code, "signal": status.signal})
        self._on_change()

    # -- its last words ----------------------------------------------------------------------------------------------

    @property
    def _message_file(self) -> Path:
        wanted = str(self.spec.get("terminationMessagePath") or "/dev/termination-log")
        return self.directory.rootfs / wanted.lstrip("/")

    def _clear_message(self) -> None:
        """An empty file for the next attempt, where its manifest says that it will write."""
        with contextlib.suppress(OSError):
            self._message_file.parent.mkdir(parents=True, exist_ok=True)
            self._message_file.write_bytes(b"")

    def _last_words(self, code: int) -> str:
        """What it wrote for this purpose; else, where the manifest says so and it failed, the end of its log."""
        with contextlib.suppress(OSError):
            with self._message_file.open("rb") as stream:
                written = stream.read(_MESSAGE_BYTES)
            if written:
                return written.decode(errors="replace")
        if code == 0 or self.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        try:
            with self.directory.log(self.attempts).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
                lines = stream.read().decode(errors="replace").splitlines(keepends=True)
                return "".join(lines[-_LOG_LINES:])
        except OSError:
            return ""

    async def ended_within(self, seconds: float | None) -> bool:
        if self._watch is None:
            return True
        done, _ = await asyncio.wait([self._watch], timeout=None if seconds is None else max(0.0, seconds))
        return bool(done)

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.signal(number)

    def forget(self) -> None:
        """Stop watching without touching the process: this node process is leaving, not the pod."""
        if self._watch is not None:
            self._watch.cancel()


def _reason(status: ExitStatus) -> str:
    if status.problem:
        return "ContainerCannotRun"
    return "Completed" if status.code == 0 else "Error"


def end_group(leader: ProcessRef) -> None:
    """Kill what a container's main process left behind in its process group, right after it ended itself.

    Its number cannot have been given to another group yet while members are left. (What moved to other groups is
    found by its environment when the pod goes: sweeping.)
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGKILL)


def ran_long(ended: Termination | None) -> bool:
    """A container that lived for ten minutes starts over with its back-off, as kubelet has it."""
    began, finished = parse_time(ended.started if ended else ""), parse_time(ended.finished if ended else "")
    return began is not None and finished is not None and (finished - began).total_seconds() > _LONG_RUN

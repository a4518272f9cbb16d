"""One attempt at a task: its steps, one after the other, as processes that outlive their runner.

Everything about an attempt is in its directory, so whoever comes later sees what happened: no state file, the step was
never started; a state file, adopt that process or learn from the exit file how it ended; neither alive nor an exit
file, it died unseen and the attempt tells nothing about the task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from regional.core.clock import Clock, rfc3339
from regional.core.process import ProcessRef
from regional.core.spawn import ExitStatus, SpawnError, SpawnRequest, read_exit, read_state, spawn, wait_exit

_WARM_PARENT_SECONDS = 60.0  # how long to wait for a warm parent that is being restarted
_STOP_GRACE = 5.0
RESULT_LIMIT = 4096  # Tekton's: results travel in a pod's termination message


class ResolvedStep(msgspec.Struct):
    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    may_fail: bool = False


class Outcome(msgspec.Struct):
    status: Literal["succeeded", "failed", "interrupted"]
    message: str = ""
    exit_code: int | None = None
    log: str = ""


class _Interrupted(Exception):
    pass


class Attempt:
    def __init__(self, spawner: Path, clock: Clock, title: str, directory: Path, log_directory: Path) -> None:
        self._spawner = spawner
        self._clock = clock
        self._title = title
        self._directory = directory
        self._log_directory = log_directory
        self._resumed = directory.exists()
        (directory / "results").mkdir(parents=True, exist_ok=True, mode=0o700)

    def result_path(self, name: str) -> Path:
        return self._directory / "results" / name

    def log_path(self, step: str) -> Path:
        return self._log_directory / f"{step}.log"

    async def run(self, steps: list[ResolvedStep], limit: float | None, on_adopted: Callable[[], None]) -> Outcome:
        current = steps[0].name
        try:
            async with asyncio.timeout(limit):
                for step in steps:
                    current = step.name
                    status = await self._step(step, on_adopted)
                    if status.code and not step.may_fail:
                        return Outcome("failed", _ending(step.name, status), status.code, str(self.log_path(current)))
        except TimeoutError:
            return Outcome(
                "failed", f"step {current} did not finish within {limit:g} s", None, str(self.log_path(current))
            )
        except _Interrupted:
            return Outcome("interrupted", f"step {current} died with its runner", None, str(self.log_path(current)))
        except SpawnError as error:
            return Outcome("failed", f"step {current} could not be started: {error}", None, str(self.log_path(current)))
        return Outcome("succeeded", "", 0, str(self.log_path(current)))

    async def _step(self, step: ResolvedStep, on_adopted: Callable[[], None]) -> ExitStatus:
        exit_file = self._directory / f"{step.name}.exit"
        process = read_state(self._directory / f"{step.name}.state")
        if process is None:
            process = await self._start_or_stop(step, exit_file)
        elif process.alive():
            on_adopted()
        elif (status := read_exit(exit_file)) is None or status.signal:
            raise _Interrupted
        else:
            return status
        try:
            return await wait_exit(process, exit_file)
        except asyncio.CancelledError:
            await process.stop(_STOP_GRACE)
            raise

    async def _start_or_stop(self, step: ResolvedStep, exit_file: Path) -> ProcessRef:
        """Cancelled between the request and its answer, the process may be there already: it is stopped, too."""
        starting = asyncio.ensure_future(self._start(step, exit_file))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(SpawnError, OSError, TimeoutError):
                async with asyncio.timeout(_STOP_GRACE):
                    process = await starting
                await process.stop(_STOP_GRACE)
            raise

    async def _start(self, step: ResolvedStep, exit_file: Path) -> ProcessRef:
        request = SpawnRequest(
            argv=step.argv,
            env=step.env,
            cwd=step.cwd,
            log=str(self.log_path(step.name)),
            exit_file=str(exit_file),
            state_file=str(self._directory / f"{step.name}.state"),
            title=self._title,
        )
        with self.log_path(step.name).open("a") as log:
            log.write(f"--- {rfc3339(self._clock.now())} {' '.join(step.argv)}\n")
        deadline = self._clock.monotonic() + _WARM_PARENT_SECONDS
        while True:
            try:
                return await spawn(self._spawner, request)
            except OSError as error:
                # Repeating is safe: the state file lets one child at most run.
                if self._clock.monotonic() >= deadline:
                    raise SpawnError(f"no warm parent at {self._spawner}: {error}") from None
                await self._clock.sleep(0.1)

    def results(self, declared: list[str]) -> tuple[dict[str, str], str]:
        """(results, problem)"""
        found: dict[str, str] = {}
        for name in declared:
            try:
                found[name] = self.result_path(name).read_text()
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                return {}, f"result {name} cannot be read: {error}"
        sizes = {name: len(value.encode()) for name, value in found.items()}
        if sum(sizes.values()) > RESULT_LIMIT:
            listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
            return {}, f"results of a task may have {RESULT_LIMIT} bytes together, as in Tekton; here: {listed}"
        return found, ""


async def stop_leftovers(task_directory: Path) -> None:
    """End every step of an abandoned run that is still alive."""
    for file in task_directory.glob(".*/*.state"):
        process = read_state(file)
        if process is not None and process.alive():
            await process.stop(_STOP_GRACE)


def _ending(step: str, status: ExitStatus) -> str:
    if status.signal:
        return f"step {step} was killed by signal {status.signal}"
    return f"step {step} ended with code {status.code}"

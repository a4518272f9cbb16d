"""kill -9 of the runner, at any moment: whoever runs it again finishes the job without doing anything twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from regional.core.problems import UserError
from regional.core.spawn import read_state
from regional.pipelines.catalog import load_catalog
from regional.pipelines.events import Event
from regional.pipelines.runner import PipelineRunner

from .conftest import Write, pipeline, task, use

_PROGRAM = """
import sys
from pathlib import Path
from regional.core import loop
from regional.pipelines.runner import PipelineRunner
store, spawner, path, out, file = sys.argv[1:]
runner = PipelineRunner(Path(store), Path(spawner), {"PATH": path, "OUT": out})
loop.run(runner.run([Path(file)], "p", "run", {}))
"""


class Elsewhere:
    """The same runner in a process of its own, to be killed."""

    def __init__(self, directory: Path, spawner: Path, *documents: dict[str, object]) -> None:
        self.file = directory / "p.yaml"
        self.file.write_text(yaml.safe_dump_all(documents))
        arguments = [str(directory / "runs"), str(spawner), os.environ["PATH"], str(directory), str(self.file)]
        self.process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments])

    def kill_when(self, sign: Path) -> None:
        deadline = time.monotonic() + 60
        while not sign.exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        self.process.kill()
        self.process.wait()


PREPARE = task("prepare", "echo x >> $OUT/prepared; printf v > $(results.r.path)", results=("r",))
SLOW = task("slow", "echo x >> $OUT/slow; touch $OUT/slow-runs; until test -e $OUT/go; do sleep 0.01; done")
PIPELINE = pipeline("p", use("first", "prepare"), use("second", "slow", runAfter=["first"]))


async def test_a_step_that_outlived_its_runner_is_adopted(
    runner: PipelineRunner, spawner: Path, tmp_path: Path
) -> None:
    Elsewhere(tmp_path, spawner, PREPARE, SLOW, PIPELINE).kill_when(tmp_path / "slow-runs")
    events: list[Event] = []
    going_on = asyncio.create_task(runner.run([tmp_path / "p.yaml"], "p", "run", {}, events.append))
    await asyncio.sleep(0.2)
    assert not going_on.done()
    (tmp_path / "go").touch()
    assert (await going_on).succeeded
    assert (tmp_path / "prepared").read_text() == (tmp_path / "slow").read_text() == "x\n"
    kinds = [(event.kind, event.task) for event in events]
    assert ("task-reused", "first") in kinds
    assert ("task-adopted", "second") in kinds


async def test_a_step_that_ended_meanwhile_is_not_run_again(
    runner: PipelineRunner, spawner: Path, tmp_path: Path
) -> None:
    Elsewhere(tmp_path, spawner, PREPARE, SLOW, PIPELINE).kill_when(tmp_path / "slow-runs")
    (tmp_path / "go").touch()
    exit_file = tmp_path / "runs" / "run" / "second" / ".1" / "run.exit"
    while not exit_file.exists():
        await asyncio.sleep(0.01)
    assert (await runner.run([tmp_path / "p.yaml"], "p", "run", {})).succeeded
    assert (tmp_path / "slow").read_text() == "x\n"


async def test_a_step_that_died_with_its_runner_is_run_again_without_counting_as_a_failure(
    runner: PipelineRunner, spawner: Path, tmp_path: Path
) -> None:
    Elsewhere(tmp_path, spawner, PREPARE, SLOW, PIPELINE).kill_when(tmp_path / "slow-runs")
    step = read_state(tmp_path / "runs" / "run" / "second" / ".1" / "run.state")
    assert step is not None
    os.killpg(step.pid, signal.SIGKILL)
    await step.wait()
    (tmp_path / "go").touch()
    assert (await runner.run([tmp_path / "p.yaml"], "p", "run", {})).succeeded
    assert (tmp_path / "slow").read_text() == "x\nx\n"
    assert (tmp_path / "prepared").read_text() == "x\n"


async def test_two_runners_of_one_run_do_not_collide(runner: PipelineRunner, spawner: Path, tmp_path: Path) -> None:
    other = Elsewhere(tmp_path, spawner, PREPARE, SLOW, PIPELINE)
    while not (tmp_path / "slow-runs").exists():
        await asyncio.sleep(0.01)
    with pytest.raises(UserError, match=f"being executed by process {other.process.pid}"):
        await runner.run([tmp_path / "p.yaml"], "p", "run", {})
    (tmp_path / "go").touch()
    assert other.process.wait(60) == 0
    assert (tmp_path / "slow").read_text() == "x\n"


async def test_cancelling_stops_the_step_and_the_next_run_starts_it_again(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(PREPARE, SLOW, PIPELINE)
    running = asyncio.create_task(runner.run(catalog, "p", "run", {}))
    while not (tmp_path / "slow-runs").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    step = read_state(tmp_path / "runs" / "run" / "second" / ".1" / "run.state")
    assert step is not None
    assert not step.alive()
    (tmp_path / "go").touch()
    assert (await runner.run(catalog, "p", "run", {})).succeeded
    assert (tmp_path / "slow").read_text() == "x\nx\n"


async def test_other_inputs_end_what_the_abandoned_run_left_running(
    runner: PipelineRunner, spawner: Path, tmp_path: Path
) -> None:
    Elsewhere(tmp_path, spawner, PREPARE, SLOW, PIPELINE).kill_when(tmp_path / "slow-runs")
    step = read_state(tmp_path / "runs" / "run" / "second" / ".1" / "run.state")
    assert step is not None
    assert step.alive()
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump_all([PREPARE, pipeline("p", use("only", "prepare"))]))
    assert (await runner.run(load_catalog([other]), "p", "run", {})).succeeded
    assert not step.alive()


async def test_what_other_code_has_done_is_done_again(spawner: Path, tmp_path: Path, catalog_of: Write) -> None:
    catalog = catalog_of(PREPARE, pipeline("p", use("first", "prepare")))
    env = {"PATH": os.environ["PATH"], "OUT": str(tmp_path)}
    for code in ("old", "old", "new", "new"):
        runner = PipelineRunner(tmp_path / "runs", spawner, env, code=code)
        assert (await runner.run(catalog, "p", "run", {})).succeeded
    assert (tmp_path / "prepared").read_text() == "x\nx\n"

"""When something goes wrong: tried again as often as allowed, then told with the last lines; cleaned up in any case."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.core.spawn import read_state
from regional.pipelines.events import Event
from regional.pipelines.runner import PipelineRunner

from .conftest import Write, given, pipeline, task, use


async def test_a_task_is_tried_again_as_often_as_it_allows(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(
        task("flaky", "echo x >> $OUT/tries; test `wc -l < $OUT/tries` -ge 3"),
        pipeline("patient", use("one", "flaky", retries=2)),
        pipeline("hasty", use("one", "flaky", retries=1)),
    )
    assert not (await runner.run(catalog, "hasty", "hasty", {})).succeeded
    (tmp_path / "tries").unlink()
    events: list[Event] = []
    assert (await runner.run(catalog, "patient", "patient", {}, events.append)).succeeded
    assert [event.kind for event in events if event.task] == [
        "task-started",
        "task-retried",
        "task-started",
        "task-retried",
        "task-started",
        "task-finished",
    ]


async def test_after_a_failure_nothing_new_starts_and_finally_still_runs(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(
        task("fails", "echo doing it; echo it broke >&2; exit 3"),
        task("notes", "echo $(params.what) >> $OUT/noted", params=("what",)),
        pipeline(
            "p",
            use("bad", "fails"),
            use("later", "notes", params=given(what="later"), runAfter=["bad"]),
            **{
                "finally": [
                    use(
                        "report",
                        "notes",
                        params=given(what="$(tasks.bad.status),$(tasks.later.status),$(tasks.status)"),
                    )
                ]
            },
        ),
    )
    result = await runner.run(catalog, "p", "run", {})
    assert not result.succeeded
    assert (tmp_path / "noted").read_text() == "Failed,None,Failed\n"
    [failure] = result.failures
    assert failure.task == "bad"
    assert failure.message == "step run ended with code 3"
    assert failure.lines[-2:] == ("doing it", "it broke")
    with pytest.raises(UserError, match="failed in task bad: step run ended with code 3"):
        result.require_success()


async def test_running_it_again_repeats_only_what_failed(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(
        task("counts", "echo x >> $OUT/counted"),
        task("fails", "test -e $OUT/fixed"),
        pipeline("p", use("good", "counts"), use("bad", "fails", runAfter=["good"])),
    )
    assert not (await runner.run(catalog, "p", "run", {})).succeeded
    (tmp_path / "fixed").touch()
    events: list[Event] = []
    assert (await runner.run(catalog, "p", "run", {}, events.append)).succeeded
    assert (tmp_path / "counted").read_text() == "x\n"
    assert ("task-reused", "good") in [(event.kind, event.task) for event in events]
    await runner.run(catalog, "p", "run", {})
    assert (tmp_path / "counted").read_text() == "x\n"
    await runner.run(catalog, "p", "run", {}, fresh=True)
    assert (tmp_path / "counted").read_text() == "x\nx\n"


async def test_other_inputs_are_another_run_and_the_old_one_is_kept(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(
        task("notes", "echo $(params.commit) >> $OUT/noted", params=("commit",)),
        pipeline("p", use("one", "notes", params=given(commit="$(params.commit)")), params=[{"name": "commit"}]),
    )
    for commit in ("a", "a", "b"):
        assert (await runner.run(catalog, "p", "run", {"commit": commit})).succeeded
    assert (tmp_path / "noted").read_text() == "a\nb\n"
    assert [record.params for record in runner.list_runs()] == [{"commit": "b"}, {"commit": "a"}]


async def test_a_step_that_takes_too_long_is_ended(runner: PipelineRunner, catalog_of: Write, tmp_path: Path) -> None:
    catalog = catalog_of(task("hangs", "exec sleep 600"), pipeline("p", use("one", "hangs", timeout="300ms")))
    result = await runner.run(catalog, "p", "run", {})
    assert result.failures[0].message == "step run did not finish within 0.3 s"
    step = read_state(tmp_path / "runs" / "run" / "one" / ".1" / "run.state")
    assert step is not None and not step.alive()


async def test_results_have_tektons_limit(runner: PipelineRunner, catalog_of: Write) -> None:
    catalog = catalog_of(
        task("big", "head -c 5000 /dev/zero | tr '\\0' x > $(results.r.path)", results=("r",)),
        pipeline("p", use("one", "big")),
    )
    result = await runner.run(catalog, "p", "run", {})
    assert "4096 bytes together" in result.failures[0].message


async def test_a_step_may_be_allowed_to_fail(runner: PipelineRunner, catalog_of: Write, tmp_path: Path) -> None:
    steps = [
        {"name": name, "image": "regional/regional", "command": ["sh", "-c", line], **more}
        for name, line, more in (("a", "exit 1", {"onError": "continue"}), ("b", "touch $OUT/b", {}))
    ]
    catalog = catalog_of(task("t", "", steps=steps), pipeline("p", use("one", "t")))
    assert (await runner.run(catalog, "p", "run", {})).succeeded
    assert (tmp_path / "b").exists()


async def test_a_result_that_was_not_written_is_missed_by_the_task_that_needs_it(
    runner: PipelineRunner, catalog_of: Write
) -> None:
    catalog = catalog_of(
        task("forgets", "true", results=("r",)),
        task("needs", "true", params=("r",)),
        pipeline("p", use("a", "forgets"), use("b", "needs", params=given(r="$(tasks.a.results.r)"))),
    )
    result = await runner.run(catalog, "p", "run", {})
    assert (result.failures[0].task, result.failures[0].message) == ("b", "$(tasks.a.results.r) has no value")

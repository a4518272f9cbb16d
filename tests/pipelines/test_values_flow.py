"""Parameters, results and conditions mean what they mean in Tekton."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.pipelines.events import Event
from regional.pipelines.runner import PipelineRunner

from .conftest import Write, given, pipeline, task, use


async def test_a_result_becomes_another_tasks_parameter_and_orders_the_two(
    runner: PipelineRunner, catalog_of: Write
) -> None:
    catalog = catalog_of(
        task("mint", "sleep 0.1; printf 111122223333 > $(results.account-id.path)", results=("account-id",)),
        task("use", 'printf "$(params.account)" > $(results.seen.path)', params=("account",), results=("seen",)),
        pipeline(
            "p",
            use("second", "use", params=given(account="id=$(tasks.first.results.account-id)")),
            use("first", "mint"),
            results=[{"name": "seen", "value": "$(tasks.second.results.seen)"}],
        ),
    )
    result = await runner.run(catalog, "p", "run", {})
    assert result.succeeded
    assert result.results == {"seen": "id=111122223333"}


async def test_lists_expand_defaults_fill_and_context_is_known(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    several = task(
        "several",
        'printf "%s," "$0" "$@" > $OUT/seen',
        steps=[
            {
                "name": "run",
                "image": "$(params.image)",
                "command": ["sh", "-c", 'printf "%s," "$@" > "$OUT/seen"', "sh"],
                "args": ["$(params.names[*])", "$(params['names'][1])", "$(params.word)", "$(context.taskRun.name)"],
                "env": [{"name": "WORD", "value": "$(params.word)"}],
            }
        ],
    )
    several["spec"]["params"] = [  # type: ignore[index]
        {"name": "names", "type": "array"},
        {"name": "word", "default": "default"},
        {"name": "image", "default": "regional/regional:9"},
    ]
    catalog = catalog_of(
        several,
        pipeline(
            "p",
            use("one", "several", params=given(names="$(params.list[*])")),
            params=[{"name": "list", "type": "array", "default": ["a", "b c"]}],
        ),
    )
    assert (await runner.run(catalog, "p", "run", {})).succeeded
    assert (tmp_path / "seen").read_text() == "a,b c,b c,default,run-one,"


async def test_a_matrix_runs_once_for_each_value_and_an_empty_one_is_skipped(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    catalog = catalog_of(
        task("each", "touch $OUT/$(params.id)-$(params.color)", params=("id", "color")),
        task("after", "touch $OUT/after"),
        pipeline(
            "p",
            use("many", "each", params=given(color="red"), matrix={"params": given(id="$(params.ids[*])")}),
            use("then", "after", runAfter=["many"]),
            params=[{"name": "ids", "type": "array"}],
        ),
    )
    assert (await runner.run(catalog, "p", "full", {"ids": ["mc01", "mc02"]})).succeeded
    assert sorted(path.name for path in tmp_path.glob("mc*")) == ["mc01-red", "mc02-red"]
    (tmp_path / "after").unlink()
    assert (await runner.run(catalog, "p", "empty", {"ids": []})).succeeded
    assert (tmp_path / "after").exists()
    record = runner.store.load("empty")
    assert record is not None
    assert record.tasks["many"].status == "Skipped"


async def test_when_skips_a_task_and_those_that_need_its_results_but_not_those_that_only_follow_it(
    runner: PipelineRunner, catalog_of: Write
) -> None:
    catalog = catalog_of(
        task("make", "printf x > $(results.r.path)", results=("r",)),
        task("take", "true", params=("r",)),
        task("plain", "true"),
        pipeline(
            "p",
            use("guarded", "make", when=[{"input": "$(params.env)", "operator": "in", "values": ["prod"]}]),
            use("needs", "take", params=given(r="$(tasks.guarded.results.r)")),
            use("follows", "plain", runAfter=["guarded"]),
            use("unless", "plain", when=[{"input": "$(params.env)", "operator": "notin", "values": ["prod"]}]),
            params=[{"name": "env"}],
        ),
    )
    events: list[Event] = []
    assert (await runner.run(catalog, "p", "run", {"env": "local"}, events.append)).succeeded
    ended = {event.task: event.kind for event in events if event.task and event.kind != "task-started"}
    assert ended == {
        "guarded": "task-skipped",
        "needs": "task-skipped",
        "follows": "task-finished",
        "unless": "task-finished",
    }


async def test_a_workspace_is_the_directory_that_the_caller_gives(
    runner: PipelineRunner, catalog_of: Write, tmp_path: Path
) -> None:
    (tmp_path / "checkout").mkdir()
    reads = task("reads", "", workspaces=[{"name": "source"}])
    reads["spec"]["steps"] = [  # type: ignore[index]
        {
            "name": "run",
            "image": "regional/regional",
            "command": ["sh", "-c", "pwd > $OUT/seen"],
            "workingDir": "$(workspaces.source.path)",
        }
    ]
    catalog = catalog_of(
        reads, pipeline("p", use("one", "reads", workspaces=[{"name": "source"}]), workspaces=[{"name": "source"}])
    )
    assert (await runner.run(catalog, "p", "run", {}, workspaces={"source": tmp_path / "checkout"})).succeeded
    assert (tmp_path / "seen").read_text().strip() == str(tmp_path / "checkout")
    with pytest.raises(UserError, match="workspace source is required"):
        await runner.run(catalog, "p", "other", {})


async def test_all_wrong_parameters_are_named_at_once(runner: PipelineRunner, catalog_of: Write) -> None:
    catalog = catalog_of(
        task("t", "true"),
        pipeline("p", use("one", "t"), params=[{"name": "a"}, {"name": "b", "type": "array"}]),
    )
    with pytest.raises(UserError) as refused:
        await runner.run(catalog, "p", "run", {"b": "x", "c": "y"})
    assert "a is required" in refused.value.message
    assert "b is a list" in refused.value.message
    assert "no parameter c" in refused.value.message

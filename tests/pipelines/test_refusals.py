"""What the runner does not do, it says, with file and field; and everything at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from regional.pipelines.catalog import CatalogError, load_catalog
from regional.pipelines.runner import PipelineRunner

from .conftest import Write, given, pipeline, task, use

CASES: dict[str, tuple[list[dict[str, object]], str]] = {
    "script": (
        [task("t", "", steps=[{"name": "s", "image": "i", "command": ["a"], "script": "echo"}])],
        "spec.steps[0].script: this field is not supported",
    ),
    "sidecars": ([task("t", "true", sidecars=[])], "spec.sidecars: this field is not supported"),
    "array results": (
        [task("t", "true", results=()) | {"spec": {"steps": [], "results": [{"name": "r", "type": "array"}]}}],
        "spec.results[0].type: 'array' is not supported",
    ),
    "unknown task": ([pipeline("p", use("a", "none"))], "spec.tasks a.taskRef: there is no Task none"),
    "missing parameter": (
        [task("t", "true", params=("x",)), pipeline("p", use("a", "t"))],
        "spec.tasks a.params: the Task needs parameter x",
    ),
    "undeclared parameter": (
        [task("t", "echo $(params.x)")],
        "spec.steps run.args: $(params.x): no such parameter is declared",
    ),
    "shell substitution": ([task("t", "echo $(date)")], "$(date): is not a variable that steps have"),
    "unknown result": (
        [
            task("t", "true"),
            task("u", "true", params=("x",)),
            pipeline("p", use("a", "t"), use("b", "u", params=given(x="$(tasks.a.results.none)"))),
        ],
        "spec.tasks b.params x: $(tasks.a.results.none): that task has no such result",
    ),
    "cycle": (
        [task("t", "true"), pipeline("p", use("a", "t", runAfter=["b"]), use("b", "t", runAfter=["a"]))],
        "these wait for each other",
    ),
    "missing predecessor": (
        [task("t", "true"), pipeline("p", use("a", "t", runAfter=["z"]))],
        "spec.tasks a.runAfter: there is no task z",
    ),
    "embedded task": (
        [pipeline("p", {"name": "a", "taskSpec": {"steps": []}})],
        "spec.tasks[0].taskSpec: this field is not supported",
    ),
    "bad timeout": (
        [task("t", "true"), pipeline("p", use("a", "t", timeout="soon"))],
        "spec.tasks a.timeout: 'soon' is not a duration",
    ),
    "other version": (
        [task("t", "true") | {"apiVersion": "tekton.dev/v1beta1"}],
        "only tekton.dev/v1 Task, Pipeline, PipelineRun can be run",
    ),
    "twice": ([task("t", "true"), task("t", "true")], "Task t is also defined in"),
    "cel": (
        [task("t", "true"), pipeline("p", use("a", "t", when=[{"cel": "true"}]))],
        "spec.tasks[0].when[0].cel: this field is not supported",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_beyond_the_subset_is_refused_by_name(case: str, catalog_of: Write) -> None:
    documents, expected = CASES[case]
    with pytest.raises(CatalogError) as refused:
        catalog_of(*documents)
    assert expected in refused.value.message
    assert "pipelines.yaml" in refused.value.message


def test_all_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(task("a", "true", volumes=[], stepTemplate={})))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(pipeline("b", use("x", "none"))))
    (tmp_path / "c.yaml").write_text("{")
    with pytest.raises(CatalogError) as refused:
        load_catalog(tmp_path)
    assert len(refused.value.problems) == 4


async def test_a_step_with_another_image_is_refused_when_it_is_its_turn(
    runner: PipelineRunner, catalog_of: Write
) -> None:
    steps = [{"name": "s", "image": "docker/thing:1", "command": ["true"]}]
    result = await runner.run(catalog_of(task("t", "", steps=steps), pipeline("p", use("a", "t"))), "p", "run", {})
    assert result.failures[0].message == (
        "step s needs image docker/thing:1; on this machine only regional/regional can run"
    )

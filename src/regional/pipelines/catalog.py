"""The Tasks and Pipelines of a directory, read and checked as a whole before anything runs.

Every problem is reported at once with file and field. What Tekton knows and we do not do is refused by name: a pipeline
must never mean one thing here and another in the cloud.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from regional.core.problems import UserError
from regional.pipelines import durations, graph
from regional.pipelines.model import (
    API_VERSION,
    KINDS,
    Param,
    ParamSpec,
    Pipeline,
    PipelineRun,
    PipelineTask,
    Task,
    Value,
)
from regional.pipelines.shape import problems_of
from regional.pipelines.variables import Reference, references

_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
_PIPELINE_CONTEXT = frozenset({"pipeline.name", "pipelineRun.name"})
_TASK_CONTEXT = frozenset({"task.name", "taskRun.name", "task.retry-count"})


class CatalogError(UserError):
    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "these pipeline files cannot be run:\n" + "\n".join(f"  {problem}" for problem in problems),
            hint="the runner executes a subset of Tekton v1: the fields in regional.pipelines.model",
        )
        self.problems = problems


class Catalog(msgspec.Struct):
    tasks: dict[str, Task] = {}
    pipelines: dict[str, Pipeline] = {}
    runs: dict[str, PipelineRun] = {}

    def pipeline(self, name: str) -> Pipeline:
        if name not in self.pipelines:
            raise UserError(f"there is no pipeline {name}", hint="known: " + ", ".join(sorted(self.pipelines)))
        return self.pipelines[name]


def load_catalog(source: Path | Iterable[Path]) -> Catalog:
    """All `*.yaml` below a directory, or the files given. Raises CatalogError with every problem found."""
    files = sorted(source.rglob("*.yaml")) if isinstance(source, Path) and source.is_dir() else source
    catalog = Catalog()
    places: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for file in [files] if isinstance(files, Path) else files:
        for place, document in _documents(file, problems):
            _add(catalog, places, place, document, problems)
    for (kind, name), place in places.items():
        if kind == "Task":
            found = _task_problems(catalog.tasks[name])
        elif kind == "Pipeline":
            found = _pipeline_problems(catalog.pipelines[name], catalog)
        else:
            found = _run_problems(catalog.runs[name], catalog)
        problems += [f"{place}: {problem}" for problem in found]
    if problems:
        raise CatalogError(problems)
    return catalog


def _documents(file: Path, problems: list[str]) -> list[tuple[str, Any]]:
    try:
        found = [document for document in yaml.safe_load_all(file.read_text()) if document is not None]
    except OSError as error:
        problems.append(f"{file}: {error.strerror}")
        return []
    except yaml.YAMLError as error:
        problems.append(f"{file}: not YAML: {' '.join(str(error).split())}")
        return []
    return [(str(file), document) for document in found]


def _add(catalog: Catalog, places: dict[tuple[str, str], str], place: str, document: Any, problems: list[str]) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in KINDS or document.get("apiVersion") != API_VERSION:
        problems.append(f"{place}: only {API_VERSION} {', '.join(KINDS)} can be run, not {kind}")
        return
    if wrong := problems_of(document, KINDS[kind]):
        problems += [f"{place}: {kind}: {problem}" for problem in wrong]
        return
    parsed = msgspec.convert(document, KINDS[kind])
    name = parsed.metadata.name
    if not _NAME.match(name):
        problems.append(f"{place}: metadata.name: {name!r} is not a lower-case name with dashes")
    elif (kind, name) in places:
        problems.append(f"{place}: {kind} {name} is also defined in {places[kind, name]}")
    else:
        places[kind, name] = f"{place}: {kind} {name}"
        if isinstance(parsed, Task):
            catalog.tasks[name] = parsed
        elif isinstance(parsed, Pipeline):
            catalog.pipelines[name] = parsed
        else:
            catalog.runs[name] = parsed


def _task_problems(task: Task) -> list[str]:
    spec = task.spec
    found = _duplicates("spec.params", [param.name for param in spec.params])
    found += _duplicates("spec.results", [result.name for result in spec.results])
    found += _duplicates("spec.steps", [step.name for step in spec.steps])
    found += [f"spec.params {param.name}: {problem}" for param in spec.params if (problem := _default_problem(param))]
    if not spec.steps:
        found.append("spec.steps: at least one step is needed")
    params = {param.name: param for param in spec.params}
    results = {result.name for result in spec.results}
    spaces = {space.name for space in spec.workspaces}

    def problem_of(reference: Reference) -> str:
        match reference.kind:
            case "param":
                return _param_use(params, reference)
            case "result-path":
                return "" if reference.name in results else "no such result is declared"
            case "workspace":
                return "" if reference.name in spaces else "no such workspace is declared"
            case "context":
                return "" if reference.name in _TASK_CONTEXT else "is not provided to steps"
        return "is not a variable that steps have"

    for step in spec.steps:
        where = f"spec.steps {step.name}"
        if not _NAME.match(step.name):
            found.append(f"{where}: not a lower-case name with dashes")
        if not step.command:
            found.append(f"{where}.command: is empty")
        for field, values in (
            ("image", [step.image]),
            ("command", step.command),
            ("args", step.args),
            ("env", [variable.value for variable in step.env]),
            ("workingDir", [step.working_dir]),
        ):
            found += _reference_problems(f"{where}.{field}", values, problem_of)
    return found


def _pipeline_problems(pipeline: Pipeline, catalog: Catalog) -> list[str]:
    spec = pipeline.spec
    everything = [*spec.tasks, *spec.finally_]
    found = _duplicates("spec.params", [param.name for param in spec.params])
    found += _duplicates("spec.tasks", [task.name for task in everything])
    found += [f"spec.params {param.name}: {problem}" for param in spec.params if (problem := _default_problem(param))]
    if not spec.tasks:
        found.append("spec.tasks: at least one task is needed")
    known = {task.name: task for task in spec.tasks}
    params = {param.name: param for param in spec.params}

    def checker(last: bool) -> Any:
        def problem_of(reference: Reference) -> str:
            match reference.kind:
                case "param":
                    return _param_use(params, reference)
                case "task-result":
                    return _result_use(known, catalog, reference)
                case "task-status" if last:
                    return "" if not reference.name or reference.name in known else "there is no such task"
                case "context":
                    return "" if reference.name in _PIPELINE_CONTEXT else "is not provided to pipelines"
            return "is not a variable that pipelines have here"

        return problem_of

    for task in everything:
        last = task.name not in known
        where = f"spec.{'finally' if last else 'tasks'} {task.name}"
        found += _pipeline_task_problems(where, task, pipeline, catalog, last)
        for field, values in graph.texts_of(task):
            found += _reference_problems(f"{where}.{field}", values, checker(last))
    for result in spec.results:
        found += _reference_problems(f"spec.results {result.name}", [result.value], checker(False))
    if not found:
        found += graph.problems_of(spec.tasks)
    return found


def _pipeline_task_problems(
    where: str, use: PipelineTask, pipeline: Pipeline, catalog: Catalog, last: bool
) -> list[str]:
    found = [] if _NAME.match(use.name) else [f"{where}: not a lower-case name with dashes"]
    if last and use.run_after:
        found.append(f"{where}.runAfter: tasks in `finally` all start together, after everything else")
    if use.retries < 0:
        found.append(f"{where}.retries: cannot be negative")
    if use.timeout:
        try:
            durations.seconds(use.timeout)
        except ValueError as error:
            found.append(f"{where}.timeout: {error}")
    task = catalog.tasks.get(use.task_ref.name)
    if task is None:
        return [*found, f"{where}.taskRef: there is no Task {use.task_ref.name}"]
    found += [f"{where}.{problem}" for problem in _given_problems(task.spec.params, use)]
    offered = {space.name for space in pipeline.spec.workspaces}
    bound = {space.name: space.workspace or space.name for space in use.workspaces}
    for space in task.spec.workspaces:
        if space.name not in bound and not space.optional:
            found.append(f"{where}.workspaces: Task {task.metadata.name} needs workspace {space.name}")
    wanted = {space.name for space in task.spec.workspaces}
    for name, source in bound.items():
        if name not in wanted:
            found.append(f"{where}.workspaces: Task {task.metadata.name} has no workspace {name}")
        if source not in offered:
            found.append(f"{where}.workspaces: the pipeline declares no workspace {source}")
    return found


def _given_problems(declared: list[ParamSpec], use: PipelineTask) -> list[str]:
    specs = {spec.name: spec for spec in declared}
    fanned = use.matrix.params if use.matrix else []
    given = [*use.params, *fanned]
    found = _duplicates("params", [param.name for param in given])
    for param in given:
        if param.name not in specs:
            found.append(f"params {param.name}: the Task has no such parameter")
    for spec in declared:
        if spec.default is None and spec.name not in {param.name for param in given}:
            found.append(f"params: the Task needs parameter {spec.name}")
    found += [f"matrix.params {param.name}: a list is expected" for param in fanned if not _is_list(param.value)]
    return found


def _is_list(value: Value) -> bool:
    return isinstance(value, list) or value.endswith("[*])")


def _run_problems(run: PipelineRun, catalog: Catalog) -> list[str]:
    pipeline = catalog.pipelines.get(run.spec.pipeline_ref.name)
    if pipeline is None:
        return [f"spec.pipelineRef: there is no Pipeline {run.spec.pipeline_ref.name}"]
    return check_params(pipeline.spec.params, {param.name: param.value for param in run.spec.params})[1]


def check_params(specs: list[ParamSpec], given: dict[str, Value]) -> tuple[dict[str, Value], list[str]]:
    """(all parameters with their defaults, problems)."""
    values: dict[str, Value] = {}
    found: list[str] = []
    for spec in specs:
        value = given.get(spec.name, spec.default)
        if value is None:
            found.append(f"parameter {spec.name} is required" + (f" ({spec.description})" if spec.description else ""))
        elif isinstance(value, list) != spec.is_array:
            found.append(f"parameter {spec.name} is {'a list' if spec.is_array else 'a single value'}")
        else:
            values[spec.name] = value
    known = {spec.name for spec in specs}
    found += [f"there is no parameter {name}" for name in given if name not in known]
    return values, found


def params_of(params: list[Param]) -> dict[str, Value]:
    return {param.name: param.value for param in params}


def _default_problem(param: ParamSpec) -> str:
    if param.default is not None and isinstance(param.default, list) != (param.type == "array"):
        return f"its default is not of type {param.type}"
    return ""


def _param_use(params: dict[str, ParamSpec], reference: Reference) -> str:
    spec = params.get(reference.name)
    if spec is None:
        return "no such parameter is declared"
    if reference.field and not spec.is_array:
        return "the parameter is not a list"
    if spec.is_array and not reference.field:
        return "the parameter is a list: write [*]"
    return ""


def _result_use(tasks: dict[str, PipelineTask], catalog: Catalog, reference: Reference) -> str:
    if reference.name not in tasks:
        return "there is no such task before this one"
    if tasks[reference.name].matrix is not None:
        return "results of a matrix are not supported here"
    task = catalog.tasks.get(tasks[reference.name].task_ref.name)
    declared = {result.name for result in task.spec.results} if task else {reference.field}
    return "" if reference.field in declared else "that task has no such result"


def _reference_problems(where: str, values: list[str], problem_of: Any) -> list[str]:
    return [
        f"{where}: $({reference.text}): {problem}"
        for reference in references(values)
        if (problem := problem_of(reference))
    ]


def _duplicates(where: str, names: list[str]) -> list[str]:
    return [f"{where}: {name} occurs twice" for name in sorted({name for name in names if names.count(name) > 1})]

"""What `regionctl pipeline` does, for the CLI to mount: run, list, show, logs. Prints nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regional.core import loop
from regional.core.problems import UserError
from regional.pipelines.catalog import Catalog, load_catalog
from regional.pipelines.events import Event, OnEvent, RunResult
from regional.pipelines.model import Value
from regional.pipelines.record import RunRecord, RunStore
from regional.pipelines.runner import PipelineRunner


def run_pipeline(
    runner: PipelineRunner,
    source: Catalog | Path,
    pipeline: str,
    params: Sequence[str] | Mapping[str, Value],
    *,
    name: str = "",
    workspaces: Mapping[str, Path] | None = None,
    fresh: bool = False,
    on_event: OnEvent = lambda event: None,
) -> RunResult:
    """`params` as `key=value` texts (lists with commas) or as values; the run's name is its pipeline's by default."""
    catalog = source if isinstance(source, Catalog) else load_catalog(source)
    given = params if isinstance(params, Mapping) else parse_params(catalog, pipeline, params)
    return loop.run(
        runner.run(catalog, pipeline, name or pipeline, given, on_event, workspaces=workspaces, fresh=fresh)
    )


def parse_params(catalog: Catalog, pipeline: str, texts: Sequence[str]) -> dict[str, Value]:
    arrays = {spec.name for spec in catalog.pipeline(pipeline).spec.params if spec.is_array}
    values: dict[str, Value] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"parameter {text!r} is not of the form key=value")
        values[name] = [part for part in value.split(",") if part] if name in arrays else value
    return values


def list_runs(store: Path) -> list[RunRecord]:
    """Newest first."""
    runs = RunStore(store)
    found = [record for name in runs.names() if (record := runs.load(name)) is not None]
    return sorted(found, key=lambda record: record.started, reverse=True)


def show_run(store: Path, run: str) -> RunRecord:
    record = RunStore(store).load(run)
    if record is None:
        known = ", ".join(RunStore(store).names()) or "none yet"
        raise UserError(f"there is no pipeline run {run}", hint=f"known: {known}")
    return record


def logs(store: Path, run: str, task: str = "") -> Iterator[tuple[str, str]]:
    """(task/step, line) of all steps of a run, or of one of its tasks, in the order in which they started."""
    record = show_run(store, run)
    if task and task not in record.tasks:
        raise UserError(f"run {run} has no task {task}", hint="its tasks: " + ", ".join(record.tasks))
    chosen = [record.tasks[task]] if task else sorted(record.tasks.values(), key=lambda one: one.started)
    for one in chosen:
        for file in sorted((RunStore(store).directory(run) / one.name).glob("*.log")):
            for line in file.read_text(errors="replace").splitlines():
                yield f"{one.name}/{file.stem}", line


_WORDS = {
    "task-started": "…",
    "task-adopted": "… was still running",
    "task-retried": "… trying again",
    "task-finished": "done",
    "task-reused": "was done before",
    "task-skipped": "skipped",
    "task-failed": "failed",
}


def progress_line(event: Event) -> str:
    """One line for a person; empty for events that need none."""
    if event.kind not in _WORDS:
        return ""
    seconds = f"  {event.seconds:.1f} s" if event.kind in ("task-finished", "task-failed") else ""
    reason = f"  {event.message}" if event.message and event.kind != "task-finished" else ""
    return f"{event.run}: {event.task} {_WORDS[event.kind]}{seconds}{reason}"

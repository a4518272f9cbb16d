"""Executes a Pipeline: every task once, in the order of its graph, as much at a time as the order allows.

A run is resumed rather than repeated: whoever calls `run` with the same name and the same inputs gets on where the last
runner was stopped, by whatever means. Finished tasks are kept, running steps adopted, lost ones started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from regional.core.clock import Clock, SystemClock
from regional.core.problems import UserError
from regional.pipelines.catalog import Catalog, check_params, load_catalog
from regional.pipelines.events import Event, OnEvent, RunResult
from regional.pipelines.execution import Execution, Ground
from regional.pipelines.model import Pipeline, Value
from regional.pipelines.record import RunRecord, RunStore, digest
from regional.pipelines.steps import stop_leftovers


class PipelineRunner:
    def __init__(
        self,
        store: Path,
        spawner: Path,
        env: Mapping[str, str],
        image: str = "regional/regional",
        clock: Clock | None = None,
        code: str = "",
    ) -> None:
        """`env` is all that steps get to see besides their own; `image` is the one whose steps we can run, and `code`
        what is in it: what other code has done is done again."""
        self.store = RunStore(store)
        self._spawner = spawner
        self._env = dict(env)
        self._image = image
        self._clock = clock or SystemClock()
        self._code = code

    async def run(
        self,
        source: Catalog | Path | Iterable[Path],
        pipeline: str,
        name: str,
        params: Mapping[str, Value],
        on_event: OnEvent = lambda event: None,
        *,
        workspaces: Mapping[str, Path] | None = None,
        fresh: bool = False,
    ) -> RunResult:
        """Raises UserError if it cannot be started; a run that fails is a RunResult that says so.

        `fresh` runs everything again even if a run of this name has succeeded with these inputs.
        """
        catalog = source if isinstance(source, Catalog) else load_catalog(source)
        definition = catalog.pipeline(pipeline)
        values, problems = check_params(definition.spec.params, dict(params))
        bound = dict(workspaces or {})
        problems += _workspace_problems(definition, bound)
        if problems:
            raise UserError(f"pipeline {pipeline} cannot be run: " + "; ".join(problems))
        with self.store.alone(name):
            record = await self._record(catalog, definition, name, values, bound, fresh)
            on_event(Event("run-started", name, message=pipeline))
            if record.status == "Running":
                ground = Ground(self._spawner, self._env, self._image, self._clock, self.store, bound)
                failures = await Execution(catalog, definition, record, ground, on_event).run()
            else:
                failures = []
            on_event(Event("run-finished", name, seconds=record.finished - record.started, message=record.status))
            return RunResult(
                name,
                pipeline,
                record.status == "Succeeded",
                record.finished - record.started,
                record.results,
                failures,
                self.store.directory(name),
            )

    async def _record(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        name: str,
        params: dict[str, Value],
        workspaces: dict[str, Path],
        fresh: bool,
    ) -> RunRecord:
        used = {use.task_ref.name for use in [*pipeline.spec.tasks, *pipeline.spec.finally_]}
        tasks = [catalog.tasks[task] for task in sorted(used)]
        inputs = digest(pipeline, tasks, params, sorted(map(str, workspaces.items())), self._code)
        old = self.store.load(name)
        if old is not None and (fresh or old.inputs != inputs):
            for task in old.tasks:
                await stop_leftovers(self.store.directory(name) / task)
            self.store.set_aside(name)
            old = None
        if old is None:
            record = RunRecord(name, pipeline.metadata.name, inputs, params, started=self._clock.now().timestamp())
        else:
            record = old
            if record.status != "Succeeded":
                _reopen(record, {use.name for use in pipeline.spec.finally_})
        self.store.save(record)
        return record

    def list_runs(self) -> list[RunRecord]:
        return [record for name in self.store.names() if (record := self.store.load(name)) is not None]


def _reopen(record: RunRecord, last: set[str]) -> None:
    """What failed or was skipped gets another chance; `finally` belongs to the end of this run, not of the old one."""
    record.status, record.message = "Running", ""
    for task in record.tasks.values():
        again = task.name in last and task.status == "Succeeded"
        if task.status in ("Failed", "Skipped") or again:
            task.become("Pending")
            task.failures = 0


def _workspace_problems(pipeline: Pipeline, bound: dict[str, Path]) -> list[str]:
    declared = {space.name: space for space in pipeline.spec.workspaces}
    found = [
        f"workspace {name} is required" + (f" ({space.description})" if space.description else "")
        for name, space in declared.items()
        if name not in bound and not space.optional
    ]
    found += [f"there is no workspace {name}" for name in bound if name not in declared]
    found += [f"workspace {name}: {path} is not a directory" for name, path in bound.items() if not path.is_dir()]
    return found

"""One run in the making: which tasks are ready, what they are given, what became of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec

from regional.core.clock import Clock
from regional.pipelines import durations, graph
from regional.pipelines.catalog import Catalog, check_params, params_of
from regional.pipelines.events import Event, EventKind, OnEvent
from regional.pipelines.model import Pipeline, PipelineTask, Step, Task, Value
from regional.pipelines.record import RunRecord, RunStore, TaskRecord, TaskStatus, digest, tail
from regional.pipelines.steps import Attempt, Outcome, ResolvedStep, stop_leftovers
from regional.pipelines.variables import Unresolved, replace, replace_list, replace_value

_DEFAULT_TIMEOUT = "1h"  # Tekton's
_AT_ONCE = 16


class Ground(msgspec.Struct):
    """What a run stands on: where steps are started, what they see."""

    spawner: Path
    env: dict[str, str]
    image: str
    clock: Clock
    store: RunStore
    workspaces: dict[str, Path]


class Execution:
    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, record: RunRecord, ground: Ground, on_event: OnEvent
    ) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._record = record
        self._ground = ground
        self._on_event = on_event
        self._status: dict[str, TaskStatus] = {}  # of pipeline tasks; those with a matrix have several records
        self._failures: list[Event] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> list[Event]:
        """The failures, with the run's record brought to its end. Cancelled, it leaves a run that can go on."""
        spec = self._pipeline.spec
        await self._run_graph(spec.tasks, graph.dependencies(spec.tasks))
        await self._run_graph(spec.finally_, {task.name: set() for task in spec.finally_})
        if not self._failures:
            try:
                self._record.results = {result.name: replace(result.value, self._scope()) for result in spec.results}
            except Unresolved as missing:
                self._failures.append(Event("task-failed", self._record.name, "", message=f"results: {missing}"))
        self._record.status = "Failed" if self._failures else "Succeeded"
        self._record.message = self._failures[0].message if self._failures else ""
        self._record.finished = self._now()
        self._save()
        return self._failures

    async def _run_graph(self, tasks: list[PipelineTask], needs: dict[str, set[str]]) -> None:
        waiting = {task.name: task for task in tasks}
        running: dict[asyncio.Task[TaskStatus], str] = {}
        failed = False
        try:
            while waiting or running:
                ready = [task for name, task in waiting.items() if not failed and needs[name] <= self._status.keys()]
                for task in ready:
                    del waiting[task.name]
                    running[asyncio.create_task(self._node(task))] = task.name
                if not running:
                    return  # after a failure nothing new is started; what runs has been waited for
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for finished in done:
                    name = running.pop(finished)
                    self._status[name] = finished.result()
                    failed = failed or self._status[name] == "Failed"
        finally:
            for left in running:
                left.cancel()
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _node(self, use: PipelineTask) -> TaskStatus:
        task = self._catalog.tasks[use.task_ref.name]
        try:
            if reason := self._reason_to_skip(use):
                return self._skip(use, reason)
            given = {name: replace_value(value, self._scope()) for name, value in params_of(use.params).items()}
            instances = self._instances(use, given)
        except Unresolved as missing:
            return self._fail(self._task_record(use.name, use), Outcome("failed", str(missing)))
        if not instances:
            return self._skip(use, "its matrix is empty")
        ended = await asyncio.gather(*(self._instance(name, use, task, params) for name, params in instances))
        return "Failed" if "Failed" in ended else "Succeeded"

    def _reason_to_skip(self, use: PipelineTask) -> str:
        absent = sorted(name for name in graph.uses(use) if self._status.get(name) != "Succeeded")
        if absent:
            return f"it needs results of {', '.join(absent)}, which did not run to an end"
        for condition in use.when:
            found = replace(condition.input, self._scope())
            values = replace_list(condition.values, self._scope())
            if (found in values) != (condition.operator == "in"):
                return f"when: {found!r} is {'not ' if condition.operator == 'in' else ''}in {values}"
        return ""

    def _instances(self, use: PipelineTask, given: dict[str, Value]) -> list[tuple[str, dict[str, Value]]]:
        if use.matrix is None:
            return [(use.name, given)]
        fanned = {param.name: replace_value(param.value, self._scope()) for param in use.matrix.params}
        combinations = itertools.product(
            *(values if isinstance(values, list) else [values] for values in fanned.values())
        )
        return [
            (f"{use.name}-{index}", given | dict(zip(fanned, combination, strict=True)))
            for index, combination in enumerate(combinations)
        ]

    async def _instance(self, name: str, use: PipelineTask, task: Task, given: dict[str, Value]) -> TaskStatus:
        record = self._task_record(name, use)
        params, problems = check_params(task.spec.params, given)
        if problems:
            return self._fail(record, Outcome("failed", "; ".join(problems)))
        inputs = digest(task.spec, params)
        if record.status == "Succeeded":
            if record.inputs == inputs:
                self._tell("task-reused", record)
                return "Succeeded"
            record.become("Pending")
        async with self._slots:
            return await self._attempts(record, use, task, params, inputs)

    async def _attempts(
        self, record: TaskRecord, use: PipelineTask, task: Task, params: dict[str, Value], inputs: str
    ) -> TaskStatus:
        limit = durations.seconds(use.timeout or _DEFAULT_TIMEOUT)
        while True:
            resumed = record.status == "Running" and record.inputs == inputs
            if not resumed:
                # A step of an attempt that was given up (cancelled in mid-spawn, other inputs) must not run beside.
                await stop_leftovers(self._task_directory(record))
                record.attempt += 1
            attempt = self._attempt(record)
            try:
                steps = [self._resolve(step, record, use, task, params, attempt) for step in task.spec.steps]
            except Unresolved as missing:
                return self._fail(record, Outcome("failed", str(missing)))
            if not resumed:
                record.inputs, record.started, record.finished = inputs, self._now(), 0.0
                record.become("Running")
                self._save()
                self._tell("task-started", record, log=str(attempt.log_path(steps[0].name)))
            try:
                outcome = await attempt.run(steps, limit, self._adopted(record))
            except asyncio.CancelledError:
                record.become("Pending", "interrupted")
                self._save()
                raise
            if outcome.status == "interrupted":
                record.become("Pending", outcome.message)
                self._save()
                continue
            if outcome.status == "succeeded":
                results, problem = attempt.results([result.name for result in task.spec.results])
                if not problem:
                    return self._succeed(record, results)
                outcome = Outcome("failed", problem, None, outcome.log)
            record.failures += 1
            if record.failures > use.retries:
                return self._fail(record, outcome)
            record.become("Pending", outcome.message)
            self._save()
            self._tell("task-retried", record, outcome)

    def _attempt(self, record: TaskRecord) -> Attempt:
        ground = self._ground
        directory = self._task_directory(record)
        title = f"{self._record.name}/{record.name}"
        return Attempt(ground.spawner, ground.clock, title, directory / f".{record.attempt}", directory)

    def _task_directory(self, record: TaskRecord) -> Path:
        return self._ground.store.directory(self._record.name) / record.name

    def _resolve(
        self, step: Step, record: TaskRecord, use: PipelineTask, task: Task, params: dict[str, Value], attempt: Attempt
    ) -> ResolvedStep:
        scope: dict[tuple[str, str, str], Value] = {("param", name, ""): value for name, value in params.items()}
        for result in task.spec.results:
            scope["result-path", result.name, ""] = str(attempt.result_path(result.name))
        bound = {space.name: self._ground.workspaces.get(space.workspace or space.name) for space in use.workspaces}
        for space in task.spec.workspaces:
            place = bound.get(space.name)
            scope["workspace", space.name, "path"] = str(place) if place else ""
            scope["workspace", space.name, "bound"] = "true" if place else "false"
        scope["context", "task.name", ""] = task.metadata.name
        scope["context", "taskRun.name", ""] = f"{self._record.name}-{record.name}"
        scope["context", "task.retry-count", ""] = str(record.failures)
        image = replace(step.image, scope)
        if not _same_image(image, self._ground.image):
            raise Unresolved(f"step {step.name} needs image {image}; on this machine only {self._ground.image} can run")
        return ResolvedStep(
            step.name,
            replace_list([*step.command, *step.args], scope),
            self._ground.env | {variable.name: replace(variable.value, scope) for variable in step.env},
            replace(step.working_dir, scope) or str(self._ground.store.directory(self._record.name)),
            step.on_error == "continue",
        )

    def _scope(self) -> dict[tuple[str, str, str], Value]:
        scope: dict[tuple[str, str, str], Value] = {
            ("param", name, ""): value for name, value in self._record.params.items()
        }
        scope["context", "pipelineRun.name", ""] = self._record.name
        scope["context", "pipeline.name", ""] = self._pipeline.metadata.name
        for task in self._pipeline.spec.tasks:
            status = self._status.get(task.name)
            # Tekton's word for what was skipped or never started is None.
            scope["task-status", task.name, ""] = status if status in ("Succeeded", "Failed") else "None"
            record = self._record.tasks.get(task.name)
            if record is not None and status == "Succeeded":
                for name, value in record.results.items():
                    scope["task-result", task.name, name] = value
        scope["task-status", "", ""] = self._aggregate()
        return scope

    def _aggregate(self) -> str:
        seen = [self._status.get(task.name) for task in self._pipeline.spec.tasks]
        if "Failed" in seen:
            return "Failed"
        return "Completed" if "Skipped" in seen or None in seen else "Succeeded"

    def _task_record(self, name: str, use: PipelineTask) -> TaskRecord:
        return self._record.tasks.setdefault(name, TaskRecord(name, use.task_ref.name))

    def _skip(self, use: PipelineTask, reason: str) -> TaskStatus:
        record = self._task_record(use.name, use)
        if record.status != "Pending":
            record.become("Pending")
        record.become("Skipped", reason)
        self._save()
        self._tell("task-skipped", record)
        return "Skipped"

    def _succeed(self, record: TaskRecord, results: dict[str, str]) -> TaskStatus:
        record.results, record.finished, record.exit_code = results, self._now(), 0
        record.become("Succeeded")
        self._save()
        self._tell("task-finished", record)
        return "Succeeded"

    def _fail(self, record: TaskRecord, outcome: Outcome) -> TaskStatus:
        record.finished, record.exit_code = self._now(), outcome.exit_code
        record.started = record.started or record.finished
        if record.status not in ("Pending", "Running"):
            record.become("Pending")
        record.become("Failed", outcome.message)
        self._save()
        self._failures.append(self._tell("task-failed", record, outcome))
        return "Failed"

    def _adopted(self, record: TaskRecord) -> Callable[[], None]:
        def tell() -> None:
            self._tell("task-adopted", record)

        return tell

    def _tell(self, kind: EventKind, record: TaskRecord, outcome: Outcome | None = None, log: str = "") -> Event:
        lines: tuple[str, ...] = ()
        if outcome is not None:
            log = outcome.log
            lines = tuple(tail(Path(log))) if log else ()
        message = outcome.message if outcome else record.message
        event = Event(kind, self._record.name, record.name, record.seconds, message, log, lines)
        self._on_event(event)
        return event

    def _save(self) -> None:
        self._ground.store.save(self._record)

    def _now(self) -> float:
        return self._ground.clock.now().timestamp()


def _same_image(wanted: str, ours: str) -> bool:
    """Tag and digest do not matter: the processes are forks of what is installed here."""
    return wanted.partition("@")[0].rpartition(":")[0] == ours or wanted.partition("@")[0] == ours

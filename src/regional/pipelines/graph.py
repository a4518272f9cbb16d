"""The order of a pipeline's tasks: what they say (`runAfter`) and what they use (results of others)."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from regional.pipelines.model import PipelineTask
from regional.pipelines.variables import references


def texts_of(task: PipelineTask) -> list[tuple[str, list[str]]]:
    """Every place of a task in a pipeline where variables may stand, with its field name."""
    found: list[tuple[str, list[str]]] = []
    fanned = task.matrix.params if task.matrix else []
    for field, params in (("params", task.params), ("matrix.params", fanned)):
        for param in params:
            values = param.value if isinstance(param.value, list) else [param.value]
            found.append((f"{field} {param.name}", values))
    for index, condition in enumerate(task.when):
        found.append((f"when[{index}]", [condition.input, *condition.values]))
    return found


def uses(task: PipelineTask) -> set[str]:
    """Tasks whose results this one cannot do without."""
    values = [value for _, texts in texts_of(task) for value in texts]
    return {reference.name for reference in references(values) if reference.kind == "task-result"}


def dependencies(tasks: list[PipelineTask]) -> dict[str, set[str]]:
    return {task.name: {*task.run_after, *uses(task)} for task in tasks}


def problems_of(tasks: list[PipelineTask]) -> list[str]:
    edges = dependencies(tasks)
    missing = [
        f"spec.tasks {name}.runAfter: there is no task {other}"
        for name, others in edges.items()
        for other in sorted(others - edges.keys())
    ]
    if missing:
        return missing
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return ["spec.tasks: these wait for each other: " + " → ".join(reversed(error.args[1]))]
    return []

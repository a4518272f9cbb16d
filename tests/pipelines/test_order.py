"""Whatever the graph: every task runs once, after all it waits for, and independent tasks run side by side."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.core import loop
from regional.pipelines.catalog import load_catalog
from regional.pipelines.runner import PipelineRunner

from .conftest import Write, pipeline, task, use
from .conftest import given as values


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, dict[int, bool]]:
    """task → the tasks it waits for, and whether it uses their result (else runAfter)."""
    size = draw(st.integers(1, 7))
    return {one: {other: draw(st.booleans()) for other in range(one) if draw(st.booleans())} for one in range(size)}


@given(graph=graphs(), order=st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_every_task_runs_once_and_after_all_it_waits_for(
    spawner: Path, graph: dict[int, dict[int, bool]], order: object
) -> None:
    node = task(
        "node",
        'cd "$OUT"; echo start $(params.me) >> order; printf x > $(results.r.path); echo end $(params.me) >> order',
        params=("me",),
        results=("r",),
    )
    node["spec"]["params"].append({"name": "needs", "type": "array", "default": []})  # type: ignore[index]
    uses = []
    for me, needs in graph.items():
        by_result = [f"$(tasks.t{other}.results.r)" for other, result in needs.items() if result]
        after = [f"t{other}" for other, result in needs.items() if not result]
        uses.append(use(f"t{me}", "node", params=values(me=str(me), needs=by_result), runAfter=after))
    order.shuffle(uses)  # type: ignore[attr-defined]
    with TemporaryDirectory() as directory:
        file = Path(directory) / "p.yaml"
        file.write_text(yaml.safe_dump_all([node, pipeline("p", *uses)]))
        runner = PipelineRunner(Path(directory) / "runs", spawner, {"PATH": os.environ["PATH"], "OUT": directory})
        result = loop.run(runner.run(load_catalog([file]), "p", "run", {}))
        lines = (Path(directory) / "order").read_text().splitlines()
    assert result.succeeded
    assert sorted(lines) == sorted(f"{word} {me}" for word in ("start", "end") for me in graph)
    for me, needs in graph.items():
        for other in needs:
            assert lines.index(f"end {other}") < lines.index(f"start {me}")


async def test_independent_tasks_run_side_by_side(runner: PipelineRunner, catalog_of: Write) -> None:
    """Each waits for a sign of the other, so one after the other they would never end."""
    meet = 'touch "$OUT/$(params.me)"; until test -e "$OUT/$(params.other)"; do sleep 0.01; done'
    catalog = catalog_of(
        task("meet", meet, params=("me", "other")),
        pipeline(
            "p",
            use("a", "meet", params=values(me="a", other="b"), timeout="60s"),
            use("b", "meet", params=values(me="b", other="a"), timeout="60s"),
        ),
    )
    assert (await runner.run(catalog, "p", "run", {})).succeeded

"""The same requests to the embedded API and to the real one: the same answers.

Neither has controllers here, so nothing but these requests writes, and nothing depends on who is quicker.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .compare import cases, comparable, send
from .servers import Cluster
from .wire import Http, Obj

pytestmark = pytest.mark.xdist_group("differential")
CASES = cases()
DOCS = Path(__file__).parents[2] / "docs" / "kubernetes.md"


@pytest.fixture
async def both(pair: tuple[Cluster, Cluster]) -> AsyncIterator[tuple[Http, Http]]:
    clients = Http(pair[0]), Http(pair[1])
    yield clients
    for client in clients:
        await client.close()


def test_every_difference_has_its_reason() -> None:
    table = DOCS.read_text().partition("## Exceptions")[2].partition("\n## ")[0]
    reasons = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert {step["differs"] for case in CASES for step in case["steps"] if "differs" in step} <= reasons


@pytest.mark.parametrize("case", CASES, ids=[f"{case['file']}: {case['name']}" for case in CASES])
async def test_both_servers_answer_alike(both: tuple[Http, Http], case: Obj) -> None:
    namespace = "d-" + re.sub(r"[^a-z0-9]+", "-", case["name"].lower())[:50].strip("-")
    for http in both:
        (await http.post("/api/v1/namespaces", {"metadata": {"name": namespace}})).ok(201)
        # Pods are refused without it, and no controller makes it here.
        await http.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    for number, step in enumerate(case["steps"]):
        ours, theirs = [comparable(await send(http, step, namespace)) for http in both]
        if "differs" in step:
            assert ours != theirs, f"step {number + 1} no longer differs: {step['send']}"
            continue
        assert ours == theirs, f"step {number + 1}: {step['send']}"

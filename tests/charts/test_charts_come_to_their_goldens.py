"""Each chart with the values of a cloud region and of a region on one machine, object by object as committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.charts.golden import CASES, rendered
from tests.charts.rendering import ALL


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_the_case_renders_as_committed(case: Path) -> None:
    assert rendered(case) == (case / "expected.yaml").read_text(), "if this is meant: make goldens"


def test_every_chart_has_both_cases() -> None:
    assert {(case.parent.name, case.name) for case in CASES} == {
        (chart.name, case) for chart in ALL for case in ("cloud", "local")
    }

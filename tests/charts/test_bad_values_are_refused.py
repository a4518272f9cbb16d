"""A value that Kubernetes would refuse is refused by `helm lint`, before anything is committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.charts.rendering import ALL, helm

BAD_RANGES = ["10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0", "everything"]
GOOD_RANGES = ["0.0.0.0/0", "10.0.0.0/16", "127.0.0.1/32", "fd00::/64", "::/0", "fd00::/128"]
BAD_QUANTITIES = ["5potatoes", "64 Mi", "64mb", "-1", ""]
GOOD_QUANTITIES = ["50m", "64Mi", "1.5Gi", "2", "1G", 1, 0.5]


def _resources_of(chart: Path) -> str:
    """Where the first container of a chart has them."""
    schema = json.loads((chart / "values.schema.json").read_text())
    (own,) = (key for key in schema["properties"] if key != "global")
    return f"{own}.api.resources" if own == "clm" else f"{own}.resources"


def _lint(chart: Path, place: str, value: object) -> str:
    """Every complaint: Helm makes them all at once."""
    try:
        helm("lint", str(chart), "--set-json", f"{place}={json.dumps(value)}")
    except AssertionError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_a_range_that_is_none_is_refused(chart: Path) -> None:
    said = _lint(chart, "global.network.vpcRanges", BAD_RANGES)
    assert [bad for number, bad in enumerate(BAD_RANGES) if f"'/global/network/vpcRanges/{number}'" not in said] == []
    assert _lint(chart, "global.network.vpcRanges", GOOD_RANGES) == ""


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_a_quantity_that_is_none_is_refused(chart: Path) -> None:
    place = f"{_resources_of(chart)}.limits"
    said = _lint(chart, place, {f"bad{number}": bad for number, bad in enumerate(BAD_QUANTITIES)})
    assert [bad for number, bad in enumerate(BAD_QUANTITIES) if f"/limits/bad{number}'" not in said] == []
    assert _lint(chart, place, {f"good{number}": good for number, good in enumerate(GOOD_QUANTITIES)}) == ""

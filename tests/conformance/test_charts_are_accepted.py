"""Every object of every chart, with the values of the cloud and of one machine, is taken by the API as it stands:
nothing is refused, nothing is dropped, nothing is warned of."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.charts.golden import CASES
from tests.charts.rendering import CHARTS, template

from .wire import Http, Shell

DEFINED_ELSEWHERE = (
    "monitoring.coreos.com/v1",
    "secrets-store.csi.x-k8s.io/v1",
    "eks.amazonaws.com/v1",
    "argoproj.io/v1alpha1",  # by the chart itself, and nothing is made here
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
async def test_all_of_a_chart_is_accepted(case: Path, http: Http, kubectl: Shell, namespace: str) -> None:
    (chart,) = CHARTS.glob(f"*/{case.parent.name}")
    objects = template(chart, "-f", str(case / "values.yaml"), namespace=namespace)
    ours = [found for found in objects if found["apiVersion"] not in DEFINED_ELSEWHERE]
    assert {"Deployment", "NetworkPolicy", "ServiceAccount"} <= {found["kind"] for found in ours}
    # Where the API judges pods by the standard `restricted`, it says so in warnings.
    labels = {"pod-security.kubernetes.io/warn": "restricted"}
    (await http.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})).ok(200)
    said = await kubectl(
        "apply --server-side --dry-run=server --validate=strict -f -", stdin=yaml.safe_dump_all(ours, sort_keys=False)
    )
    lines = said.splitlines()
    assert len(lines) == len(ours) and all(line.endswith("serverside-applied (server dry run)") for line in lines), said

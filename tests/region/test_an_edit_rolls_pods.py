"""From an edit of a chart to pods that run it: `regionctl sync`, on a real region."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.region.conftest import LiveRegion

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900)]

VALUES = Path("argocd/config/management-cluster/hypershift/values.yaml")


def test_sync_rolls_the_pods_of_an_edited_chart_and_of_nothing_else(region: LiveRegion, tmp_path: Path) -> None:
    region.wait_healthy()
    clone = tmp_path / "clone"  # of what the region follows, so that this test's edit is no edit of the checkout
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", str(region.paths.git), str(clone)], check=True)
    old = {pod["name"] for pod in region.pods("mc01")}
    declared = (clone / VALUES).read_text()
    assert "logLevel: info" in declared
    try:
        (clone / VALUES).write_text(declared.replace("logLevel: info", "logLevel: debug"))
        said = region.regionctl("sync", "--checkout", str(clone)).stdout
        assert "working tree" in said and "pod hypershift-" in said, said
        new = {pod["name"] for pod in region.pods("mc01") if pod["state"] != "Terminating"}
        assert {name.partition("/")[0] for name in new - old} == {"hypershift"}
        assert not {name for name in new & old if name.startswith("hypershift/")}
    finally:
        (clone / VALUES).write_text(declared)
        region.regionctl("sync", "--checkout", str(clone))
    assert "nothing new" in region.regionctl("sync", "--checkout", str(clone), "--head").stdout
    region.wait_healthy()

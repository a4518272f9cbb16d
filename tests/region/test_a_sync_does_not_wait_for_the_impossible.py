"""A chart that does not render ends `regionctl sync` with its reason, when all else has arrived."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gitops.harness import chart, config_map, write_files
from tests.region.conftest import LiveRegion

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(400)]

CHARTS = "argocd/config/shared"
NO_END = "3600"
"""Seconds; a sync that waited for them would be killed by the test, and fail it."""


def test_a_chart_that_does_not_render_is_told_at_once_and_the_others_arrive(region: LiveRegion, tmp_path: Path) -> None:
    region.wait_healthy()
    clone = tmp_path / "clone"
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", str(region.paths.git), str(clone)], check=True)
    write_files(clone, chart(f"{CHARTS}/lame", {"cm.yaml": '{{ fail "no leg to stand on" }}'}))
    write_files(clone, chart(f"{CHARTS}/sound", {"cm.yaml": config_map("it")}))
    try:
        ended = region.regionctl("sync", "--checkout", str(clone), "--timeout", NO_END, check=False)
        assert ended.returncode == 1, ended.stdout
        assert "error: not all clusters can be at" in ended.stderr and "after" not in ended.stderr, ended.stderr
        told = {line.split(":")[0].strip() for line in ended.stderr.splitlines() if "no leg to stand on" in line}
        assert told == {"rc/lame", "mc01/lame", "mc02/lame"}, ended.stderr
        assert region.kubectl("mc02", "get", "configmap", "it", "-n", "sound", "-o", "name") == "configmap/it\n"
        # What was broken is mended: the verdict on the commit before does not count any more.
        write_files(clone, {f"{CHARTS}/lame/templates/cm.yaml": config_map("it")})
        region.regionctl("sync", "--checkout", str(clone), "--timeout", NO_END)
    finally:
        for name in ("lame", "sound"):
            shutil.rmtree(clone / CHARTS / name)
        region.regionctl("sync", "--checkout", str(clone))
    region.wait_healthy()

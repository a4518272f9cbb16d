"""Every command of the README's tour, in its order, on a region of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regional.core.paths import checkout
from tests.region import processes
from tests.region.conftest import SLOW, LiveRegion, new_home

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900 * SLOW)]


def tour() -> list[str]:
    text = (checkout() / "README.md").read_text()
    block = re.search(r"## A tour\n```\n(.*?)```", text, re.S)
    assert block is not None
    return [line.partition("  #")[0].strip() for line in block.group(1).splitlines() if line.strip()]


def test_the_tour_works_as_written(tmp_path: Path) -> None:
    live = LiveRegion(new_home())
    commands = tour()
    assert len(commands) > 10
    assert commands[0].startswith("eval ") and commands[-1].startswith("regionctl down --purge")
    script = "\n".join(["set -euo pipefail", *(c.replace(".venv/", f"{checkout()}/.venv/") for c in commands)])
    # A deleted pod needs a moment to come back before the region is stopped; a reader takes that moment by reading.
    pause = "regionctl status --wait 180\n"
    script = script.replace("regionctl logs maestro-server", f"{pause}regionctl logs maestro-server")
    try:
        live.up()
        done = subprocess.run(
            ["bash", "-x", "-c", script], cwd=tmp_path, env=live.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "Synced" in done.stdout and "all data of region local is removed" in done.stdout
        live.eventually(lambda: not processes.of_home(live.home), "no process is left")
    finally:
        live.regionctl("down", "--purge", "--yes", check=False)
        shutil.rmtree(live.home, ignore_errors=True)


def test_every_file_that_the_readme_links_exists() -> None:
    for page in [checkout() / "README.md", *(checkout() / "docs").glob("*.md"), checkout() / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links {target}"

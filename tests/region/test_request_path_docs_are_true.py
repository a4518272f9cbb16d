"""Every command of docs/request-path.md, in its order, on a live region."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regional.core.paths import checkout
from tests.region.conftest import SLOW, LiveRegion

pytestmark = [pytest.mark.xdist_group("region"), pytest.mark.timeout(900 * SLOW)]


def commands() -> list[str]:
    text = (checkout() / "docs" / "request-path.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```", text, re.S | re.M)
    known = ("regionctl ", "kubectl ", "awscurl ")
    found = [block.replace("\\\n", " ") for block in blocks if block.startswith(known)]
    return [line.partition("   #")[0].strip() for block in found for line in block.splitlines()]


def documents(output: str) -> Iterator[dict[str, Any]]:
    """awscurl prints bodies without a line end, so that several may stand on one line."""
    for line in output.splitlines():
        position = 0
        while line.startswith('{"', position):
            found, position = json.JSONDecoder().raw_decode(line, position)
            yield found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(checkout() / "examples")
    return tmp_path


def test_the_commands_work_as_written(region: LiveRegion, directory: Path) -> None:
    region.wait_healthy()
    wanted = commands()
    assert sum(command.startswith("regionctl") for command in wanted) > 15
    assert sum(command.startswith("awscurl") for command in wanted) == 6
    script = "\n".join(
        [
            "set -euo pipefail",
            f'eval "$({Path(sys.executable).parent / "regionctl"} env --region {region.name})"',
            *wanted,
        ]
    )
    # A name of its own, since others use this region too; and the id that a reader would copy.
    script = script.replace("management-01", f"management-{uuid.uuid4().hex[:6]}")
    request = f"$(regionctl cluster describe demo -o json | {sys.executable} -c '{_LAST_REQUEST}')"
    script = script.replace("REQUEST-ID", request)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=region.env,
        capture_output=True,
        text=True,
        timeout=450 * SLOW,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for expected in (
        "cluster demo is Ready",
        "node pool workers is Ready: 2 nodes",
        "clusterversion.config.openshift.io",
        "Where the time went",
        "hypershift.control_plane",
        "cluster demo is deleted",
        "cluster demo2 is deleted",
        "never connected",
    ):
        assert expected in done.stdout, expected
    bodies = list(documents(done.stdout))
    assert {"status": "ok"} in bodies
    assert [body["name"] for body in bodies if "target_project_id" in body] == ["demo2"]
    assert ["demo2", "demo"] in [[item["name"] for item in body["items"]] for body in bodies if "limit" in body]
    # The same management cluster was registered above.
    assert [body["code"] for body in bodies if body.get("kind") == "Error"] == ["already-exists"]
    assert [body["cluster_id"] for body in bodies if body.get("kind") == "ManifestWork"] == ["mc01"]
    (bundles,) = [body for body in bodies if body.get("kind") == "ResourceBundleList"]
    assert "maestro-payload-test" in {item["name"] for item in bundles["items"]}


_LAST_REQUEST = 'import json, sys; print(json.load(sys.stdin)["history"][-1]["request_id"])'

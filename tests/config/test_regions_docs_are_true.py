"""Every command of docs/regions.md, in its order, in a copy of this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regional.core.paths import checkout, tools

DOCS = checkout() / "docs" / "regions.md"
COPIED = ("config.yaml", "config.schema.json", "deploy", "argocd", "docs")


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files as they are here in a repository of its own, pinned to that: this one's history may have been left
    behind, and the pins of config.yaml with it."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (checkout() / name).is_dir() else shutil.copy
        copy(checkout() / name, folder / name)
    script = """
    git init -q --initial-branch=main
    git add -A
    git commit -q -m 'as it is here'
    sed -i -E "s/\\"[0-9a-f]{40}\\"/\\"$(git rev-parse HEAD)\\"/" config.yaml
    regionctl config render
    git commit -q -a --allow-empty -m 'pinned'
    """
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, env=environment(folder), stdout=subprocess.DEVNULL)
    return folder


def environment(folder: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    author = {f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    # Through the environment, because the clone's other end reads it too.
    trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    cache = {"XDG_CACHE_HOME": str(folder.parent / "cache")}
    places = {"PATH": path, "REGIONAL_CHECKOUT": str(folder), "REGIONAL_TOOLS": str(tools())}
    return kept | author | trust | cache | places


def test_the_commands_work_as_written(clone: Path) -> None:
    script = "set -euo pipefail\n" + "".join(f"echo '== {number}'\n{block}" for number, block in enumerate(blocks()))
    done = subprocess.run(
        ["bash", "-c", script], cwd=clone, env=environment(clone), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    said = dict(re.findall(r"== (\d+)\n(.*?)(?=\n== |\Z)", done.stdout, re.DOTALL))
    assert "+ region staging/ap-southeast-2" in said["0"]
    assert "values.regional-cluster.platformApi.replicas = 4" in said["1"]
    assert "config_revision.regional-cluster" in said["2"]
    assert "up to date" in said["3"]
    assert "Deployment" in said["3"] and "platform-api" in said["3"]
    assert said["4"].endswith("\n2")
    assert "~ values.regional-cluster.platformApi.replicas: 4 → 6" in said["5"]
    assert "removed  deploy/staging/ap-southeast-2/terraform/regional.json" in said["6"]
    assert "sector staging pins charts but not values" not in done.stdout
    status = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""

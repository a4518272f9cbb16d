"""`regionctl apps preview`, as a person or a check before a commit runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regional.core.paths import checkout
from tests.gitops.harness import GitRepository, config_map
from tests.gitops.test_previews_ask_no_cluster import CHARTS, region, rendered

MORE = "argocd/config/regional-cluster/clm/templates/more.yaml"


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    repository = GitRepository(tmp_path / "declared")
    repository.commit(CHARTS | rendered(region("one", "mc01")))
    return repository


def preview(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regional.cli.main", "apps", "preview", "--checkout", str(where), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_lists_the_applications_of_every_cluster(declared: GitRepository) -> None:
    ran = preview(declared.path)
    assert (ran.returncode, ran.stderr) == (0, "")
    rows = [line.split()[:4] for line in ran.stdout.splitlines()]
    assert ["test/one", "mc01", "agent", "argocd/config/management-cluster/agent"] in rows
    assert ran.stdout.endswith("2 clusters, 4 Applications\n")


def test_a_mistake_that_is_not_committed_yet_fails_it(declared: GitRepository) -> None:
    declared.remove("argocd/config/regional-cluster")
    ran = preview(declared.path)
    assert ran.returncode == 1
    assert "test/one rc: refused: only shared charts: none is of type 'regional-cluster'" in ran.stderr
    assert preview(declared.path, "--rev", "HEAD").returncode == 0
    assert declared.git("status", "--short").startswith("D"), "the checkout is left as it is"


def test_a_diff_shows_what_an_edit_does(declared: GitRepository) -> None:
    declared.write({MORE: config_map("more")})
    ran = preview(declared.path, "--rev", "HEAD", "--rev", ".")
    assert ran.returncode == 0
    assert ran.stdout == "=== test/one rc\nclm: added ConfigMap/clm/more\n\n1 of 2 clusters change\n"
    documents = json.loads(preview(declared.path, "--rev", "HEAD", "--rev", ".", "-o", "json").stdout)
    assert [group["clusters"] for group in documents] == [["test/one rc"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rev", "nope"), "has no commit 'nope'"),
        (("--rev", "--output=x"), "has no commit '--output=x'"),
        (("--region", "nowhere"), "no region 'nowhere'"),
        (("--cluster-type", "typo"), "no cluster of type 'typo'"),
        (("--rev", "HEAD", "--rev", "HEAD", "--rev", "HEAD"), "once, or twice"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(
    declared: GitRepository, arguments: tuple[str, ...], message: str
) -> None:
    ran = preview(declared.path, *arguments)
    assert ran.returncode in (1, 2) and ran.stdout == ""
    assert ran.stderr.startswith("error: ") and message in ran.stderr


def test_the_region_of_this_machine_can_be_previewed() -> None:
    ran = preview(checkout(), "--region", "local/local", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    clusters = {one["cluster"]: [app["name"] for app in one["applications"]] for one in json.loads(ran.stdout)}
    assert {"clm", "maestro-server", "platform-api", "argocd"} <= set(clusters["rc"])
    assert {"hypershift", "maestro-agent", "argocd"} <= set(clusters["mc01"])

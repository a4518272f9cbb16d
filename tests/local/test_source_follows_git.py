"""What a region follows: HEAD, or a snapshot of the working tree, never something half-rendered."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.local import source


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "checkout"
    directory.mkdir()
    _git(directory, "init", "-q", "-b", "main")
    _write(directory, "deploy/local/local/terraform/regional.json", "{}")
    return directory


def _git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    ).stdout.strip()


def _write(directory: Path, name: str, text: str) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)


def _commit(directory: Path) -> str:
    _git(directory, "add", "-A")
    _git(directory, "commit", "-q", "-m", "x")
    return _git(directory, "rev-parse", "HEAD")


def region(tmp_path: Path) -> RegionPaths:
    return RegionPaths("local", tmp_path)


def published(checkout: Path, target: RegionPaths, environment: str, *, worktree: bool) -> str:
    commit = source.declared(checkout, target, environment, worktree=worktree)
    source.publish(checkout, target, commit)
    assert source.current(target) == commit
    return commit


def test_head_is_published_and_the_working_tree_is_not(checkout: Path, tmp_path: Path) -> None:
    head = _commit(checkout)
    _write(checkout, "config.yaml", "edited: true")
    assert published(checkout, region(tmp_path), "local", worktree=False) == head
    assert not (source.export(region(tmp_path), head) / "config.yaml").exists()


def test_worktree_publishes_edits_without_touching_the_checkout(checkout: Path, tmp_path: Path) -> None:
    head = _commit(checkout)
    _write(checkout, "config.yaml", "edited: true")
    commit = published(checkout, region(tmp_path), "local", worktree=True)
    assert commit != head
    assert (source.export(region(tmp_path), commit) / "config.yaml").read_text() == "edited: true"
    assert _git(checkout, "rev-parse", "HEAD") == head
    assert _git(checkout, "status", "--porcelain") == "?? config.yaml"


def test_the_same_working_tree_is_the_same_commit(checkout: Path, tmp_path: Path) -> None:
    _commit(checkout)
    _write(checkout, "config.yaml", "edited: true")
    first = published(checkout, region(tmp_path), "local", worktree=True)
    assert published(checkout, region(tmp_path), "local", worktree=True) == first


def test_a_checkout_without_commits_gets_a_clear_line(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no commit yet"):
        published(checkout, region(tmp_path), "local", worktree=False)


def test_head_without_rendered_files_says_what_to_do(checkout: Path, tmp_path: Path) -> None:
    _commit(checkout)
    with pytest.raises(UserError, match="no rendered files for region 'elsewhere'") as refused:
        published(checkout, RegionPaths("elsewhere", tmp_path), "local", worktree=False)
    assert "config render" in refused.value.hint


@pytest.mark.parametrize("values", ["clm: {}", "global: {network: {vpcRanges: [127.0.0.0/8, 10.0.0.0/16]}}"])
def test_a_region_of_a_cloud_is_not_begun_here(checkout: Path, tmp_path: Path, values: str) -> None:
    _write(checkout, "deploy/local/local/argocd/regional-cluster-values.yaml", values)
    with pytest.raises(UserError, match="region local/local is declared for a cloud"):
        source.declared(checkout, RegionPaths("local", tmp_path), "local", worktree=True)


def test_a_region_on_loopback_is(checkout: Path, tmp_path: Path) -> None:
    values = "global: {network: {vpcRanges: [127.0.0.0/8]}}"
    _write(checkout, "deploy/local/local/argocd/regional-cluster-values.yaml", values)
    assert source.declared(checkout, RegionPaths("local", tmp_path), "local", worktree=True)


def test_a_shallow_clone_can_be_published(checkout: Path, tmp_path: Path) -> None:
    _commit(checkout)
    _write(checkout, "config.yaml", "second: true")
    head = _commit(checkout)
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{checkout}", str(shallow)], check=True)
    assert published(shallow, region(tmp_path), "local", worktree=False) == head
    assert source.current(region(tmp_path)) == head


def test_no_checkout_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a Git checkout"):
        published(tmp_path, region(tmp_path), "local", worktree=False)

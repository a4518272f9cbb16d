"""What a region is pinned to reaches its repository, also from outside the history of what is published."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from regional.core.paths import RegionPaths
from regional.local import source
from tests.gitops.harness import GitRepository


@pytest.fixture
def checkout(tmp_path: Path) -> GitRepository:
    made = GitRepository(tmp_path / "checkout")
    made.commit({"argocd/config/shared/it/values.yaml": "a: 1\n"})
    return made


@pytest.fixture
def region(tmp_path: Path) -> RegionPaths:
    return RegionPaths("local", tmp_path / "home")


def _pinned(checkout: GitRepository, region: str, commit: str, field: str = "config_revision") -> str:
    index = {"regions": [{"region_alias": region, field: {"regional-cluster": commit}}]}
    return checkout.commit({"deploy/index.json": msgspec.json.encode(index).decode()})


def _on_a_branch(checkout: GitRepository) -> str:
    checkout.git("checkout", "-q", "-b", "side")
    found = checkout.commit({"argocd/config/shared/it/values.yaml": "a: 2\n"})
    checkout.git("checkout", "-q", "main")
    return found


@pytest.mark.parametrize("field", ["config_revision", "values_revision"])
def test_a_pin_on_another_branch_comes_along(checkout: GitRepository, region: RegionPaths, field: str) -> None:
    pin = _on_a_branch(checkout)
    source.publish(checkout.path, region, commit := _pinned(checkout, "local", pin, field))
    assert source.git("cat-file", "-t", pin, cwd=region.git) == "commit"
    assert source.current(region) == commit


def test_pins_of_other_regions_stay_where_they_are(checkout: GitRepository, region: RegionPaths) -> None:
    pin = _on_a_branch(checkout)
    source.publish(checkout.path, region, _pinned(checkout, "elsewhere", pin))
    assert not source.git("cat-file", "-t", pin, cwd=region.git, ok=False)


def test_a_pin_that_a_clone_lacks_comes_once_it_has_it(
    checkout: GitRepository, region: RegionPaths, tmp_path: Path
) -> None:
    pin = _on_a_branch(checkout)
    commit = _pinned(checkout, "local", pin)
    clone = tmp_path / "clone"
    source.git("clone", "-q", "--depth", "1", checkout.url, str(clone))
    source.publish(clone, region, commit)
    assert source.current(region) == commit
    assert not source.git("cat-file", "-t", pin, cwd=region.git, ok=False)
    source.git("fetch", "-q", "origin", pin, cwd=clone)
    source.publish(clone, region, commit)
    assert source.git("cat-file", "-t", pin, cwd=region.git) == "commit"

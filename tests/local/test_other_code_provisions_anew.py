"""A region's steps run with the code of the `up` that was asked for, and what other code has done is done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regional.core.files import write_json
from regional.local import region as regions
from regional.local.code import code, digest_of
from regional.local.provisioning import RegionRecord
from regional.local.region import Region
from regional.local.supervisor import services_file


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Region:
    monkeypatch.setenv("REGIONAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REGIONAL_RUNTIME", str(tmp_path / "run"))
    return Region("local")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    inputs = tmp_path / "workspace" / "deploy/local/local/terraform/regional.json"
    inputs.parent.mkdir(parents=True)
    inputs.write_text(json.dumps({"region": "us-west-2"}))
    return tmp_path / "workspace"


def declared(region: Region, workspace: Path, commit: str) -> RegionRecord:
    return region._declare(Path("/nowhere"), workspace, commit, "embedded")


def finish(region: Region, record: RegionRecord) -> None:
    record.complete = True
    write_json(region.paths.supervisor / "region.json", record)


def test_the_same_commit_and_code_are_done_once(region: Region, workspace: Path) -> None:
    first = declared(region, workspace, "abc")
    assert not first.complete
    finish(region, first)
    assert declared(region, workspace, "abc").complete
    assert not declared(region, workspace, "def").complete


def test_what_other_code_has_completed_is_not_complete(
    region: Region, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(region, declared(region, workspace, "abc"))
    monkeypatch.setattr(regions, "code", lambda: "other")
    assert not declared(region, workspace, "abc").complete


def test_a_region_from_before_code_was_noted_is_not_complete(region: Region, workspace: Path) -> None:
    record = declared(region, workspace, "abc")
    record.code = ""
    finish(region, record)
    assert not declared(region, workspace, "abc").complete


def test_other_code_is_another_warm_parent_and_nothing_else(
    region: Region, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor replaces a service whose specification is another one."""
    old = region._base_services(declared(region, workspace, "abc"))
    assert region._base_services(declared(region, workspace, "def")) == old
    monkeypatch.setattr(regions, "code", lambda: "other")
    new = region._base_services(declared(region, workspace, "abc"))
    assert [one.name for one, other in zip(old, new, strict=True) if one != other] == ["warm"]


async def test_what_runs_other_code_is_stopped_and_nothing_else_is(
    regional_home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = Region("local")
    region.paths.supervisor.mkdir(parents=True)
    try:
        declared(region, workspace, "abc")
        write_json(services_file(region.paths), [])
        await region.start_supervisor()
        assert not await region._stop_other_code()
        assert await region.running() and services_file(region.paths).exists()
        monkeypatch.setattr(regions, "code", lambda: "other")
        assert await region._stop_other_code()
        assert not await region.running()
        assert not services_file(region.paths).exists()  # the pipelines ask for each of them again
        assert not await region._stop_other_code()
    finally:
        await region.down(purge=True)


def test_code_is_known_by_its_modules(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1\n")
    first = digest_of(tmp_path)
    (tmp_path / "data.txt").write_text("not code")
    assert digest_of(tmp_path) == first
    (tmp_path / "one.py").write_text("a = 2\n")
    second = digest_of(tmp_path)
    (tmp_path / "one.py").rename(tmp_path / "two.py")
    assert len({first, second, digest_of(tmp_path)}) == 3
    assert code() == code()

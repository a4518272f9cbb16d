"""`up --kube real` is a choice for the life of a region's data: objects in etcd do not become rows in SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.core.files import write_json
from regional.core.problems import UserError
from regional.local.provisioning import RegionRecord
from regional.local.region import STATE_VERSION, Region


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Region:
    monkeypatch.setenv("REGIONAL_HOME", str(tmp_path))
    return Region("local")


def remember(region: Region, **more: object) -> None:
    record = RegionRecord(
        version=STATE_VERSION,
        region="local",
        environment="local",
        aws_region="us-west-2",
        checkout="/nowhere",
        commit="abc",
        management_clusters=["mc01"],
        **more,  # type: ignore[arg-type]
    )
    write_json(region.paths.supervisor / "region.json", record)


def test_a_new_region_runs_on_the_embedded_one_unless_told_otherwise(region: Region) -> None:
    assert region.chosen_kube("") == "embedded"
    assert region.chosen_kube("embedded") == "embedded"


def test_up_again_keeps_the_choice(region: Region) -> None:
    remember(region, kube="real", complete=True)
    assert region.chosen_kube("") == "real"
    assert region.chosen_kube("real") == "real"


@pytest.mark.parametrize(("has", "wants"), [("real", "embedded"), ("embedded", "real")])
def test_another_choice_is_refused(region: Region, has: str, wants: str) -> None:
    remember(region, kube=has)
    with pytest.raises(UserError, match=f"run on the {has} Kubernetes, not on {wants}") as caught:
        region.chosen_kube(wants)
    assert "--purge" in caught.value.hint


def test_a_region_from_before_the_choice_is_embedded(region: Region) -> None:
    remember(region)
    assert region.chosen_kube("") == "embedded"


def test_without_the_programs_a_region_is_not_begun(
    region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(UserError, match="not on this machine"):
        region.chosen_kube("real")
    assert not region.paths.root.exists()

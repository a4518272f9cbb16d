"""Loopback blocks: one owner each, stable, free again when their data is gone."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.local.addresses import Addresses, Block


@pytest.fixture(autouse=True)
def own_book(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGIONAL_RUNTIME", str(tmp_path / "run"))


def addresses(tmp_path: Path, name: str) -> Addresses:
    region = RegionPaths(name, tmp_path)
    region.root.mkdir(parents=True, exist_ok=True)
    return Addresses(region)


def test_a_block_is_stable_and_clusters_have_different_ones(tmp_path: Path) -> None:
    mine = addresses(tmp_path, "a")
    assert mine.block("rc") == mine.block("rc")
    assert mine.block("rc") != mine.block("mc01")


def test_two_regions_never_share_a_block(tmp_path: Path) -> None:
    blocks = [addresses(tmp_path, f"r{i}").block(c).base for i in range(5) for c in ("region", "rc", "mc01")]
    assert len(set(blocks)) == len(blocks)


def _claim(arguments: tuple[Path, int]) -> str:
    base, number = arguments
    return addresses(base, f"p{number}").block("rc").base


def test_parallel_claims_are_serialised_by_the_lock(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        bases = pool.map(_claim, [(tmp_path, n) for n in range(12)])
    assert len(set(bases)) == 12


def test_a_block_whose_data_is_gone_is_free_again(tmp_path: Path) -> None:
    first = addresses(tmp_path, "gone").block("rc").base
    shutil.rmtree(tmp_path / "regions" / "gone")
    assert addresses(tmp_path, "next").block("rc").base == first


def test_a_lost_address_book_is_written_again_from_the_regions(tmp_path: Path) -> None:
    mine = addresses(tmp_path, "a")
    before = mine.block("rc")
    (tmp_path / "run" / "addresses.json").unlink()
    assert mine.block("rc") == before


def test_a_block_taken_by_another_region_meanwhile_is_refused_clearly(tmp_path: Path) -> None:
    mine = addresses(tmp_path, "a")
    base = mine.block("rc").base
    (tmp_path / "run" / "addresses.json").unlink()
    assert addresses(tmp_path, "b").block("rc").base == base
    with pytest.raises(UserError, match="now held by"):
        mine.block("rc")


def test_the_rooms_of_a_block_do_not_overlap() -> None:
    block = Block("127.64.4.0")
    assert (block.api, block.node) == ("127.64.4.1", "127.64.4.2")
    assert (block.service_cidr, block.pod_cidr) == ("127.64.5.0/24", "127.64.6.0/23")

"""Every case directory holds a faulty config.yaml and the exact problems that it must be refused with."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.config import source
from regional.config.load import load, load_text
from regional.config.problems import ConfigProblems

CASES = sorted((Path(__file__).parent / "cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_problems_are_reported_with_their_places(case: Path) -> None:
    with pytest.raises(ConfigProblems) as refused:
        load(case / "config.yaml")
    assert "".join(f"{problem}\n" for problem in refused.value.problems) == (case / "problems.txt").read_text()


def test_an_oversized_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    with pytest.raises(ConfigProblems, match=f"larger than {source.MAX_BYTES // 1024 // 1024} MiB"):
        load(file)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match="cannot be read: No such file"):
        load(tmp_path / "config.yaml")


def test_a_fault_in_defaults_is_said_once_for_all_regions() -> None:
    regions = "".join(
        f"  - {{name: r{n}, aws_region: us-east-1, sector: s, account_id: '111111111111'}}\n" for n in range(5)
    )
    text = (
        "defaults: {terraform_vars: {a: '{{ typo }}'}}\nsectors: [{name: s}]\nregion_deployments:\n" + regions
    ).encode()
    with pytest.raises(ConfigProblems) as refused:
        load_text(text)
    assert len(refused.value.problems) == 1


def test_control_characters_are_no_yaml() -> None:
    with pytest.raises(ConfigProblems, match="is not YAML"):
        load_text(b"sectors: \x00\n")

"""Every case directory holds a faulty config.yaml and the exact problems that it must be refused with."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from regional.config import source
from regional.config.commands import config
from regional.config.load import load, load_text
from regional.config.problems import ConfigProblems
from regional.config.render import render
from tests.config.repositories import commit, make

CASES = sorted((Path(__file__).parent / "cases").iterdir())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Charts, in a repository without a commit that anybody could pin."""
    folder = make(tmp_path_factory.mktemp("faults") / "checkout")
    commit(folder)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_problems_are_reported_with_their_places_and_nothing_is_written(case: Path, checkout: Path) -> None:
    shutil.copyfile(case / "config.yaml", checkout / "config.yaml")
    command = ["--checkout", str(checkout), "render"]
    refused = CliRunner().invoke(config, command, standalone_mode=False).exception
    assert isinstance(refused, ConfigProblems), refused
    assert "".join(f"{problem}\n" for problem in refused.problems) == (case / "problems.txt").read_text()
    assert sorted(path.name for path in checkout.iterdir()) == [".git", "argocd", "config.yaml"]


ACCEPTED = sorted((Path(__file__).parent / "accepted").iterdir())


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_what_looks_odd_and_is_right_renders_to_what_it_means(case: Path) -> None:
    """A case holds, beside its config.yaml, the files that matter of its rendering."""
    rendered = render(load(case / "config.yaml"))
    expected = {path.relative_to(case / "deploy").as_posix(): path for path in (case / "deploy").rglob("*.*")}
    assert expected
    assert {name: rendered[name].decode() for name in expected} == {name: p.read_text() for name, p in expected.items()}


def test_an_oversized_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    with pytest.raises(ConfigProblems, match=f"larger than {source.MAX_BYTES // 1024 // 1024} MiB"):
        load(file)


def test_a_file_of_very_many_values_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ConfigProblems, match="has more than 500,000 values"):
        load_text(b"sectors: [" + b"1," * 600_000 + b"]")


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match="cannot be read: No such file"):
        load(tmp_path / "config.yaml")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    with pytest.raises(ConfigProblems, match="cannot be read: Is a named pipe"):
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


def test_a_file_that_is_something_else_is_not_told_of_line_by_line() -> None:
    with pytest.raises(ConfigProblems) as refused:
        load_text("".join(f"key{number}: 1\n" for number in range(5000)).encode())
    said = str(refused.value).splitlines()
    assert len(refused.value.problems) > 5000
    assert len(said) < 250 and said[-1].strip() == f"… and {len(refused.value.problems) - 200} more"


def test_control_characters_are_no_yaml() -> None:
    with pytest.raises(ConfigProblems, match="is not YAML"):
        load_text(b"sectors: \x00\n")


LONG = 200_000
COSTLY = {
    "digits": "1" * LONG,
    "underscores": "1" + "_" * LONG + "x",
    "braces": f"'{'{{' * LONG}'",
    "spaces in a template": f"'{{{{ name | default({' ' * LONG}x }}}}'",
}


@pytest.mark.parametrize("value", COSTLY.values(), ids=COSTLY)
def test_no_text_is_costly_to_look_at(value: str) -> None:
    """These took hours; now it is a time that nobody notices, so the test needs no clock."""
    text = f"sectors: [{{name: s, terraform_vars: {{x: {value}}}}}]\nregion_deployments:\n"
    region = "  - {name: r, aws_region: us-east-1, sector: s, account_id: '111111111111'}\n"
    with contextlib.suppress(ConfigProblems):
        load_text((text + region).encode())

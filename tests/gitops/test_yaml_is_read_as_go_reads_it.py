from __future__ import annotations

import itertools
from typing import Any

import pytest

from regional.gitops.goyaml import YamlError, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("No", False),
        ("off", False),
        ("1e3", 1000.0),
        ("1234e56", 1.234e59),
        ("0755", 493),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("-12", -12),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("'y'", "y"),
        ("{n: 1, 2: b}", {"false": 1, "2": "b"}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_plain_scalars(text: str, value: Any) -> None:
    assert load_yaml(text) == value


def test_anchors_that_unfold_without_end_are_refused() -> None:
    names = "abcdefghi"
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in itertools.pairwise(names))
    with pytest.raises(YamlError, match="excessive aliasing"):
        load_yaml(bomb)


def test_an_error_names_the_line() -> None:
    with pytest.raises(YamlError, match="line 2"):
        load_yaml("a: 1\n\tb: 2\n")

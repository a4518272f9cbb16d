"""Patterns of users are matched in linear time, with the results of a backtracking engine where that one ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regional.kube.schema.linear_regex import Unsupported, find_all

PATTERNS = [
    *(
        "a",
        "a+",
        "a*",
        "a?b",
        "ab|a",
        "a|ab",
        "(a|b)*c",
        "[a-c]+",
        "[^a]",
        ".",
        "^a",
        "a$",
        r"\bab\b",
        r"\d+",
        r"\w+\s",
    ),
    *(
        "a{2}",
        "a{1,2}",
        "a{2,}",
        "a+?",
        "(?:ab)+",
        "(a)(b)?",
        "a|",
        "",
        "(?i)AB",
        "[a-]",
        r"[\d.]+",
        "(?s)a.b",
        "(?m)^b",
    ),
]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [(r"\bab\b", " ab", ["ab"]), ("(?m)^b", "1\nb", ["b"]), (r"\Bb", "b ab", ["b"]), ("^b", "ab", [])],
)
def test_a_match_may_begin_where_the_text_does_not(pattern: str, text: str, found: list[str]) -> None:
    assert find_all(pattern, text) == found


@settings(deadline=None)
@given(st.sampled_from(PATTERNS), st.text("abcAB1. \n", max_size=12))
def test_matches_are_those_of_a_backtracking_engine(pattern: str, text: str) -> None:
    if pattern == "a$" and text.endswith("\n"):
        return  # only Python's `$` also matches before a last line break
    wanted, last = [], -1
    for found in re.finditer(pattern, text, re.ASCII):
        # Go takes no empty match right behind another match.
        if not (found.start() == found.end() == last):
            wanted.append(found.group())
        last = found.end()
    assert find_all(pattern, text) == wanted


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*a){12}x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_explode_elsewhere_come_to_an_end(pattern: str) -> None:
    assert find_all(pattern, "a" * 300 + "!") == []


def test_limits_and_refusals() -> None:
    assert find_all("[0-9]+", "1 22 333", 2) == ["1", "22"]
    assert find_all("x", "xxx", 0) == []
    for pattern in ("(", "(?=a)", r"(a)\1", "((a{100}){100}){100}"):
        with pytest.raises(Unsupported):
            find_all(pattern, "a")

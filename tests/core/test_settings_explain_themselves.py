from __future__ import annotations

import msgspec
import pytest

from regional.core.problems import UserError
from regional.core.settings import describe, load


class Example(msgspec.Struct):
    database: str
    port: int = 8080
    verbose: bool = False
    names: list[str] = []


def test_flags_win_over_environment_over_defaults() -> None:
    seen = load(Example, ["--port=9"], {"DATABASE": "env", "PORT": "7"})
    assert (seen.database, seen.port, seen.verbose) == ("env", 9, False)


def test_a_bare_flag_switches_on_and_lists_are_split() -> None:
    seen = load(Example, ["--database", "x", "--verbose", "--names", "a, b"], {})
    assert seen.verbose and seen.names == ["a", "b"]


def test_all_problems_come_at_once_with_a_suggestion() -> None:
    with pytest.raises(UserError) as refused:
        load(Example, ["--prot", "--port", "many"], {})
    for part in ("unknown flag --prot (did you mean --port?)", "--port:", "--database is required"):
        assert part in refused.value.message
    assert refused.value.exit_code == 2


def test_help_shows_every_flag_with_its_default() -> None:
    assert ("--database", "required") in describe(Example) and ("--port", "default 8080") in describe(Example)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_given_instead_of_a_complaint(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        load(Example, [flag], {})
    assert done.value.code == 0
    shown = capsys.readouterr().out
    assert "--database  required" in shown and "--port      default 8080" in shown

"""What is wrong with a configuration, where, and what would be right. All of it at once, never the first only."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec

from regional.core.problems import UserError

SHOWN = 200  # of a file that is something else altogether, nobody reads more


class Problem(msgspec.Struct, frozen=True, order=True):
    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.message}"


class ConfigProblems(UserError):
    def __init__(self, problems: Iterable[Problem], hint: str = "nothing was written") -> None:
        # One fault in `defaults` shows in every region that inherits it: said once.
        self.problems = sorted(set(problems))
        more = [f"… and {len(self.problems) - SHOWN} more"] if len(self.problems) > SHOWN else []
        super().__init__("\n  ".join([self._headline(), *map(str, self.problems[:SHOWN]), *more]), hint)

    def _headline(self) -> str:
        count = len(self.problems)
        return "the configuration has a problem:" if count == 1 else f"the configuration has {count} problems:"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)`, or what is known when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1)
    if near:
        return f" (did you mean {near[0]}?)"
    return f" (known here: {', '.join(names)})" if names else ""

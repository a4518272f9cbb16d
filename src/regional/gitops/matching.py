"""Go's path.Match: the pattern language of git directory generators (`*` stops at `/`, and there is no `**`)."""

from __future__ import annotations

import re
from functools import lru_cache


class BadPattern(ValueError):
    pass


def path_match(pattern: str, path: str) -> bool:
    """Raises BadPattern for what Go calls a syntax error in a pattern."""
    return _compiled(pattern).fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            body, position = _bracket(pattern, position)
            out.append(body)
        elif char == "\\":
            if position >= len(pattern):
                raise BadPattern(f"syntax error in pattern {pattern!r}")
            out.append(re.escape(pattern[position]))
            position += 1
        else:
            out.append(re.escape(char))
    return re.compile("".join(out), re.DOTALL)


def _bracket(pattern: str, position: int) -> tuple[str, int]:
    negated = pattern[position : position + 1] == "^"
    position += negated
    ranges: list[str] = []
    while not (ranges and pattern[position : position + 1] == "]"):
        low, position = _member(pattern, position)
        high = low
        if pattern[position : position + 1] == "-":
            high, position = _member(pattern, position + 1)
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            ranges.append("")  # an empty range matches nothing, and is no error in Go
    body = "".join(ranges)
    if not body:
        return ("(?s:.)" if negated else "(?!)"), position + 1
    return f"[{'^' if negated else ''}{body}]", position + 1


def _member(pattern: str, position: int) -> tuple[str, int]:
    if position >= len(pattern) or pattern[position] in "-]":
        raise BadPattern(f"syntax error in pattern {pattern!r}")
    if pattern[position] == "\\":
        position += 1
        if position >= len(pattern):
            raise BadPattern(f"syntax error in pattern {pattern!r}")
    return pattern[position], position + 1


def walk_order(path: str) -> tuple[str, ...]:
    """Directories come as a walk meets them: `a`, `a/z`, `a-b`, which is not the order of the strings."""
    return tuple(path.split("/"))


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def glob_match(pattern: str, text: str) -> bool:
    """AppProject's globs, where `*` crosses everything."""
    expression = "".join(".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None

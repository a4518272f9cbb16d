"""Feedback paths in kubectl's JSONPath dialect, the part that reads: fields, indexes, slices, unions, wildcards,
filters, and what is anywhere below.

A field that is not there is not an error, it is nothing: statuses fill up over time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

Step = Callable[[Any], Iterable[Any]]
Steps = tuple[tuple[Step, ...], ...]
"""One behind the other. Each is a union of one or more: what the first finds in all of its parents, then the next."""

LONGEST = 1000
MOST = 100_000
"""Values that a step may find: paths may name everything below everything, over and over."""
# These come from whoever writes bundles: each must fail as quickly as it matches, whatever it is given.
_FIELD = re.compile(r"\.?((?:\\.|[^.\[\]\\{}()'\"\s])+)")
_EVERY = re.compile(r"\.?\*")
_ITEM = re.compile(
    r"\s*+(?:(?P<name>'(?:\\.|[^'\\])*+'|\"(?:\\.|[^\"\\])*+\")|(?P<every>\*)"
    r"|(?P<slice>-?\d*+:-?\d*+(?::-?\d*+)?)|(?P<index>-?\d++))\s*+(?P<end>[,\]])"
)
_FILTER = re.compile(r"\[\?\(\s*@((?:\.(?:\\.|[\w/-])+|\['[^']+'\])*)\s*+(?:(==|!=|<=|>=|<|>)\s*+([^)]+))?\)\]")


class BadPath(ValueError):
    pass


def find(document: Any, path: str) -> list[Any]:
    """Every value that the path (`.status.x`, with or without braces) leads to. Raises BadPath."""
    return _found([document], compiled(path))


def _found(values: list[Any], steps: Steps) -> list[Any]:
    for union in steps:
        found: list[Any] = []
        for step in union:
            for parent in values:
                for value in step(parent):
                    found.append(value)
                    if len(found) > MOST:
                        raise BadPath(f"it leads to more than {MOST} values")
        values = found
    return values


@functools.lru_cache(maxsize=1024)
def compiled(path: str) -> Steps:
    if len(path) > LONGEST:
        raise BadPath(f"{path[:40]!r}… is longer than {LONGEST} characters")
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text[1:] if text[:1] in ("$", "@") else text
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[tuple[Step, ...]] = []
    position = 0
    while position < len(text):
        if text[position:] == ".":  # the document itself
            break
        union, position = _step(text, position)
        steps.append(union)
    return tuple(steps)


def _step(text: str, at: int) -> tuple[tuple[Step, ...], int]:
    if text.startswith("..", at):
        # What follows has no dot of its own.
        return (_below,), at + 2
    if "." in text[max(0, at - 1) : at + 1]:
        if found := _EVERY.match(text, at):
            return (_every,), found.end()
        if found := _FIELD.match(text, at):
            return (functools.partial(_field, _unescaped(found.group(1))),), found.end()
    if found := _FILTER.match(text, at):
        inner, operator, literal = found.groups()
        wanted = _literal(literal) if operator else None
        return (functools.partial(_filter, compiled(inner), operator or "", wanted),), found.end()
    if text[at] == "[":
        return _union(text, at)
    raise BadPath(f"{text!r} is not understood at {text[at : at + 20]!r}")


def _union(text: str, at: int) -> tuple[tuple[Step, ...], int]:
    steps: list[Step] = []
    position = at + 1
    while found := _ITEM.match(text, position):
        steps.append(_item(found))
        position = found.end()
        if found.group("end") == "]":
            return tuple(steps), position
    raise BadPath(f"{text!r} is not understood at {text[at : at + 20]!r}")


def _item(found: re.Match[str]) -> Step:
    if (name := found.group("name")) is not None:
        return functools.partial(_field, _unescaped(name[1:-1]))
    if found.group("every"):
        return _every
    if (index := found.group("index")) is not None:
        return functools.partial(_index, int(index))
    start, end, *by = (_number(part) for part in found.group("slice").split(":"))
    step = by[0] if by else None
    if step is not None and step < 1:
        raise BadPath(f"{found.group('slice')!r} does not go forward")
    return functools.partial(_slice, slice(start, end, step))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _number(text: str) -> int | None:
    return int(text) if text not in ("", "-") else None


def _literal(text: str) -> Any:
    text = text.strip()
    if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise BadPath(f"{text!r} in a filter is neither a string, a number nor a truth value") from None


def _field(name: str, value: Any) -> Iterable[Any]:
    return [value[name]] if isinstance(value, dict) and name in value else []


def _index(position: int, value: Any) -> Iterable[Any]:
    return [value[position]] if isinstance(value, list) and -len(value) <= position < len(value) else []


def _slice(part: slice, value: Any) -> Iterable[Any]:
    return value[part] if isinstance(value, list) else []


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else []


def _below(value: Any) -> Iterable[Any]:
    """Itself and every map and list in it, outer ones first."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in _every(value):
            yield from _below(inner)


def _filter(inner: Steps, operator: str, wanted: Any, value: Any) -> Iterable[Any]:
    for item in _every(value):
        if any(_holds(operator, one, wanted) for one in _found([item], inner)):
            yield item


def _holds(operator: str, value: Any, wanted: Any) -> bool:
    if operator == "":
        return True
    if operator in ("==", "!="):
        same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
        return same is (operator == "==")
    try:
        if operator == "<":
            return bool(value < wanted)
        if operator == "<=":
            return bool(value <= wanted)
        return bool(value > wanted) if operator == ">" else bool(value >= wanted)
    except TypeError:
        return False

"""Feedback paths in kubectl's JSONPath dialect, the part that reads: fields, indexes, slices, wildcards and filters.

A field that is not there is not an error, it is nothing: statuses fill up over time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

Step = Callable[[Any], Iterable[Any]]

_FIELD = re.compile(r"\.((?:\\.|[^.\[\]\\{}()'\"\s])+)")
_QUOTED = re.compile(r"\[\s*(?:'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\")\s*\]")
_INDEX = re.compile(r"\[\s*(-?\d+)\s*\]")
_SLICE = re.compile(r"\[\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")
_ALL = re.compile(r"\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(r"\[\?\(\s*@((?:\.[\w\\./-]+|\['[^']+'\])+)\s*(?:(==|!=|<=|>=|<|>)\s*([^)]+?)\s*)?\)\]")


class BadPath(ValueError):
    pass


def find(document: Any, path: str) -> list[Any]:
    """Every value that the path (`.status.x`, with or without braces) leads to. Raises BadPath."""
    found = [document]
    for step in compiled(path):
        found = [value for parent in found for value in step(parent)]
    return found


@functools.lru_cache(maxsize=1024)
def compiled(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        if text[position:] == ".":  # the document itself
            break
        step, position = _step(text, position)
        steps.append(step)
    return tuple(steps)


def _step(text: str, at: int) -> tuple[Step, int]:
    if found := _ALL.match(text, at):
        return _every, found.end()
    if found := _FIELD.match(text, at):
        return functools.partial(_field, _unescaped(found.group(1))), found.end()
    if found := _QUOTED.match(text, at):
        return functools.partial(_field, _unescaped(found.group(1) or found.group(2) or "")), found.end()
    if found := _INDEX.match(text, at):
        return functools.partial(_index, int(found.group(1))), found.end()
    if found := _SLICE.match(text, at):
        return functools.partial(_slice, _number(found.group(1)), _number(found.group(2))), found.end()
    if found := _FILTER.match(text, at):
        inner, operator, literal = found.groups()
        wanted = _literal(literal) if operator else None
        return functools.partial(_filter, compiled(inner), operator or "", wanted), found.end()
    raise BadPath(f"{text!r} is not understood at {text[at : at + 20]!r}")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _number(text: str) -> int | None:
    return int(text) if text not in ("", "-") else None


def _literal(text: str) -> Any:
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


def _slice(start: int | None, end: int | None, value: Any) -> Iterable[Any]:
    return value[start:end] if isinstance(value, list) else []


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else []


def _filter(inner: tuple[Step, ...], operator: str, wanted: Any, value: Any) -> Iterable[Any]:
    for item in _every(value):
        found = [item]
        for step in inner:
            found = [deeper for parent in found for deeper in step(parent)]
        if any(_holds(operator, one, wanted) for one in found):
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

"""Tekton's `$(…)`: find references, say what they mean, put values in their place.

References are parsed once into `Reference`, so that checking a file before a run and replacing values during it cannot
disagree. What Tekton would leave standing as plain text, such as `$(date)`, is refused: in arguments without a shell it
is always a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from regional.pipelines.model import Value

_VARIABLE = re.compile(r"\$\(([^()]*)\)")
_NAME = r"(?:\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[\"([^\"]+)\"\])"
_INDEX = r"(?:\[(\*|\d+)\])?"
_PARAM = re.compile(rf"^params{_NAME}{_INDEX}$")
_TASK_RESULT = re.compile(rf"^tasks\.([a-z0-9-]+)\.results{_NAME}$")
_TASK_STATUS = re.compile(r"^tasks(?:\.([a-z0-9-]+))?\.status$")
_RESULT_PATH = re.compile(rf"^results{_NAME}\.path$")
_WORKSPACE = re.compile(r"^workspaces\.([a-z0-9-]+)\.(path|bound)$")
_CONTEXT = re.compile(r"^context\.([A-Za-z]+\.[A-Za-z-]+)$")


class Reference(msgspec.Struct, frozen=True):
    kind: str  # param, task-result, task-status, result-path, workspace, context, unknown
    name: str
    field: str = ""  # result of a task; path or bound of a workspace; index of a parameter
    text: str = ""


class Unresolved(Exception):
    """A reference that has no value (yet, or ever); the text says which."""


Scope = Mapping[tuple[str, str, str], Value]


def parse(expression: str) -> Reference:
    if match := _PARAM.match(expression):
        return Reference("param", match[1] or match[2] or match[3], match[4] or "", expression)
    if match := _TASK_RESULT.match(expression):
        return Reference("task-result", match[1], match[2] or match[3] or match[4], expression)
    if match := _TASK_STATUS.match(expression):
        return Reference("task-status", match[1] or "", "", expression)
    if match := _RESULT_PATH.match(expression):
        return Reference("result-path", match[1] or match[2] or match[3], "", expression)
    if match := _WORKSPACE.match(expression):
        return Reference("workspace", match[1], match[2], expression)
    if match := _CONTEXT.match(expression):
        return Reference("context", match[1], "", expression)
    return Reference("unknown", expression, "", expression)


def references(*values: Value) -> Iterator[Reference]:
    for value in values:
        for text in [value] if isinstance(value, str) else value:
            for match in _VARIABLE.finditer(text):
                yield parse(match[1])


def replace(text: str, scope: Scope) -> str:
    """For places that hold one string."""

    def value_of(match: re.Match[str]) -> str:
        found = _look_up(parse(match[1]), scope)
        if isinstance(found, list):
            raise Unresolved(f"$({match[1]}) is a list and stands where one value is expected")
        return found

    return _VARIABLE.sub(value_of, text)


def replace_list(texts: list[str], scope: Scope) -> list[str]:
    """For lists: an item that is exactly `$(params.x[*])` becomes all of its values."""
    done: list[str] = []
    for text in texts:
        match = _VARIABLE.fullmatch(text)
        if match and isinstance(found := _look_up(parse(match[1]), scope), list):
            done += found
        else:
            done.append(replace(text, scope))
    return done


def replace_value(value: Value, scope: Scope) -> Value:
    """For parameters: a string that is exactly `$(params.x[*])` becomes the list."""
    if isinstance(value, list):
        return replace_list(value, scope)
    match = _VARIABLE.fullmatch(value)
    if match:
        return _look_up(parse(match[1]), scope)
    return replace(value, scope)


def _look_up(reference: Reference, scope: Scope) -> Value:
    if reference.kind == "param":
        found = scope.get(("param", reference.name, ""))
        if isinstance(found, list):
            return _element(found, reference)
        if isinstance(found, str) and not reference.field:
            return found
    else:
        found = scope.get((reference.kind, reference.name, reference.field))
        if found is not None:
            return found
    raise Unresolved(f"$({reference.text}) has no value")


def _element(values: list[str], reference: Reference) -> Value:
    if reference.field == "*":
        return values
    if not reference.field:
        raise Unresolved(f"$({reference.text}) is a list: write $({reference.text}[*])")
    if int(reference.field) >= len(values):
        raise Unresolved(f"$({reference.text}): the list has {len(values)} values")
    return values[int(reference.field)]

"""Texts with `{{ .name.path }}` in them: the part of Go's templates that task files need.

A value that is missing is an error, never an empty text. A string is put in as it is, a number or a boolean as JSON
writes it, and an object as JSON, which is also YAML.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_ACTION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"\s*\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*")


class TemplateError(Exception):
    pass


class Template:
    def __init__(self, text: str) -> None:
        self._parts: list[str | tuple[str, ...]] = []
        position = 0
        for found in _ACTION.finditer(text):
            path = _PATH.fullmatch(found[1])
            if path is None:
                raise TemplateError(f"only {{{{ .name }}}} is understood in a template, not {found[0][:60]!r}")
            self._parts += [text[position : found.start()], tuple(path[1].split("."))]
            position = found.end()
        self._parts.append(text[position:])
        if any("{{" in part for part in self._parts if isinstance(part, str)):
            raise TemplateError("there is a {{ without its }}")

    def render(self, variables: dict[str, Any]) -> str:
        return "".join(part if isinstance(part, str) else _text(_find(variables, part)) for part in self._parts)


def _find(variables: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = variables
    for step in path:
        if not isinstance(value, dict) or step not in value:
            raise TemplateError(f"there is no {'.'.join(path)}")
        value = value[step]
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""`{{ name }}` and `{{ name | default(literal) }}` in configuration strings, and nothing more.

A string that is one expression keeps the type of what it names; text around it makes a string. An unknown name is an
error even with a default, because a misspelt name that silently gives its default is how a wrong region goes live.
A name that is known but has no value here (a cluster's, asked at the region) needs a default. One pass: results are
not templated again, so no value can smuggle an expression in.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from regional.config.problems import did_you_mean

MAX_EXPRESSION = 256  # characters between the braces
_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?:\|\s*default\((.*)\))?", re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^'\\]*)'")


class TemplateError(Exception):
    """One sentence; the caller knows the line."""


class _Reference(msgspec.Struct, frozen=True):
    name: str
    has_default: bool
    default: str | int | float | bool | None


def fill(text: str, names: Mapping[str, Any], known: frozenset[str]) -> Any:
    """`known` are all names of the language; `names` those that have a value at this level."""
    if "{%" in text:
        raise TemplateError("has {%: there are no statements, only {{ name }} and {{ name | default(value) }}")
    if "{{" not in text and "}}" not in text:
        return text
    parts = _parts(text)
    if len(parts) == 1 and isinstance(parts[0], _Reference):
        return _value(parts[0], names, known)
    return "".join(part if isinstance(part, str) else _as_text(_value(part, names, known)) for part in parts)


@functools.lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[str | _Reference, ...]:
    parts: list[str | _Reference] = []
    end = 0
    while (start := text.find("{{", end)) >= 0 and (stop := text.find("}}", start)) >= 0:
        parts += [text[end:start], _reference(text[start + 2 : stop])]
        end = stop + 2
    parts.append(text[end:])
    if any(isinstance(part, str) and ("{{" in part or "}}" in part) for part in parts):
        raise TemplateError("has {{ without }} (or the reverse)")
    return tuple(part for part in parts if part != "")


def _reference(body: str) -> _Reference:
    if len(body) > MAX_EXPRESSION:
        raise TemplateError(
            f"{{{{{body[:20]}… is no template: what stands between braces is at most {MAX_EXPRESSION} characters"
        )
    found = _BODY.fullmatch(body.strip())
    if not found:
        raise TemplateError(
            f"{{{{{body}}}}} is not a template: only {{{{ name }}}} and {{{{ name | default(value) }}}} are"
        )
    name, raw = found.groups()
    return _Reference(name, raw is not None, None if raw is None else _literal(raw.strip()))


def _literal(raw: str) -> str | int | float | bool | None:
    if quoted := _SINGLE_QUOTED.fullmatch(raw):
        return quoted[1]
    try:
        found = msgspec.json.decode(raw.encode(), type=str | int | float | bool | None)
        if isinstance(found, int) and found.bit_length() > 63:
            raise TemplateError(f"default({raw[:20]}) does not fit in 64 bits: quote it")
        return found
    except msgspec.DecodeError:
        raise TemplateError(f"default({raw}) needs a literal: 'text', a number, true, false or null") from None


def _value(reference: _Reference, names: Mapping[str, Any], known: frozenset[str]) -> Any:
    if reference.name in names:
        return names[reference.name]
    if reference.name not in known:
        raise TemplateError(f"{reference.name} is not defined{did_you_mean(reference.name, known)}")
    if reference.has_default:
        return reference.default
    if reference.name.startswith("cluster_"):
        raise TemplateError(f"{reference.name} has no value at this level: it belongs to a management cluster")
    raise TemplateError(f"{reference.name} has no value yet: it cannot be made of itself")


def _as_text(value: Any) -> str:
    if value is None:
        raise TemplateError("null cannot stand inside text")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

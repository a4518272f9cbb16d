"""JSON Schema, the part that our bodies use, and a check that finds every fault of a document at once.

The same schemas are the API's OpenAPI document, so what is published is what is enforced.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

Schema = dict[str, Any]

FAULTS = 50  # beyond that nobody reads on


class Fault(msgspec.Struct, frozen=True):
    field: str
    message: str


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("an array", lambda value: isinstance(value, list)),
    "string": ("a string", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
}


def faults_of(value: Any, schema: Schema, path: str = "") -> list[Fault]:
    found: list[Fault] = []
    for fault in _check(value, schema, path):
        found.append(fault)
        if len(found) == FAULTS:
            break
    return found


def _check(value: Any, schema: Schema, path: str) -> Iterator[Fault]:
    label = path or "the body"
    kind = schema.get("type")
    if kind and not _KINDS[kind][1](value):
        yield Fault(path, f"{label} must be {_KINDS[kind][0]}")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Fault(path, f"{label} must be one of {', '.join(schema['enum'])}")
    elif isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        yield from _check_array(value, schema, path)
    elif kind == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield Fault(path, f"{label} must be between {schema['minimum']} and {schema['maximum']}")


def _check_text(value: str, schema: Schema, path: str) -> Iterator[Fault]:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if not shortest <= len(value) <= longest:
        yield Fault(path, f"{path} must have {shortest} to {longest} characters, it has {len(value)}")
    if value and "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        yield Fault(path, f"{path} must be {schema.get('x-words') or 'of the form ' + schema['pattern']}")
    if schema.get("format") == "cidr" and not _is_network(value):
        yield Fault(path, f"{path} must be a network such as 10.132.0.0/14")


def _check_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Fault]:
    known: dict[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault(_below(path, name), f"{_below(path, name)} is required")
    if len(value) > schema.get("maxProperties", len(value)):
        yield Fault(path, f"{path or 'the body'} must have at most {schema['maxProperties']} entries")
        return
    for name, item in value.items():
        if "propertyNames" in schema:
            yield from _check(name, schema["propertyNames"], _below(path, name))
        if name in known:
            yield from _check(item, known[name], _below(path, name))
        elif isinstance(others, dict):
            yield from _check(item, others, _below(path, name))
        elif others is False:
            yield Fault(_below(path, name), f"{_below(path, name)} is not a field{_near(name, known)}")


def _check_array(value: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not fewest <= len(value) <= most:
        yield Fault(path, f"{path} must have {fewest} to {most} items, it has {len(value)}")
    elif "items" in schema:
        for index, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{index}]")


def _below(path: str, name: str) -> str:
    shown = name if len(name) <= 100 else name[:100] + "…"
    return f"{path}.{shown}" if path else shown


def _near(name: str, known: dict[str, Schema]) -> str:
    near = difflib.get_close_matches(name[:100], known, 1)
    return f"; did you mean {near[0]}?" if near else f"; fields are {', '.join(known)}" if known else ""


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # A dollar of JSON Schema is the end; Python's would let a newline follow.
    return re.compile(text.replace("$", r"\Z"))

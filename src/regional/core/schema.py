"""JSON Schema, the part that our APIs use, and a check that finds every fault of a document at once.

The same schemas are the APIs' OpenAPI documents, so what is published is what is enforced.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import msgspec

Schema = dict[str, Any]

_LOOKED_AT = 100  # items of what is refused for their number anyway


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong. `constraint` names the rule in a word: required, min, max_length, pattern, …"""

    field: str
    message: str
    value: Any = None
    constraint: str = ""


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("an array", lambda value: isinstance(value, list)),
    "string": ("a string", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "number": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
}


def check(value: Any, schema: Schema, path: str = "", *, null_is_absent: bool = False) -> Iterator[Fault]:
    """Everything in which `value` differs from the schema; an empty path is the body itself."""
    return _Check(null_is_absent).value(value, schema, path)


class _Check:
    def __init__(self, null_is_absent: bool) -> None:
        self._null_is_absent = null_is_absent

    def value(self, value: Any, schema: Schema, path: str) -> Iterator[Fault]:
        if value is None and self._null_is_absent:
            return
        label, kind = path or "the body", schema.get("type")
        if kind and not _KINDS[kind][1](value):
            yield Fault(path, f"{label} must be {_KINDS[kind][0]}", _shown(value), "format")
        elif "enum" in schema and value not in schema["enum"]:
            yield Fault(path, f"{label} must be one of {', '.join(schema['enum'])}", _shown(value), "enum")
        elif isinstance(value, str):
            yield from _text(value, schema, path)
        elif isinstance(value, dict):
            yield from self._object(value, schema, path)
        elif isinstance(value, list):
            yield from self._array(value, schema, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            bounds = schema.get("minimum"), schema.get("maximum")
            if side := _outside(value, *bounds):
                yield Fault(path, f"{label} must be {_number(*bounds)}", _shown(value), side)

    def _object(self, value: dict[str, Any], schema: Schema, path: str) -> Iterator[Fault]:
        known: dict[str, Schema] = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value or (self._null_is_absent and value[name] is None):
                yield Fault(_below(path, name), f"{_below(path, name)} is required", None, "required")
        if len(value) > schema.get("maxProperties", len(value)):
            message = f"{path or 'the body'} must have at most {schema['maxProperties']} entries"
            yield Fault(path, message, None, "max")
            value = dict(islice(value.items(), _LOOKED_AT))
        for name, item in value.items():
            if "propertyNames" in schema:
                yield from self.value(name, schema["propertyNames"], _below(path, name))
            if name in known:
                yield from self.value(item, known[name], _below(path, name))
            elif isinstance(others, dict):
                yield from self.value(item, others, _below(path, name))
            elif others is False:
                yield Fault(_below(path, name), f"{_below(path, name)} is not a field{_near(name, known)}")

    def _array(self, value: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
        bounds = schema.get("minItems"), schema.get("maxItems")
        if side := _outside(len(value), *bounds):
            message = f"{path or 'the body'} must have {_span(*bounds)} items, it has {len(value)}"
            yield Fault(path, message, None, side)
            value = value[:_LOOKED_AT]
        for index, item in enumerate(value if "items" in schema else ()):
            yield from self.value(item, schema["items"], f"{path}[{index}]")


def _text(value: str, schema: Schema, path: str) -> Iterator[Fault]:
    label = path or "the body"
    bounds = schema.get("minLength"), schema.get("maxLength")
    if side := _outside(len(value), *bounds):
        message = f"{label} must have {_span(*bounds)} characters, it has {len(value)}"
        yield Fault(path, message, _shown(value), f"{side}_length")
        if not value:
            return  # of what form nothing is says no more
    if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        form = schema.get("x-words") or f"of the form {schema['pattern']}"
        yield Fault(path, f"{label} must be {form}", _shown(value), "pattern")
    elif schema.get("format") == "cidr" and not _is_network(value):
        yield Fault(path, f"{label} must be a network such as 10.132.0.0/14", _shown(value), "format")


def _outside(value: float, least: float | None, most: float | None) -> str:
    if least is not None and value < least:
        return "min"
    return "max" if most is not None and value > most else ""


def _span(least: int | None, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if not least else f"{least} to {most}"


def _number(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"between {least} and {most}"


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


def _shown(value: Any) -> Any:
    """A refused value goes back only if it is short."""
    if isinstance(value, dict | list):
        return None
    return value if len(str(value)) <= 100 else None

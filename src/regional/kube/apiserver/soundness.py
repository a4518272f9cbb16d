"""What a Go decoder settles while it reads and a JSON parser does not: nulls in lists, integers too large, the form of
times, whole numbers that are written as fractions.

Bodies that can hold none of it are recognised by a glance at their bytes, so the walk is rare.
"""

from __future__ import annotations

import re
from typing import Any

from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import bad_request
from regional.kube.schema.times import in_utc
from regional.kube.schema.types import LIST, MAP, SCALAR, Schema, Type

# One by one: each begins with what is rare or quick to find, which together they do not.
_SUSPECTS = (
    re.compile(rb"null"),
    re.compile(rb"[0-9](?:[0-9]{9}|[eE][+]?[0-9])"),
    re.compile(rb":[0-9]{2}(?:[.,][0-9]|[+-][0-9]{2}:)"),  # a time with a fraction, or of another zone
    re.compile(rb"T[0-9]:[0-9]"),  # a time whose hour has one digit
)
_FRACTION = re.compile(rb"[:,\[-]\s*[0-9]+\.[0-9]")  # where a value may stand
_LARGEST = 1e21  # from here on Go writes whole numbers with an exponent, too
_ZEROS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0, "bytes": ""}


def make_sound(obj: Obj, schema: Schema, body: bytes) -> None:
    """In place: a null item becomes its type's zero value, a time is told in UTC, a custom kind's 1.0 becomes 1. Raises
    400 for an integer that no int64 (or int32) holds."""
    custom = schema.structural is not None
    if any(suspect.search(body) for suspect in _SUSPECTS) or (custom and _FRACTION.search(body)):
        _walk(obj, schema.root, "", custom=custom)


def _walk(value: Any, node: Type, path: str, *, custom: bool) -> None:
    """Custom kinds are untyped in Go, but for their metadata."""
    if node.shape == SCALAR:
        _check_integer(value, node, path)
    elif node.shape == LIST and isinstance(value, list) and node.element is not None:
        for index, item in enumerate(value):
            if item is None:
                value[index] = _zero(node.element)
            elif _is_time(item, node.element):
                value[index] = in_utc(item, micro=node.element.name == "MicroTime")
            else:
                _walk(item, node.element, path, custom=custom)
    elif node.shape == MAP and isinstance(value, dict):
        for name, item in value.items():
            if custom and not path and name != "metadata":
                value[name] = _whole(item)
                continue
            child = node.child(name)
            if child is None:
                continue
            if item is None and name not in node.fields:
                value[name] = _zero(child)
            elif _is_time(item, child):
                value[name] = in_utc(item, micro=child.name == "MicroTime")
            elif item is not None:
                _walk(item, child, f"{path}.{name}", custom=custom)


def _is_time(value: Any, node: Type) -> bool:
    return isinstance(value, str) and node.shape == SCALAR and node.format == "date-time"


def _whole(value: Any) -> Any:
    """Go writes 1.0 as 1, and its typed clients read only that where they expect an integer."""
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST else value


def _zero(node: Type) -> Any:
    if node.shape == MAP:
        return {}
    if node.shape == LIST:
        return []
    return _ZEROS.get(node.scalar) if node.shape == SCALAR else None


def _check_integer(value: Any, node: Type, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        return
    bits = 31 if node.format == "int32" and node.scalar == "integer" else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise bad_request(f"json: cannot unmarshal number {value} into Go struct field {path} of type int{bits + 1}")

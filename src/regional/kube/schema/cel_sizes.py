"""How large the values of a CRD's schema can get: what the estimate of a rule's cost is made of.

A size is a number of characters, items or entries. Where the schema sets no limit, the limit is what fits into the
largest request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from regional.kube.objects import Obj

MAX_REQUEST_BYTES = 3 * 1024 * 1024
UNKNOWN = (1 << 64) - 1
_DURATION_MAX, _TIME_MAX, _DATE = 32, 32, 12
_BYTES_PER_CHARACTER = 4


class Shape(msgspec.Struct):
    """`kind`: string, bytes, int, double, bool, timestamp, duration, list, map, object or dyn."""

    kind: str
    largest: int = 0
    smallest_json: int = 1
    element: Shape | None = None
    fields: dict[str, Shape] = {}


STRING = Shape("string", UNKNOWN, 2)


def _limit(schema: Obj, key: str) -> int | None:
    value = schema.get(key)
    return max(0, value) if isinstance(value, int) else None


def shape_of(schema: Any, *, root: bool = False) -> Shape | None:
    """None for what rules cannot see: values without a type."""
    if not isinstance(schema, dict):
        return None
    if schema.get("x-kubernetes-int-or-string"):
        longest = _limit(schema, "maxLength")
        return Shape("dyn", MAX_REQUEST_BYTES - 2 if longest is None else longest * _BYTES_PER_CHARACTER, 1)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _object(schema, root=root)
        case "string":
            return _string(schema)
        case "boolean":
            return Shape("bool", 0, 4)
        case "number":
            return Shape("double", 0, 1)
        case "integer":
            return Shape("int", 0, 1)
    return None


def _list(schema: Obj) -> Shape | None:
    items = shape_of(schema.get("items"))
    if items is None:
        return None
    most = _limit(schema, "maxItems")
    if most is None:
        most = (MAX_REQUEST_BYTES - 2) // (items.smallest_json + 1)
    return Shape("list", most, 2, items)


def _object(schema: Obj, *, root: bool) -> Shape | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        values = shape_of(extra)
        if values is None:
            return None
        most = _limit(schema, "maxProperties")
        if most is None:
            most = (MAX_REQUEST_BYTES - 2) // (values.smallest_json + 6)
        return Shape("map", most, 2, values)
    found = Shape("object", 0, 2, fields={})
    properties = dict(schema.get("properties") or {})
    if root or schema.get("x-kubernetes-embedded-resource"):
        text = {"type": "string"}
        properties |= {"kind": text, "apiVersion": text}
        properties["metadata"] = {"type": "object", "properties": {"name": text, "generateName": text}}
    required = schema.get("required") or ()
    for name, child in properties.items():
        below = shape_of(child)
        if below is None:
            continue
        found.fields[name] = below
        if name in required and child.get("default") is None:
            found.smallest_json += len(name) + below.smallest_json + 4
    return found


def _string(schema: Obj) -> Shape:
    longest = _limit(schema, "maxLength")
    match schema.get("format"):
        case "byte":
            return Shape("bytes", MAX_REQUEST_BYTES - 2 if longest is None else longest, 2)
        case "duration":
            return Shape("duration", _DURATION_MAX, 3)
        case "date":
            return Shape("timestamp", _DATE, _DATE)
        case "date-time":
            return Shape("timestamp", _TIME_MAX, 21)
    if longest is not None:
        return Shape("string", longest * _BYTES_PER_CHARACTER, 2)
    words = schema.get("enum")
    if words:
        return Shape("string", max((len(word) for word in words if isinstance(word, str)), default=0), 2)
    return Shape("string", MAX_REQUEST_BYTES - 2, 2)


def most_elements(schema: Obj) -> int | None:
    """By how much a schema multiplies what is below it; None if without limit."""
    if schema.get("type") == "array":
        return _limit(schema, "maxItems")
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return _limit(schema, "maxProperties")
    return 1


def most_in_a_request(shape: Shape) -> int:
    return MAX_REQUEST_BYTES // (shape.smallest_json + 1)

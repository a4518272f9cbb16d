"""The estimated worst cost of a CEL rule, by the real server's measure: it refuses rules that could run too long when
their CRD is written, so that no object can ever make them.

A unit is about one step of an interpreter; comprehensions multiply, texts cost a tenth of a unit per character. The
checked expression comes from the engine as a message; sizes come from the schema.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from regional.kube.schema.cel_sizes import UNKNOWN, Shape
from regional.kube.schema.protobuf import Wire, wire_fields

_TEXT, _REGEX = 0.1, 0.25
_LIST_BASE, _MAP_BASE, _STRUCT_BASE = 10, 30, 40
_SCALARS = {"bool", "double", "duration", "int", "timestamp"}
_TO_STRING = {"string", "lowerAscii", "upperAscii", "replace", "substring", "trim", "join", "format", "find", "quote"}
_TO_BOOL = {
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "isIP",
    "isCIDR",
    "isURL",
    "has",
    "!_",
    "@not_strictly_false",
}
_COMPARISONS = {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"}
_FIXED = {
    *("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast"),
    *("isGlobalUnicast",),
}


class Value(msgspec.Struct):
    """What is known of an expression: its own cost (with everything below it), the size and kind of its result."""

    cost: int = 0
    size: int | None = None
    kind: str = "dyn"
    shape: Shape | None = None
    element: Value | None = None

    @property
    def largest(self) -> int:
        if self.size is not None:
            return self.size
        return 1 if self.kind in _SCALARS else UNKNOWN


def _capped(number: float | int) -> int:
    return UNKNOWN if number >= UNKNOWN else int(number)


def _scaled(size: int, factor: float) -> int:
    return _capped(math.ceil(size * factor)) if size < UNKNOWN else UNKNOWN


def _of_shape(shape: Shape | None, cost: int) -> Value:
    if shape is None:
        return Value(cost)
    return Value(cost, shape.largest, shape.kind, shape)


def _element_of(value: Value) -> Value:
    if value.element is not None:
        return value.element
    shape = value.shape
    return _of_shape(shape.element if shape is not None else None, 0)


def estimate(serialized: bytes, shape: Shape) -> int:
    """The worst cost of a checked expression (as the engine serializes it) whose `self` has this shape."""
    checked = _one(wire_fields(serialized), 2)
    return _Estimator(shape).cost(_one(wire_fields(checked), 4)).cost


def _one(fields: Wire, number: int) -> Any:
    return next((value for found, _, value in fields if found == number), b"")


def _all(fields: Wire, number: int) -> list[Any]:
    return [value for found, _, value in fields if found == number]


class _Estimator:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._scopes: list[tuple[str, Value]] = []

    def cost(self, expression: bytes) -> Value:
        if not expression:
            return Value()
        for number, _, content in wire_fields(expression):
            match number:
                case 3:
                    return _literal(wire_fields(content))
                case 4:
                    return self._name(_one(wire_fields(content), 1).decode())
                case 5:
                    return self._select(wire_fields(content))
                case 6:
                    return self._call(wire_fields(content))
                case 7:
                    return self._list(wire_fields(content))
                case 8:
                    return self._struct(wire_fields(content))
                case 9:
                    return self._comprehension(wire_fields(content))
        return Value()

    def _name(self, name: str) -> Value:
        for scoped, value in reversed(self._scopes):
            if scoped == name:
                return Value(1, value.size, value.kind, value.shape, value.element)
        known = name in ("self", "oldSelf")
        return _of_shape(self._shape, 1) if known else Value(1)

    def _select(self, fields: Wire) -> Value:
        operand = self.cost(_one(fields, 1))
        if _one(fields, 3):
            return Value(_capped(operand.cost + 1), 1, "bool")
        name = _one(fields, 2).decode()
        shape = operand.shape
        below = None
        if shape is not None:
            below = shape.fields.get(name) if shape.kind == "object" else shape.element
        return _of_shape(below, _capped(operand.cost + 1))

    def _list(self, fields: Wire) -> Value:
        items = [self.cost(item) for item in _all(fields, 1)]
        total = _capped(sum(item.cost for item in items) + _LIST_BASE)
        element = Value(0, max((item.largest for item in items), default=0), items[0].kind if items else "dyn")
        return Value(total, len(items), "list", None, element)

    def _struct(self, fields: Wire) -> Value:
        total = _STRUCT_BASE if _one(fields, 1) else _MAP_BASE
        entries = _all(fields, 2)
        largest = 0
        for entry in entries:
            parts = wire_fields(entry)
            value = self.cost(_one(parts, 4))
            total += value.cost + self.cost(_one(parts, 3)).cost
            largest = max(largest, value.largest)
        return Value(_capped(total), len(entries), "map", None, Value(0, largest))

    def _comprehension(self, fields: Wire) -> Value:
        variable, accumulator = _one(fields, 1).decode(), _one(fields, 3).decode()
        over, initial = self.cost(_one(fields, 2)), self.cost(_one(fields, 4))
        self._scopes.append((accumulator, initial))
        element = Value(0, None, "string") if over.kind == "map" else _element_of(over)
        if over.kind == "map" and over.shape is not None:
            element = Value(0, 0, "string")  # the keys of maps have no limit of their own
        self._scopes.append((variable, element))
        condition, step = self.cost(_one(fields, 5)), self.cost(_one(fields, 6))
        self._scopes.pop()
        result = self.cost(_one(fields, 7))
        self._scopes.pop()
        rounds = over.largest
        total = over.cost + initial.cost + result.cost + rounds * (condition.cost + step.cost)
        if initial.kind in ("list", "map"):
            return Value(_capped(total), rounds, initial.kind, None, step.element)
        if rounds == 0 and variable.startswith("#"):  # a binding, not a loop
            return Value(_capped(total), result.size, result.kind, result.shape, result.element)
        return Value(_capped(total), initial.size, initial.kind)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, fields: Wire) -> Value:
        name = _one(fields, 2).decode()
        given = _one(fields, 1)
        target = self.cost(given) if given else None
        arguments = [self.cost(argument) for argument in _all(fields, 3)]
        own, result = _function(name, target, arguments)
        if name == "_?_:_":
            paid = arguments[0].cost + max(arguments[1].cost, arguments[2].cost)
        else:
            paid = sum(argument.cost for argument in arguments)
        result.cost = _capped(own + paid + (target.cost if target is not None else 0))
        return result


def _literal(fields: Wire) -> Value:
    for number, _, value in fields:
        if number == 6:
            return Value(0, len(value.decode("utf-8", "replace")), "string")
        if number == 7:
            return Value(0, len(value), "bytes")
        kind = {2: "bool", 3: "int", 4: "int", 5: "double"}.get(number, "null")
        return Value(0, 1, kind)
    return Value(0, 1, "null")


def _function(name: str, target: Value | None, arguments: list[Value]) -> tuple[int, Value]:
    """The cost of the call itself, and what is known of its result."""
    if name in ("_&&_", "_||_"):
        return 0, Value(0, 1, "bool")
    if name == "_?_:_":
        one, two = arguments[1], arguments[2]
        size = max(one.largest, two.largest)
        return 0, Value(0, size, one.kind, one.shape or two.shape, one.element or two.element)
    if name == "dyn":
        kept = arguments[0]
        return 1, Value(0, kept.size, kept.kind, kept.shape, kept.element)
    if name in ("_[_]", "_[?_]"):
        return 1, _element_of(arguments[0])
    if name in _COMPARISONS:
        return _comparison(name, *arguments), Value(0, 1, "bool")
    if name == "_+_":
        return _sum(*arguments)
    if name == "@in":
        inside = arguments[1]
        return (1 if inside.kind == "map" else inside.largest), Value(0, 1, "bool")
    if target is not None:
        found = _method(name, target, arguments)
        if found is not None:
            return found
    if name in ("url", "cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity") and len(arguments) == 1:
        text = arguments[0].largest
        return _scaled(text, _TEXT), Value(0, text if name == "url" else 1, "dyn" if name == "url" else "bool")
    if name in ("duration", "timestamp", "type", "semver", "double", "uint", "bool") and arguments:
        return 1, Value(0, 1, "dyn")
    if name in ("optional.of", "optional.ofNonZeroValue", "optional.none"):
        return 1, Value(0, arguments[0].largest if arguments else 1, "dyn")
    if name == "bytes" and arguments:
        return _scaled(arguments[0].largest, _TEXT), Value(0, _capped(arguments[0].largest * 4), "bytes")
    if name == "string" and arguments and arguments[0].kind == "bytes":
        return _scaled(arguments[0].largest, _TEXT), Value(0, arguments[0].largest, "string")
    kind = (
        "string" if name in _TO_STRING else "bool" if name in _TO_BOOL else "int" if name in ("size", "int") else "dyn"
    )
    return 1, Value(0, None, kind)


def _comparison(name: str, left: Value, right: Value) -> int:
    texts = {"string", "bytes"}
    known = {left.kind, right.kind} - {"dyn"}
    if name not in ("_==_", "_!=_") and known and not known & texts:
        return 1
    return _scaled(min(left.largest, right.largest), _TEXT)


def _sum(left: Value, right: Value) -> tuple[int, Value]:
    kinds = {left.kind, right.kind}
    size = _capped(left.largest + right.largest)
    if "list" in kinds:
        largest = max(_element_of(left).largest, _element_of(right).largest)
        return 1, Value(0, size, "list", None, Value(0, largest, _element_of(right).kind))
    if kinds & {"string", "bytes"}:
        return _scaled(size, _TEXT), Value(0, size, "string")
    return 1, Value(0, None, left.kind)


def _method(name: str, target: Value, arguments: list[Value]) -> tuple[int, Value] | None:
    size = target.largest
    first = arguments[0].largest if arguments else 0
    if name in ("startsWith", "endsWith") and arguments:
        return _scaled(first, _TEXT), Value(0, 1, "bool")
    if name == "contains" and arguments:
        return _capped(_scaled(size, _TEXT) * _scaled(first, _TEXT)), Value(0, 1, "bool")
    if name in ("matches", "find", "findAll") and arguments:
        steps = _scaled(min(size + 1, UNKNOWN), _TEXT) * _scaled(first, _REGEX)
        kind = {"matches": "bool", "find": "string"}.get(name, "list")
        return _capped(steps), Value(0, 1 if name == "matches" else size, kind, None, Value(0, size, "string"))
    if name in ("lowerAscii", "upperAscii", "substring", "trim"):
        return _scaled(size, _TEXT), Value(0, size, "string")
    if name == "replace" and len(arguments) >= 2:
        grown = _capped((size + 1) * arguments[1].largest + size)
        return _scaled(size, 2 * _TEXT), Value(0, grown, "string")
    if name == "split":
        return _scaled(size, 2 * _TEXT), Value(0, size, "list", None, Value(0, None, "string"))
    if name == "join":
        separators = first * max(0, size - 1)
        joined = _capped(size * _element_of(target).largest + separators)
        return _scaled(joined, _TEXT), Value(0, joined, "string")
    if name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"):
        if target.kind == "string":
            return _scaled(size, _TEXT), Value(0, None, "int")
        item = _element_of(target)
        each = 1 + (_scaled(item.largest, _TEXT) if item.kind in ("string", "bytes") else 0)
        return _capped(size * each), Value(0, None, item.kind)
    return (1, Value(0, None, "dyn")) if name in _FIXED else None

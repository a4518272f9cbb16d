"""Whether an applied configuration fits its type; the words are those of the real server."""

from __future__ import annotations

from typing import Any

from regional.kube.schema.typed import address_text, as_json, item_address
from regional.kube.schema.types import ANY, MAP, SCALAR, UNTYPED, Type


class TypeMismatch(Exception):
    """The applied configuration does not fit its type; the text says where and why."""


def check(value: Any, node: Type, path: str = "") -> None:
    """Raise TypeMismatch at the first undeclared field, wrong type or duplicate list item."""
    if value is None or node.shape == ANY:
        return
    if node.shape == SCALAR:
        _check_scalar(value, node, path)
    elif node.shape == MAP:
        if not isinstance(value, dict):
            raise TypeMismatch(f"{path}: expected map, got &{{{_go_plain(value)}}}")
        fields, element = node.fields, node.element
        for name, item in value.items():
            child = fields.get(name, element)
            if child is None:
                raise TypeMismatch(f"{path}.{name}: field not declared in schema")
            if child.scalar == "string" and type(item) is str:  # most values are
                continue
            check(item, child, f"{path}.{name}")
    elif not isinstance(value, list):
        raise TypeMismatch(f"{path}: expected list, got &{{{_go_plain(value)}}}")
    else:
        _check_items(value, node, path)


_NUMERIC = "numeric (int or float)"
_SCALAR_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "string"),
    "bytes": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "integer": ((int, float), _NUMERIC),
    "number": ((int, float), _NUMERIC),
}


def _check_scalar(value: Any, node: Type, path: str) -> None:
    expected = _SCALAR_TYPES.get(node.scalar)
    if expected is None:
        if isinstance(value, (dict, list)):
            raise TypeMismatch(f"{path}: expected scalar, got {_go_value(value)}")
        return
    types, text = expected
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        found = _go_type(value) if text == _NUMERIC else _go_value(value)
        raise TypeMismatch(f"{path}: expected {text}, got {found}")


def _check_items(items: list[Any], node: Type, path: str) -> None:
    element = node.element or UNTYPED
    seen: set[str] = set()
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        if not node.atomic:
            address = item_address(node, item)
            if address is None:
                raise TypeMismatch(f"{path}: element {index}: {_unaddressed(node, item)}")
            where = path + address_text(address)
            if address in seen:
                raise TypeMismatch(f"{path}: duplicate entries for key {address_text(address)}")
            seen.add(address)
        check(item, element, where)


def _unaddressed(node: Type, item: Any) -> str:
    if not node.keys:
        found = "an explicit null" if item is None else "a map type" if isinstance(item, dict) else "not a scalar"
        return f"associative list without keys has an element that's {found}"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    keys = " ".join(as_json(key) for key in node.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{keys}] "
        "(and doesn't have default values for any key fields)"
    )


def _go_type(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return "bool" if isinstance(value, bool) else "string"
    return "[]interface {}" if isinstance(value, list) else "map[string]interface {}"


def _go_value(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{_go_syntax(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value in Go's source syntax, which is how the real server prints the misplaced one."""
    if isinstance(value, dict):
        inside = ", ".join(f"{as_json(key)}:{_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inside}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    return "interface {}(nil)" if value is None else as_json(value)


def _go_plain(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_plain, value)) + "]"
    return value if isinstance(value, str) else "<nil>" if value is None else as_json(value)

"""The two things a Go decoder settles while it reads and a JSON parser does not: nulls in lists, integers too large.

Bodies that can hold neither are recognised by a glance at their bytes, so the walk is rare.
"""

from __future__ import annotations

import re
from typing import Any

from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import bad_request
from regional.kube.schema.types import LIST, MAP, SCALAR, Schema, Type

_SUSPECT = re.compile(rb"null|[0-9]{10}|[eE][+]?[0-9]")
_ZEROS: dict[str, Any] = {"string": "", "boolean": False, "integer": 0, "number": 0, "bytes": ""}


def make_sound(obj: Obj, schema: Schema, body: bytes) -> None:
    """In place: a null item becomes its type's zero value. Raises 400 for an integer that no int64 (or int32) holds."""
    if _SUSPECT.search(body):
        _walk(obj, schema.root, "", custom=schema.structural is not None)


def _walk(value: Any, node: Type, path: str, *, custom: bool) -> None:
    """Custom kinds are untyped in Go, but for their metadata."""
    if node.shape == SCALAR:
        _check_integer(value, node, path)
    elif node.shape == LIST and isinstance(value, list) and node.element is not None:
        for index, item in enumerate(value):
            if item is None:
                value[index] = _zero(node.element)
            else:
                _walk(item, node.element, path, custom=custom)
    elif node.shape == MAP and isinstance(value, dict):
        for name, item in value.items():
            if custom and not path and name != "metadata":
                continue
            child = node.child(name)
            if child is None:
                continue
            if item is None and name not in node.fields:
                value[name] = _zero(child)
            elif item is not None:
                _walk(item, child, f"{path}.{name}", custom=custom)


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

"""What strict decoding objects to, besides unknown fields: keys given twice, and values of the wrong JSON type.

A JSON parser that builds dicts hides a duplicate key, so the body is parsed once more when a client asks for strictness
(or warnings); bodies without duplicates cost one pass of the C parser.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.types import ANY, MAP, SCALAR, UNTYPED, Schema, Type

_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64"}


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of the keys a JSON body gives more than once, e.g. `data.a`."""
    doubled: list[dict[str, Any]] = []

    def watch(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            doubled.append(found)
            found["\0duplicates"] = _repeated([key for key, _ in pairs])
        return found

    try:
        parsed = json.loads(body, object_pairs_hook=watch)
    except (ValueError, RecursionError):
        return []
    if not doubled:
        return []
    paths: list[str] = []
    _collect(parsed, "", paths)
    return paths


def _repeated(keys: list[str]) -> list[str]:
    seen: set[str] = set()
    again: dict[str, None] = {}
    for key in keys:
        if key in seen:
            again[key] = None
        seen.add(key)
    return list(again)


def _collect(value: Any, path: str, paths: list[str]) -> None:
    if isinstance(value, dict):
        paths.extend(f"{path}.{key}".removeprefix(".") for key in value.get("\0duplicates") or ())
        for key, item in value.items():
            if key != "\0duplicates":
                _collect(item, f"{path}.{key}", paths)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", paths)


def type_error(obj: Obj, schema: Schema) -> str | None:
    """Why the body does not decode into a built-in kind, in the decoder's words; None if it does."""
    return _mismatch(obj, schema.root, schema.root.name, "")


def _mismatch(value: Any, node: Type, struct: str, path: str) -> str | None:
    """`struct` is the innermost named type, `path` the fields down to the value; messages show both."""
    if value is None or node.shape == ANY:
        return None
    if node.shape == SCALAR:
        return _scalar_mismatch(value, node, struct, path)
    if node.shape == MAP:
        if not isinstance(value, dict):
            return _cannot(value, node, struct, path)
        inside = node.name or struct
        for name, item in value.items():
            child = node.child(name)
            if child is not None:
                # Map entries have no step of their own in the decoder's path.
                below = f"{path}.{name}" if name in node.fields else path
                problem = _mismatch(item, child, inside, below)
                if problem is not None:
                    return problem
        return None
    if not isinstance(value, list):
        return _cannot(value, node, struct, path)
    element = node.element or UNTYPED
    for item in value:
        problem = _mismatch(item, element, struct, path)
        if problem is not None:
            return problem
    return None


def _scalar_mismatch(value: Any, node: Type, struct: str, path: str) -> str | None:
    kind = node.scalar
    if kind == "bytes" and isinstance(value, str):
        return _base64_problem(value)
    if kind in ("string", "bytes"):
        return None if isinstance(value, str) else _cannot(value, node, struct, path)
    if kind == "boolean":
        return None if isinstance(value, bool) else _cannot(value, node, struct, path)
    if kind == "integer":
        whole = isinstance(value, int) and not isinstance(value, bool)
        return None if whole else _cannot(value, node, struct, path)
    if kind == "number":
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if numeric else _cannot(value, node, struct, path)
    if isinstance(value, (dict, list, bool)):
        return _cannot(value, node, struct, path)
    if kind == "quantity" and not _QUANTITY.match(str(value)):
        return f"quantities must match the regular expression '{_QUANTITY.pattern}'"
    return None


def _base64_problem(value: str) -> str | None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        stripped = value.replace("\n", "").replace("\r", "")
        if stripped != value:
            return _base64_problem(stripped)
        good = re.match(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", value)
        block = good.end() if good else 0
        odd = next((i for i in range(block, len(value)) if not re.match(r"[A-Za-z0-9+/]", value[i])), block)
        return f"illegal base64 data at input byte {odd}"
    return None


def _cannot(value: Any, node: Type, struct: str, path: str) -> str:
    found = _json_kind(value)
    if found == "number" and isinstance(value, float):
        found = f"number {value}"
    return f"json: cannot unmarshal {found} into Go struct field {struct}{path} of type {_go_type(node)}"


def _json_kind(value: Any) -> str:
    for kind, name in ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "null"


def _go_type(node: Type) -> str:
    if node.shape == SCALAR:
        return node.format if node.scalar == "integer" and node.format else _GO_TYPES.get(node.scalar, "string")
    if node.shape == MAP:
        return f"v1.{node.name}" if node.name else f"map[string]{_go_type(node.element or UNTYPED)}"
    if node.shape == ANY:
        return "interface {}"
    return f"[]{_go_type(node.element or UNTYPED)}"

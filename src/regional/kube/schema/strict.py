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

import msgspec

from regional.kube.objects import Obj
from regional.kube.schema.times import time_problem
from regional.kube.schema.types import ANY, MAP, SCALAR, UNTYPED, Schema, Type

_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_INT32, _INT64 = 1 << 31, 1 << 63
_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64", "int-or-string": "int32"}


def duplicate_fields(body: bytes, parsed: Any = None) -> list[str]:
    """Paths of the keys a JSON body gives more than once, e.g. `data.a`.

    `parsed` is what a parser made of it: if it reads just like the body when it is written again, nothing was lost.
    """
    if parsed is not None and msgspec.json.encode(parsed) == body.rstrip():
        return []
    doubled: list[dict[str, Any]] = []

    def watch(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            doubled.append(found)
            found["\0duplicates"] = _repeated([key for key, _ in pairs])
        return found

    try:
        again = json.loads(body, object_pairs_hook=watch)
    except (ValueError, RecursionError):
        return []
    if not doubled:
        return []
    paths: list[str] = []
    _collect(again, "", paths)
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


def metadata_error(obj: Obj, schema: Schema) -> str | None:
    """The same for the metadata alone, of an object whose kind is custom."""
    node, metadata = schema.root.fields["metadata"], obj.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        return f"json: cannot unmarshal {json_kind(metadata)} into Go value of type v1.ObjectMeta"
    return _mismatch(metadata, node, node.name, "")


def _mismatch(value: Any, node: Type, struct: str, path: str) -> str | None:
    """`struct` is the innermost named type, `path` the fields down to the value; messages show both."""
    if value is None or node.shape == ANY:
        return None
    if node.shape == SCALAR:
        return _scalar_mismatch(value, node, struct, path)
    if node.shape == MAP:
        if not isinstance(value, dict):
            return _cannot(value, node, struct, path)
        inside, fields, element = node.name or struct, node.fields, node.element
        for name, item in value.items():
            child = fields.get(name, element)
            if child is not None:
                if child.scalar == "string" and type(item) is str and not child.format:  # most values are
                    continue
                # Map entries have no step of their own in the decoder's path.
                below = f"{path}.{name}" if name in fields else path
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
        if not isinstance(value, str):
            return _cannot(value, node, struct, path)
        return time_problem(value, micro=node.name == "MicroTime") if node.format == "date-time" else None
    if kind == "boolean":
        return None if isinstance(value, bool) else _cannot(value, node, struct, path)
    if kind == "integer":
        if not isinstance(value, int) or isinstance(value, bool):
            return _cannot(value, node, struct, path)
        limit = _INT32 if node.format == "int32" else _INT64
        return None if -limit <= value < limit else _cannot(value, node, struct, path, number=str(value))
    if kind == "number":
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if numeric else _cannot(value, node, struct, path)
    whole = kind == "int-or-string"
    if isinstance(value, (dict, list, bool)) or (whole and isinstance(value, float)):
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


def _cannot(value: Any, node: Type, struct: str, path: str, *, number: str = "") -> str:
    found = json_kind(value)
    if number or (
        found == "number" and isinstance(value, float) and node.scalar in ("integer", "number", "int-or-string")
    ):
        found = f"number {number or value}"
    return f"json: cannot unmarshal {found} into Go struct field {struct}{path} of type {_go_type(node)}"


def json_kind(value: Any) -> str:
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

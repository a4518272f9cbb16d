"""The three patch formats that say what to change, each as a function from a document to a new document.

(The fourth, apply, says what should be: see `apply`.) None of them changes its input. A refusal is a `PatchError`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.kube.schema.errors import PatchError
from regional.kube.schema.strategic import strategic_patch
from regional.kube.schema.strict import json_kind
from regional.kube.schema.typed import clone

__all__ = ["json_patch", "merge_patch", "strategic_patch"]

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""What all copies of one patch may add up to: each can double the document, and sixty of them are a short patch."""
_REFUSED = "the server rejected our request due to an error in our request"
_APPEND = "-"
_NUMBER = re.compile(r"[+-]?[0-9]+")


# --- RFC 6902 ------------------------------------------------------------------------------------------------------


def json_patch(doc: Any, operations: Any) -> Any:
    """Apply a list of operations, all or nothing."""
    if operations is None:
        return clone(doc)
    if not isinstance(operations, list):
        raise _undecodable(operations, "[]handlers.jsonPatchOp")
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise PatchError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    for operation in operations:
        if not isinstance(operation, dict):
            raise _undecodable(operation, "handlers.jsonPatchOp")
    result = clone(doc)
    copied = 0
    for operation in operations:
        if operation.get("op") == "copy":
            copied += _size(_find(result, _pointer(operation.get("from"))))
            if copied > MAX_COPIED_BYTES:
                raise _refused()
        result = _operate(result, operation)
    return result


def _undecodable(value: Any, wanted: str) -> PatchError:
    found = json_kind(value)
    message = f"error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    return PatchError(400, "BadRequest", message)


def _size(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        raise _refused() from None


def _refused() -> PatchError:
    return PatchError(422, "Invalid", _REFUSED)


def _operate(doc: Any, operation: Obj) -> Any:
    name = operation.get("op")
    path = _pointer(operation.get("path"))
    if name in ("add", "replace", "test"):
        value = operation.get("value")  # none is null, as for the real server
        if name == "add":
            return _add(doc, path, clone(value))
        if name == "replace":
            return _replace(doc, path, clone(value))
        return _test(doc, path, value)
    if name == "remove":
        return _remove(doc, path)[0]
    if name in ("move", "copy"):
        source = _pointer(operation.get("from"))
        if name == "copy":
            return _add(doc, path, clone(_find(doc, source)))
        if path[: len(source)] == source and len(path) > len(source):
            raise _refused()
        rest, value = _remove(doc, source)
        return _add(rest, path, value)
    raise _refused()


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise _refused()
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _find(doc: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(doc, dict) and step in doc:
            doc = doc[step]
        elif isinstance(doc, list):
            doc = doc[_index(step, len(doc) - 1)]
        else:
            raise _refused()
    return doc


def _index(step: str, highest: int) -> int:
    """Negative ones count from the end."""
    if not _NUMBER.fullmatch(step) or len(step) > 18:
        raise _refused()
    index = int(step) + (highest + 1 if step.startswith("-") else 0)
    if not 0 <= index <= highest:
        raise _refused()
    return index


def _add(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        raise _refused()
    parent, last = _find(doc, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == _APPEND else _index(last, len(parent)), value)
    else:
        raise _refused()
    return doc


def _replace(doc: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _find(doc, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent[_index(last, len(parent) - 1)] = value
    elif isinstance(parent, dict):
        parent[last] = value  # whether it was there or not: the real server does not ask
    else:
        raise _refused()
    return doc


def _remove(doc: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        raise _refused()
    value = _find(doc, path)
    parent, last = _find(doc, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(last, len(parent) - 1)]
    else:
        del parent[last]
    return doc, value


def _test(doc: Any, path: list[str], expected: Any) -> Any:
    try:
        found = _find(doc, path)
    except PatchError:
        # A test for null also holds for an absent value.
        if expected is None:
            return doc
        raise
    if not _same(found, expected):
        raise _refused()
    return doc


def _same(left: Any, right: Any) -> bool:
    """JSON equality: 1 is 1.0, but true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


# --- RFC 7386 ------------------------------------------------------------------------------------------------------


def merge_patch(doc: Any, patch: Any) -> Any:
    """Objects merge, null deletes, everything else replaces."""
    return _merge(clone(doc), patch)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return clone(patch)
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = _merge(target.get(key), value)
    return target

"""YAML bodies, read the way the real server reads them: one document, plain JSON values, YAML 1.1 scalars.

The parser's events are put together here, iteratively: no depth of nesting can exhaust the stack, unknown tags cannot
make anything, and aliases are counted, because nine lines of them can stand for a billion values.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

import yaml

MAX_DEPTH = 1_000
_ALIASES_ALWAYS, _VALUES_ALWAYS = 100, 1_000
_MANY, _MOST = 400_000, 4_000_000
_TAG = "tag:yaml.org,2002:"

_NULLS = {"", "~", "null", "Null", "NULL"}
_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")


class YamlProblem(ValueError):
    """Why a body is no YAML that the server takes."""


class _Frame:
    """A container being filled; `key` is the pending key of a mapping."""

    __slots__ = ("anchor", "key", "keyed", "size", "value")

    def __init__(self, value: Any, anchor: str | None) -> None:
        self.value, self.anchor, self.size = value, anchor, 1
        self.key: str = ""
        self.keyed = False


def read(body: bytes) -> Any:
    """The first document's value; None if there is none. Raises YamlProblem."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(body)
    try:
        return _Builder(loader).run()
    except yaml.YAMLError as error:
        raise YamlProblem(_in_go_words(error)) from None
    except (ValueError, OverflowError) as error:
        raise YamlProblem(str(error)) from None
    finally:
        loader.dispose()


def _in_go_words(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    # The real parser counts the lines before the problem, and names none if there are none.
    line = f"line {mark.line}: " if mark is not None and mark.line else ""
    return f"yaml: {line}{problem}"


class _Builder:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = self._aliased = 0
        self._root: Any = None

    def run(self) -> Any:
        while True:
            event = self._loader.get_event()
            if isinstance(event, (yaml.DocumentEndEvent, yaml.StreamEndEvent)):
                return self._root
            if isinstance(event, yaml.AliasEvent):
                self._alias(str(event.anchor))
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                frame = self._stack.pop()
                if frame.anchor:
                    self._anchors[frame.anchor] = (frame.value, frame.size)
                self._place(frame.value, frame.size)

    def _open(self, value: Any, event: Any) -> None:
        if self._stack and isinstance(self._stack[-1].value, dict) and not self._stack[-1].keyed:
            shown = "map[interface {}]interface {}{}" if isinstance(value, dict) else "[]interface {}{}"
            raise ValueError(f"yaml: invalid map key: {shown}")
        if len(self._stack) >= MAX_DEPTH:
            raise ValueError("yaml: exceeded max depth of 10000")
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        self._stack.append(_Frame(value, event.anchor))

    def _alias(self, name: str) -> None:
        if any(frame.anchor == name for frame in self._stack):
            raise ValueError(f"yaml: anchor '{name}' value contains itself")
        if name not in self._anchors:
            raise ValueError(f"yaml: unknown anchor '{name}' referenced")
        value, size = self._anchors[name]
        self._aliased += size
        self._place(value, size)

    def _scalar(self, event: Any) -> None:
        value = _scalar_value(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._place(value, 1)

    def _place(self, value: Any, size: int) -> None:
        self._count(size)
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        frame.size += size
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif not frame.keyed:
            frame.key, frame.keyed = _key(value), True
        else:
            frame.keyed = False
            if frame.key == "<<" and isinstance(value, (dict, list)):
                _merge(frame.value, value)
            else:
                frame.value[frame.key] = value

    def _count(self, size: int) -> None:
        """The share of a document that may come from aliases falls as it grows."""
        self._values += size
        if self._aliased <= _ALIASES_ALWAYS or self._values <= _VALUES_ALWAYS:
            return
        grown = min(1.0, max(0.0, (self._values - _MANY) / (_MOST - _MANY)))
        if self._aliased / self._values > 0.99 - 0.89 * grown:
            raise ValueError("yaml: document contains excessive aliasing")


def _merge(into: dict[str, Any], value: Any) -> None:
    for source in value if isinstance(value, list) else [value]:
        if isinstance(source, dict):
            for key, item in source.items():
                into.setdefault(key, item)


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ValueError('unsupported map key of type: %!s(<nil>), key: <nil>, value: ""')


def _scalar_value(event: Any) -> Any:
    text, tag = event.value, event.tag or ""
    plain = event.implicit[0] if isinstance(event.implicit, tuple) else bool(event.implicit)
    if tag == f"{_TAG}binary":
        try:
            return base64.b64decode(text).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            raise ValueError("yaml: !!binary value contains invalid base64 data") from None
    if not plain or tag in (f"{_TAG}str", "!") or event.style in ("'", '"', "|", ">"):
        return text
    return _plain_value(text)


def _plain_value(text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    if _SPECIAL.match(text):
        number = float(text.lower().replace(".", ""))
        raise ValueError(f"json: unsupported value: {'NaN' if math.isnan(number) else f'{number:+}'.title()}")
    if _INTEGER.match(text) and len(text) < 400:
        return _integer(text)
    return float(text) if _FLOAT.match(text) else text


def _integer(text: str) -> int | str:
    digits, sign = text.replace("_", "").lstrip("+-"), -1 if text[0] == "-" else 1
    for prefix, base in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    octal = len(digits) > 1 and digits[0] == "0"
    return sign * int(digits, 8 if octal else 10)

"""What Go's JSON decoder says about a body that ours refuses, and the bodies that it takes though ours does not.

All of it runs only after the quick parser has given up: clients compare the texts, and a few odd bodies (bytes that are
no UTF-8, numbers beyond any float, nesting by the thousand) are not errors to the real server, or others.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 10_000
KEPT_DEPTH = 200
"""What is nested deeper than any built-in type is cut off: its first level already decides what is said about it."""
EXACT_BYTES = 256 * 1024
"""Longer bodies are not read a second time, byte by byte, for the sake of an exact text."""
_SUMMARY = 30
_STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING_RUN = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER_PARTS = re.compile(rb"-?(?:0|[1-9][0-9]*)?")
_DIGITS = re.compile(rb"[0-9]*")
_HEX = frozenset(bytes((digit,)) for digit in b"0123456789abcdefABCDEF")
_LITERALS = {b"t": b"true", b"f": b"false", b"n": b"null"}


class Numeral(float):
    """A number with the text it was written as, for messages about it."""

    text: str

    def __new__(cls, text: str) -> Numeral:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class Shallow(dict[str, Any]):
    """An object whose deepest parts were cut off: good for saying what is wrong with it, not for storing it."""


def depth(value: Any) -> int:
    """How deeply it is nested."""
    level, here = 0, [value]
    while here:
        level += 1
        below: list[Any] = []
        for item in here:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        here = below
    return level - 1


def summary(body: bytes) -> str:
    """The beginning of a body as error messages show it: JSON as it is, anything else in hexadecimal."""
    if not body:
        return "<empty>"
    head = body[:_SUMMARY]
    shown = head.decode("utf-8", "replace") if body[:1] == b"{" else head.hex()
    return f"{shown} ..." if len(body) > _SUMMARY else shown


def wrong_shape(value: Any) -> str:
    """What is said about a body that is JSON, but no object."""
    kinds = ((bool, "bool"), ((int, float), "number"), (str, "string"), (list, "array"))
    found = next(name for kind, name in kinds if isinstance(value, kind))
    return f"json: cannot unmarshal {found} into Go value of type {_STRUCT}"


def lenient(body: bytes) -> Any:
    """The value of a body without syntax errors, as Go reads it. Raises ValueError with its text if there is one."""
    problem = syntax_problem(body)
    if problem is not None:
        raise ValueError(problem)
    cut = shallow(body)
    value = json.loads(cut.decode("utf-8", "replace"), parse_float=Numeral, parse_int=_whole)
    value = _without_surrogates(value)
    if cut is body:
        return value
    if not isinstance(value, dict):
        raise ValueError("exceeded max depth")
    return Shallow(value)


def _whole(text: str) -> int | Numeral:
    return int(text) if len(text) < 400 else Numeral(text)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


_DEPTH_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def shallow(body: bytes, kept: int = KEPT_DEPTH) -> bytes:
    """The same JSON with everything below `kept` levels cut out; its containers stay, empty."""
    depth, start, pieces = 0, 0, []
    for token in _DEPTH_TOKENS.finditer(body):
        first = token.group()[:1]
        if first in b"[{":
            depth += 1
            if depth == kept + 1:
                pieces.append(body[start : token.end()])
        elif first in b"]}":
            if depth == kept + 1:
                start = token.start()
            depth -= 1
    return b"".join([*pieces, body[start:]]) if pieces else body


# --- syntax --------------------------------------------------------------------------------------------------------


class _Bad(Exception):
    pass


def _quoted(byte: int) -> str:
    """One byte as Go prints it: as the character of that number, control characters escaped."""
    if byte == 0x27:
        return "'\\''"
    escapes = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 0x5C: "\\\\"}
    if byte in escapes:
        return f"'{escapes[byte]}'"
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'"
    if 0x80 <= byte < 0xA1 or byte == 0xAD:
        return f"'\\u{byte:04x}'"
    return f"'{chr(byte)}'"


def syntax_problem(body: bytes) -> str | None:
    """The first syntax error in Go's words; None if there is none."""
    if len(body) > EXACT_BYTES:
        return _rough_problem(body)
    try:
        _scan(body)
    except _Bad as problem:
        return str(problem)
    return None


def _rough_problem(body: bytes) -> str | None:
    try:
        json.loads(body.decode("utf-8", "replace"), parse_int=str, parse_float=str)
    except json.JSONDecodeError as problem:
        at = len(problem.doc[: problem.pos].encode())
        return str(_fail(body, at, "looking for beginning of value"))
    except RecursionError:
        return "exceeded max depth"
    return None


def _fail(body: bytes, at: int, where: str) -> _Bad:
    if at >= len(body):
        return _Bad("unexpected end of JSON input")
    return _Bad(f"invalid character {_quoted(body[at])} {where}")


def _scan(body: bytes) -> None:
    stack: list[int] = []  # the opening bracket of each container around
    at = _space(body, 0)
    expect_value = True
    while True:
        if expect_value:
            at, opened = _value(body, at, stack)
            if opened:
                at, expect_value = _first_inside(body, at, stack)
                continue
        at = _space(body, at)
        if not stack:
            if at < len(body):
                raise _fail(body, at, "after top-level value")
            return
        at, expect_value = _after_value(body, at, stack)


def _space(body: bytes, at: int) -> int:
    found = _SPACE.match(body, at)
    return found.end() if found else at


def _value(body: bytes, at: int, stack: list[int]) -> tuple[int, bool]:
    """One scalar, or the opening of a container."""
    first = body[at : at + 1]
    if first in (b"{", b"["):
        stack.append(first[0])
        if len(stack) > MAX_DEPTH:
            raise _fail(body, at, "exceeded max depth")
        return at + 1, True
    if first == b'"':
        return _string(body, at + 1), False
    if first in _LITERALS:
        return _literal(body, at, _LITERALS[first]), False
    if first and (first == b"-" or first.isdigit()):
        return _number(body, at), False
    raise _fail(body, at, "looking for beginning of value")


def _first_inside(body: bytes, at: int, stack: list[int]) -> tuple[int, bool]:
    at = _space(body, at)
    if stack[-1] == 0x7B:
        if body[at : at + 1] == b"}":
            stack.pop()
            return at + 1, False
        return _key(body, at), True
    if body[at : at + 1] == b"]":
        stack.pop()
        return at + 1, False
    return at, True


def _after_value(body: bytes, at: int, stack: list[int]) -> tuple[int, bool]:
    byte, inside_object = body[at : at + 1], stack[-1] == 0x7B
    if byte == b",":
        at = _space(body, at + 1)
        return (_key(body, at) if inside_object else at), True
    if byte == (b"}" if inside_object else b"]"):
        stack.pop()
        return at + 1, False
    raise _fail(body, at, "after object key:value pair" if inside_object else "after array element")


def _key(body: bytes, at: int) -> int:
    if body[at : at + 1] != b'"':
        raise _fail(body, at, "looking for beginning of object key string")
    at = _space(body, _string(body, at + 1))
    if body[at : at + 1] != b":":
        raise _fail(body, at, "after object key")
    return _space(body, at + 1)


def _string(body: bytes, at: int) -> int:
    while True:
        run = _STRING_RUN.match(body, at)
        at = run.end() if run else at
        byte = body[at : at + 1]
        if byte == b'"':
            return at + 1
        if byte != b"\\":
            raise _fail(body, at, "in string literal")
        escape = body[at + 1 : at + 2]
        if escape == b"u":
            for place in range(at + 2, at + 6):
                if body[place : place + 1] not in _HEX:
                    raise _fail(body, place, "in \\u hexadecimal character escape")
            at += 6
        elif escape and escape in b'"\\/bfnrt':
            at += 2
        else:
            raise _fail(body, at + 1, "in string escape code")


def _literal(body: bytes, at: int, word: bytes) -> int:
    for place in range(1, len(word)):
        if body[at + place : at + place + 1] != word[place : place + 1]:
            wanted = f"in literal {word.decode()} (expecting '{chr(word[place])}')"
            raise _fail(body, at + place, wanted)
    return at + len(word)


def _digits(body: bytes, at: int) -> int:
    found = _DIGITS.match(body, at)
    return found.end() if found else at


def _number(body: bytes, at: int) -> int:
    found = _NUMBER_PARTS.match(body, at)
    end = found.end() if found else at
    if body[at:end] == b"-":
        raise _fail(body, end, "in numeric literal")
    at = end
    if body[at : at + 1] == b".":
        end = _digits(body, at + 1)
        if end == at + 1:
            raise _fail(body, end, "after decimal point in numeric literal")
        at = end
    if body[at : at + 1] in (b"e", b"E"):
        at += 2 if body[at + 1 : at + 2] in (b"+", b"-") else 1
        end = _digits(body, at)
        if end == at:
            raise _fail(body, end, "in exponent of numeric literal")
        at = end
    return at

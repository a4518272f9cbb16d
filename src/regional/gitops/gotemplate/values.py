"""Values as Go's templates see them: the difference between absent, nil and empty, and how each is printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


class TemplateError(Exception):
    pass


class StringMap(dict[str, str]):
    """Go's map[string]string. Functions typed for map[string]any refuse it, and its zero value is "" and not nil."""


class _Missing:
    """Go's invalid reflect.Value: what a missing map key evaluates to."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Any = _Missing()


def truth(value: Any) -> bool:
    return bool(value) and value is not MISSING


def type_name(value: Any) -> str:
    if value is None or value is MISSING:
        return "<nil>"
    if isinstance(value, StringMap):
        return "map[string]string"
    for kind, name in (
        (bool, "bool"),
        (int, "int"),
        (float, "float64"),
        (str, "string"),
        (dict, "map[string]interface {}"),
    ):
        if isinstance(value, kind):
            return name
    return "[]interface {}"


def text(value: Any, *, top: bool = True) -> str:
    """What fmt.Print makes of it; a nil at the top is the template engine's own `<no value>`."""
    if value is None or value is MISSING:
        return "<no value>" if top else "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, dict):
        inner = " ".join(f"{text(key, top=False)}:{text(value[key], top=False)}" for key in sorted(value))
        return f"map[{inner}]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(text(item, top=False) for item in value) + "]"
    return str(value)


def go_float(value: float) -> str:
    """%v of a float64: the shortest form, with an exponent below 1e-4 and from 1e21 on."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-4 <= abs(value) < 1e21:
        if value == int(value):
            return str(int(value))
        return f"{value:.17g}" if "e" in repr(value) else repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
    number = int(exponent)
    return f"{mantissa.removesuffix('.0')}e{'-' if number < 0 else '+'}{abs(number):02d}"


def quote(value: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return (
        '"' + "".join(escapes.get(char, char if char.isprintable() else f"\\x{ord(char):02x}") for char in value) + '"'
    )


_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d+)?(?:\.(?P<precision>\d+))?(?P<verb>[a-zA-Z%])")


def sprintf(pattern: str, arguments: Sequence[Any]) -> str:
    rest = list(arguments)

    def one(match: re.Match[str]) -> str:
        verb = match["verb"]
        if verb == "%":
            return "%"
        if not rest:
            return f"%!{verb}(MISSING)"
        return _verb(verb, match["flags"], match["width"], match["precision"], rest.pop(0))

    result = _VERB.sub(one, pattern)
    if rest:
        result += "%!(EXTRA " + ", ".join(f"{type_name(item)}={text(item, top=False)}" for item in rest) + ")"
    return result


def _verb(verb: str, flags: str, width: str | None, precision: str | None, value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    body: str | None = None
    if verb == "v" or (verb == "s" and isinstance(value, str | list | dict)):
        body = text(value, top=False)
        if precision is not None and verb == "s":
            body = body[: int(precision)]
    elif verb == "q" and isinstance(value, str):
        body = quote(value)
    elif verb == "t" and isinstance(value, bool):
        body = text(value)
    elif verb in "dxXob" and isinstance(value, int) and number:
        body = format(value, verb)
    elif verb in "xX" and isinstance(value, str):
        body = value.encode().hex() if verb == "x" else value.encode().hex().upper()
    elif verb in "fFeEgG" and isinstance(value, float):
        body = format(value, f".{precision or 6}{verb}")
    if body is None:
        return f"%!{verb}({type_name(value)}={text(value, top=False)})"
    if "+" in flags and number and not body.startswith("-"):
        body = "+" + body
    if width is None:
        return body
    if "-" in flags:
        return body.ljust(int(width))
    return body.zfill(int(width)) if "0" in flags and number else body.rjust(int(width))

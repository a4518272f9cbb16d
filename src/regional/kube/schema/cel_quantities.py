"""Quantities and semantic versions in CEL. Both are plain strings here; two dots tell a version from a quantity."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from typing import Any

from cel_expr_python import cel

from regional.kube.schema.cel_declaring import function, method, overloads, succeeds
from regional.kube.schema.quantity import canonical, parse_quantity

_T = cel.Type
_NUMBER = r"(?:0|[1-9]\d*)"
_LABEL = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_LABEL}(?:\.{_LABEL})*))?(?:\+{_BUILD})?", re.ASCII)
_LARGEST = (1 << 63) - 1
Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


# --- quantities ----------------------------------------------------------------------------------------------------


def _quantity(text: str) -> str:
    try:
        return canonical(text)
    except ValueError:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _whole(text: str) -> int | None:
    value = parse_quantity(text)
    with localcontext() as context:
        context.prec = 100
        whole = value == value.to_integral_value() and abs(value) <= _LARGEST
    return int(value) if whole else None


def _integer(text: str) -> int:
    whole = _whole(text)
    if whole is None:
        raise ValueError("cannot convert value to integer")
    return whole


def _combined(left: str, right: Decimal) -> str:
    with localcontext() as context:
        context.prec = 100
        total = parse_quantity(left) + right
    text = f"{total:f}"
    return canonical(text) if "." not in text or len(text.partition(".")[2].rstrip("0")) <= 9 else text


# --- semantic versions ---------------------------------------------------------------------------------------------


def _semver(text: str) -> str:
    """Without its build metadata, which does not count in any comparison."""
    if _SEMVER.fullmatch(text) is None:
        parts = text.split(".", 2)
        if len(parts) < 3:
            raise ValueError("No Major.Minor.Patch elements found")
        raise ValueError(f'Invalid character(s) found in patch number "{parts[2]}"')
    return text.partition("+")[0]


def _normalized(text: str, lenient: bool) -> str:
    if not lenient:
        return _semver(text)
    core, mark, rest = text.removeprefix("v"), "", ""
    for each in ("-", "+"):
        if not mark and each in core:
            core, mark, rest = core.partition(each)
    parts = [part.lstrip("0") or "0" for part in core.split(".")]
    return _semver(".".join(parts + ["0"] * (3 - len(parts))) + mark + rest)


def _precedence(text: str) -> Precedence:
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor, patch, labels = found.groups()
    parts = tuple(
        (False, int(part), "") if part.isdigit() else (True, 0, part) for part in (labels.split(".") if labels else ())
    )
    return int(major), int(minor), int(patch), labels is None, parts


def _compare(left: str, right: str) -> int:
    if _SEMVER.fullmatch(left):
        one, two = _precedence(left), _precedence(right)
        return (one > two) - (one < two)
    a, b = parse_quantity(left), parse_quantity(right)
    return (a > b) - (a < b)


def declarations() -> list[Any]:
    text, number, yes = _T.STRING, _T.INT, _T.BOOL
    return [
        function("isQuantity", yes, [text], succeeds(parse_quantity)),
        function("quantity", text, [text], _quantity),
        overloads(
            "add",
            (text, [text, text], lambda a, b: _combined(a, parse_quantity(b)), True),
            (text, [text, number], lambda a, b: _combined(a, Decimal(b)), True),
        ),
        overloads(
            "sub",
            (text, [text, text], lambda a, b: _combined(a, -parse_quantity(b)), True),
            (text, [text, number], lambda a, b: _combined(a, Decimal(-b)), True),
        ),
        method("isGreaterThan", yes, [text, text], lambda a, b: _compare(a, b) > 0),
        method("isLessThan", yes, [text, text], lambda a, b: _compare(a, b) < 0),
        method("compareTo", number, [text, text], _compare),
        function("sign", number, [text], lambda value: _compare(value, "0")),
        method("isInteger", yes, [text], lambda value: _whole(value) is not None),
        method("asInteger", number, [text], _integer),
        method("asApproximateFloat", _T.DOUBLE, [text], lambda value: float(parse_quantity(value))),
        overloads(
            "isSemver",
            (yes, [text], succeeds(_semver), False),
            (yes, [text, yes], lambda value, lenient: succeeds(lambda it: _normalized(it, lenient))(value), False),
        ),
        overloads("semver", (text, [text], _semver, False), (text, [text, yes], _normalized, False)),
        method("major", number, [text], lambda value: _precedence(value)[0]),
        method("minor", number, [text], lambda value: _precedence(value)[1]),
        method("patch", number, [text], lambda value: _precedence(value)[2]),
    ]

"""Resource quantities (`100m`, `1.5Gi`): their value, and the form in which equal quantities are equal texts."""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext

_FORM = re.compile(r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))$")
_BINARY: dict[str, int] = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BY_POWER = {power: suffix for suffix, power in _DECIMAL.items()}


def parse_quantity(text: str) -> Decimal:
    """The exact value; ValueError if it is no quantity."""
    found = _FORM.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, exponent, suffix = found.groups()
    with localcontext() as context:
        context.prec = 60
        if exponent:
            return Decimal(number + exponent)
        if suffix in _BINARY:
            return Decimal(number) * Decimal(_BINARY[suffix])
        return Decimal(number).scaleb(_DECIMAL[suffix])


def canonical(text: str) -> str:
    """The shortest text with a whole number and a suffix of the kind that the original had: `1000m` → `1`."""
    value = parse_quantity(text)
    if value == 0:
        return "0"
    exponent = _FORM.match(text)[2]  # type: ignore[index]
    if text[-1] == "i" and abs(value) >= 1024:
        whole = math.ceil(value)
        factor, suffix = next(
            ((factor, suffix) for suffix, factor in reversed(_BINARY.items()) if whole % factor == 0), (1, "")
        )
        return f"{whole // factor}{suffix}"
    for power in sorted(_BY_POWER, reverse=True):
        with localcontext() as context:
            context.prec = 60
            scaled = value.scaleb(-power)
            if scaled == scaled.to_integral_value():
                suffix = (f"e{power}" if power else "") if exponent else _BY_POWER[power]
                return f"{int(scaled)}{suffix}"
    return text

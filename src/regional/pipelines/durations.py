"""Go's durations, as Tekton writes timeouts: `1h30m`, `90s`, `0` for none."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"^(\d+(\.\d+)?(h|m|s|ms))+$")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(text: str) -> float | None:
    """None for no limit (`0`). Raises ValueError for anything that is not a duration."""
    if text in ("0", "0s"):
        return None
    if not _WHOLE.match(text):
        raise ValueError(f"{text!r} is not a duration such as 1h30m")
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text))

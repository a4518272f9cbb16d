"""Times as a Go server reads them: RFC 3339, and what is wrong with a text that is none, in Go's words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

LAYOUT, MICRO_LAYOUT = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"

# The layout's parts in order: what each is called, and what it takes.
_PARTS = (
    ("2006", re.compile(r"\d{4}")),
    ("-", re.compile("-")),
    ("01", re.compile(r"\d\d")),
    ("-", re.compile("-")),
    ("02", re.compile(r"\d\d")),
    ("T", re.compile("T")),
    ("15", re.compile(r"\d\d?")),
    (":", re.compile(":")),
    ("04", re.compile(r"\d\d")),
    (":", re.compile(":")),
    ("05", re.compile(r"\d\d(?:[.,]\d+)?")),
    ("Z07:00", re.compile(r"Z|[+-]\d\d:\d\d")),
)
# A fraction that the layout names has just as many digits; one that it does not name may have any number, or be absent.
_MICRO_PARTS = (
    *_PARTS[:-2],
    ("05", re.compile(r"\d\d")),
    (".000000", re.compile(r"[.,]\d{6}")),
    _PARTS[-1],
)
_ONE_DIGIT_HOUR = re.compile(r"T(?=\d:)")
_MOST = {"01": (1, 12, "month"), "15": (0, 23, "hour"), "04": (0, 59, "minute"), "05": (0, 59, "second")}
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@lru_cache(maxsize=1024)
def time_problem(text: str, *, micro: bool = False) -> str | None:
    """Why the text is no time; None if it is one (or empty, which Go takes for none)."""
    if not text:
        return None
    layout, parts = (MICRO_LAYOUT, _MICRO_PARTS) if micro else (LAYOUT, _PARTS)
    lead = f'parsing time "{text}"'
    at, found = 0, {}
    for name, form in parts:
        match = form.match(text, at)
        if match is None:
            return f'{lead} as "{layout}": cannot parse "{text[at:]}" as "{name}"'
        found[name], at = match[0], match.end()
        low, high, what = _MOST.get(name, (0, 9999, ""))
        if what and not low <= int(re.split("[.,]", match[0])[0]) <= high:
            return f"{lead}: {what} out of range"
    if at < len(text):
        return f'{lead}: extra text: "{text[at:]}"'
    year, month, day = int(found["2006"]), int(found["01"]), int(found["02"])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= (28 if month == 2 and not leap else _DAYS[month - 1]):
        return f"{lead}: day out of range"
    return None


def in_utc(text: str, *, micro: bool = False) -> str:
    """A time as Go writes it: to the second, or the microsecond, in UTC. What is no time stays as it is, for others to
    refuse."""
    if not text or time_problem(text, micro=micro) is not None:
        return text
    padded = _ONE_DIGIT_HOUR.sub("T0", text).replace(",", ".")
    try:
        moment = datetime.fromisoformat(padded).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds") + "Z"

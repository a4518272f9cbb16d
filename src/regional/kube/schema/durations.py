"""Spans of time as kubectl prints them: `28s`, `4m34s`, `2d`."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 31536000


def human_duration(seconds: int) -> str:
    """Two units while the first is small, one after."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % _MINUTE, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 8 * 24:
        return _pair(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    years = seconds // _YEAR
    return _pair(years, "y", days % 365, "d") if days < 8 * 365 else f"{years}y"


def _pair(first: int, unit: str, second: int, second_unit: str) -> str:
    return f"{first}{unit}{second}{second_unit}" if second else f"{first}{unit}"


def parse_time(text: object) -> datetime | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def age(text: object, now: datetime) -> str:
    """How long ago a timestamp was."""
    moment = parse_time(text)
    return "<unknown>" if moment is None else human_duration(int((now - moment).total_seconds()))


def between(start: object, end: object) -> str | None:
    first, last = parse_time(start), parse_time(end)
    return None if first is None or last is None else human_duration(int((last - first).total_seconds()))

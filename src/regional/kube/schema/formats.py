"""The string formats a CRD may ask for. A format nobody knows is accepted, as the API does."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

_DATE_TIME = re.compile(
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"
)
_UNITS = "ns|us|µs|μs|ms|s|m|h|d|w|nanos?|micros?|millis?|secs?|mins?|hrs?|days?|weeks?|" + "|".join(
    f"{unit}s?" for unit in ("nanosecond", "microsecond", "millisecond", "second", "minute", "hour")
)
_DURATION = re.compile(rf"^[-+]?(\s*(\d+(\.\d*)?|\.\d+)\s*({_UNITS}))+\s*$|^[-+]?0$")
_HOST = re.compile(
    r"^(?=.{1,253}\.?$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?$"
)
_EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")
_MAC = re.compile(r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$")
_UUID = re.compile(r"^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$")


def matches_format(value: str, name: str) -> bool:
    check = _CHECKS.get(name)
    return check is None or check(value)


def _is_date_time(value: str) -> bool:
    return bool(_DATE_TIME.match(value)) and _is_date(value[:10])


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == 10


def _is_address(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return ipaddress.ip_address(value).version == version
        except ValueError:
            return False

    return check


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return "/" in value


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme) or value.startswith("/")


def _is_uuid_version(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        return bool(_UUID.match(value)) and uuid.UUID(value).version == version

    return check


_CHECKS: dict[str, Callable[[str], bool]] = {
    "byte": _is_base64,
    "cidr": _is_network,
    "date": _is_date,
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": lambda value: bool(_DURATION.match(value)),
    "email": lambda value: bool(_EMAIL.match(value)),
    "hostname": lambda value: bool(_HOST.match(value)),
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "mac": lambda value: bool(_MAC.match(value)),
    "uri": _is_uri,
    "uuid": lambda value: bool(_UUID.match(value)),
    "uuid3": _is_uuid_version(3),
    "uuid4": _is_uuid_version(4),
    "uuid5": _is_uuid_version(5),
}

"""Kubernetes quantities (`100m`, `64Mi`) as numbers, and what this machine has of them."""

from __future__ import annotations

import math
import os
from decimal import Decimal
from pathlib import Path

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


def parse(text: str) -> Decimal:
    """Raises ValueError or decimal.InvalidOperation for what is not a quantity."""
    number = text.rstrip("numkMGTPEi")
    suffix = text[len(number) :]
    if suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(number) * _SUFFIXES[suffix]


def divide_up(value: Decimal, divisor: Decimal) -> int:
    return math.ceil(value / divisor)


def go_duration(seconds: float) -> str:
    """As Go prints it: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{rest:g}s"


def machine_capacity() -> dict[str, str]:
    memory = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1])
    storage = os.statvfs("/")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory}Ki",
        "ephemeral-storage": f"{storage.f_blocks * storage.f_frsize // 1024}Ki",
    }

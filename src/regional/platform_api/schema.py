"""What is wrong with a body, in the two words that this API's errors have for it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from regional.core.schema import Schema, check

FAULTS = 50  # beyond that nobody reads on


class Fault(msgspec.Struct, frozen=True):
    field: str
    message: str


def faults_of(value: Any, schema: Schema, path: str = "") -> list[Fault]:
    return [Fault(found.field, found.message) for found in islice(check(value, schema, path), FAULTS)]


__all__ = ["FAULTS", "Fault", "Schema", "faults_of"]

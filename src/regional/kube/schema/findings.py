"""Short forms for field errors, so that rules read as rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from regional.kube.schema.errors import FieldError
from regional.kube.schema.openapi_validation import shown


class GoStruct(dict[str, Any]):
    """A value that is printed in this order: as Go prints a struct without names for JSON."""


def _printed(value: Any) -> str:
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, GoStruct):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return shown(value)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_printed(value)}: {detail}")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(shown(item) for item in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_printed(value)}: supported values: {choices}"
    )


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def too_long(field: str, most: int) -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def one_of(field: str, value: Any, supported: Iterable[str]) -> Iterator[FieldError]:
    """Nothing if the value is absent or supported. The choices are told in the order given: the API's own."""
    choices = tuple(supported)
    if value is not None and value not in choices:
        yield unsupported(field, value, choices)


def not_negative(field: str, value: Any) -> Iterator[FieldError]:
    if isinstance(value, int) and value < 0:
        yield invalid(field, value, "must be greater than or equal to 0")

"""The refusals that schema functions raise or return, in the words of the Kubernetes API.

`FieldError` is one finding about one field (a `causes` entry of a Status). `Refusal` is an exception that already
knows its HTTP status, reason, message and causes, so that the server turns every refusal into a Status in one place.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class FieldError(Struct, frozen=True):
    """One cause: `message` is the body without the field name, e.g. `Required value: is required`."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refusal(Exception):
    """Base of everything the schema functions raise on account of what a client sent."""

    def __init__(self, status: int, reason: str, message: str, causes: list[FieldError] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes or []

    def details(self) -> dict[str, Any]:
        """The `details.causes` part of a Status; empty when there are none."""
        if not self.causes:
            return {}
        return {"causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in self.causes]}


class PatchError(Refusal):
    """A patch that cannot be applied to the live object."""


class ApplyConflict(Refusal):
    """Server-side apply would take fields that other managers own."""

    def __init__(self, message: str, causes: list[FieldError]) -> None:
        super().__init__(409, "Conflict", message, causes)


class DecodeError(Refusal):
    """A request body that is not what its content type or kind promises."""

    def __init__(self, message: str, status: int = 400, reason: str = "BadRequest") -> None:
        super().__init__(status, reason, message)

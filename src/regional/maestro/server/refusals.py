"""What the server says no with: a catalogue of numbered codes in Maestro's dialect, the same at each of its doors."""

from __future__ import annotations

CATALOGUE: dict[int, tuple[int, str]] = {
    1: (403, "Forbidden to perform this action for unknown reasons"),
    4: (403, "Forbidden to perform this action"),
    6: (409, "An entity with the specified unique values already exists"),
    7: (404, "Resource not found"),
    8: (400, "General validation failure"),
    9: (500, "Unspecified error"),
    10: (405, "HTTP Method not implemented for this endpoint"),
    11: (403, "Account is unauthorized to perform this action"),
    15: (401, "Account authentication could not be verified"),
    17: (400, "Unable to read request body"),
    21: (400, "Bad request"),
    23: (400, "Failed to parse search query"),
    26: (500, "Database advisory lock error"),
}
FORBIDDEN, CONFLICT, NOT_FOUND, VALIDATION, MALFORMED = 4, 6, 7, 8, 17


class Refusal(Exception):
    """`status` is HTTP's; `code` is Maestro's own, which other doors speak too."""

    def __init__(self, code: int, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.status = status or CATALOGUE[code][0]

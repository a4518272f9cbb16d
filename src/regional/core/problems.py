"""Errors that speak. `UserError` is one clear line and a hint for a person; `Problem` is RFC 9457 for an API."""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """Something the user can mend. The CLI prints `error: <message>` and `hint: <hint>`, never a traceback."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class Problem(Exception):
    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        errors: list[dict[str, str]] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.errors = errors or []
        self.extra = extra

    def document(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": "about:blank", "status": self.status, "title": self.title}
        if self.detail:
            body["detail"] = self.detail
        if self.errors:
            body["errors"] = self.errors
        return body | self.extra

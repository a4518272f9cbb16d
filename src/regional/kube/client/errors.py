"""What a Kubernetes API says when it says no, as one exception whose text can be shown to a person."""

from __future__ import annotations

from typing import Any

import msgspec


class ApiError(Exception):
    """A Status answer. Clients decide by `reason` first, then by `status`, as client-go does."""

    def __init__(self, status: int, reason: str, message: str, body: dict[str, Any] | None = None) -> None:
        super().__init__(f"{message} ({status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.body: dict[str, Any] = body or {}

    @classmethod
    def from_answer(cls, status: int, content: bytes, what: str) -> ApiError:
        """`what` (method and path) names the request when the answer is no Status object."""
        body: dict[str, Any] = {}
        try:
            decoded = msgspec.json.decode(content) if content else {}
            body = decoded if isinstance(decoded, dict) else {}
        except msgspec.DecodeError:
            pass
        if body.get("kind") == "Status":
            return cls.from_status(body, status)
        text = content[:300].decode(errors="replace").strip() or "no body"
        return cls(status, "NotFound" if status == 404 else "Unknown", f"{what}: {text}", body)

    @classmethod
    def from_status(cls, body: dict[str, Any], status: int = 0) -> ApiError:
        code = int(body.get("code") or status)
        return cls(code, body.get("reason") or "Unknown", body.get("message") or f"status {code}", body)

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The object changed since it was read; read again and retry."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def gone(self) -> bool:
        """The resourceVersion or continue token is too old: list again."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def retry_after(self) -> float | None:
        seconds = (self.body.get("details") or {}).get("retryAfterSeconds")
        return float(seconds) if seconds else None


class ApiUnreachable(ApiError):
    """No answer came, so for a write nobody knows whether it happened."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)

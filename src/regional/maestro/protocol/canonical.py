"""JSON exactly as Go writes it, because hashes of statuses are compared across implementations."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="sorted")
# These characters occur inside strings only, so that replacing their bytes is replacing them in strings.
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
NO_STATUS = hashlib.sha256(b"").hexdigest()


def go_json(value: Any) -> bytes:
    """Compact, keys sorted at every level, with HTML's characters escaped."""
    text = _encoder.encode(value)
    for plain, escaped in _ESCAPES:
        if plain in text:
            text = text.replace(plain, escaped)
    return text


def status_hash(conditions: list[Any] | None, resource_status: list[Any] | None) -> str:
    manifests: dict[str, Any] = {"manifests": resource_status} if resource_status else {}
    return hashlib.sha256(go_json({"conditions": conditions, "resourceStatus": manifests})).hexdigest()

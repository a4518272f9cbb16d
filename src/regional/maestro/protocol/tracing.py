"""How one request is followed through Maestro: its id travels with the bundle, the message and the objects."""

from __future__ import annotations

from typing import Any

import msgspec

ANNOTATION = "regional.io/request-id"
_OPERATION = "logging.open-cluster-management.io/op-id"


def log_tracing(request_id: str) -> str:
    """The value of the extension `logtracing`: a JSON map, empty when there is nothing to trace."""
    return msgspec.json.encode({_OPERATION: request_id} if request_id else {}).decode()


def request_id_of(extensions: dict[str, str]) -> str:
    """From `logtracing`, else from the metadata's annotation; "" if neither has one."""
    found = _map(extensions.get("logtracing", "")).get(_OPERATION)
    if not found:
        annotations = _map(extensions.get("metadata", "")).get("annotations")
        found = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _map(text: str) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}

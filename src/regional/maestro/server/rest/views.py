"""Rows as the API shows them. Specs and statuses pass through as the JSON that they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from regional.maestro.protocol.events import timestamp
from regional.maestro.server.delivery import NOBODY_LISTENS
from regional.maestro.server.model import Bundle, Consumer, with_row_times

BASE = "/api/maestro/v1"
SILENT = timedelta(minutes=3)
"""Our agents repeat their resync every minute, so a consumer that is silent for longer is not connected."""


_NULL = msgspec.Raw(b"null")  # a type `Raw or None` would decode nothing but null


class _Spec(msgspec.Struct, rename="camel"):
    manifests: msgspec.Raw = msgspec.Raw(b"[]")
    delete_option: msgspec.Raw = _NULL
    manifest_configs: msgspec.Raw = _NULL


class _Status(msgspec.Struct, rename="camel"):
    conditions: msgspec.Raw = _NULL
    resource_status: msgspec.Raw = _NULL


class _StatusView(msgspec.Struct, omit_defaults=True):
    ObservedVersion: int
    SequenceID: str
    conditions: Any = None
    resourceStatus: Any = None


class _BundleView(msgspec.Struct, omit_defaults=True, kw_only=True):
    id: str
    kind: str
    href: str
    name: str
    source: str
    consumer_name: str
    version: int
    created_at: str
    updated_at: str
    deleted_at: str | None = None
    metadata: dict[str, Any]
    manifests: msgspec.Raw
    delete_option: Any = None
    manifest_configs: Any = None
    status: _StatusView | None = None
    delivery: dict[str, str]


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Conditions(msgspec.Struct):
    conditions: list[_Condition] | None = None


def consumer_view(consumer: Consumer) -> dict[str, Any]:
    labels = msgspec.json.decode(consumer.labels) if consumer.labels else {}
    return {
        "id": consumer.id,
        "kind": "Consumer",
        "href": f"{BASE}/consumers/{consumer.id}",
        "name": consumer.name,
        **({"labels": labels} if labels else {}),
        "created_at": timestamp(consumer.created_at),
        "updated_at": timestamp(consumer.updated_at),
        **({"last_seen_at": timestamp(consumer.last_seen_at)} if consumer.last_seen_at else {}),
        **({"agent": consumer.agent} if consumer.agent else {}),
    }


def bundle_view(bundle: Bundle, delivery: dict[str, str]) -> bytes:
    spec = msgspec.json.decode(bundle.spec, type=_Spec)
    view = _BundleView(
        id=bundle.id,
        kind="ResourceBundle",
        href=f"{BASE}/resource-bundles/{bundle.id}",
        name=bundle.name,
        source=bundle.source,
        consumer_name=bundle.consumer_name,
        version=bundle.version,
        created_at=timestamp(bundle.created_at),
        updated_at=timestamp(bundle.updated_at),
        deleted_at=timestamp(bundle.deleted_at) if bundle.deleted_at else None,
        metadata=with_row_times(bundle.metadata, bundle.created_at, bundle.deleted_at),
        manifests=spec.manifests,
        delete_option=_present(spec.delete_option),
        manifest_configs=_present(spec.manifest_configs),
        status=_status(bundle),
        delivery=delivery,
    )
    return msgspec.json.encode(view)


def _status(bundle: Bundle) -> _StatusView | None:
    if bundle.status is None:
        return None
    status = msgspec.json.decode(bundle.status, type=_Status)
    return _StatusView(
        ObservedVersion=bundle.status_version or 0,
        SequenceID=str(bundle.status_sequence or 0),
        conditions=_present(status.conditions),
        resourceStatus=_present(status.resource_status),
    )


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) == b"null" else raw


def delivery_of(bundle: Bundle, seen: datetime | None, note: str, broker_away: str, now: datetime) -> dict[str, str]:
    """Where the newest version is, and, if it is not applied, what it waits for."""
    confirmed = bundle.status_version == bundle.version
    if bundle.deleted_at is not None:
        waits = _waits_for(bundle, seen, note, broker_away, now)
        reached = "the agent is deleting the objects" if confirmed and _true(bundle, "Deleting") else waits
        return {"state": "pending", "reason": f"being deleted: {reached}"}
    if confirmed and bundle.applied:
        return {"state": "applied", "reason": ""}
    if confirmed:
        applied = _condition(bundle, "Applied")
        said = applied.message if applied else "the agent has not tried to apply it yet"
        return {"state": "delivered", "reason": said}
    return {"state": "pending", "reason": _waits_for(bundle, seen, note, broker_away, now)}


def _waits_for(bundle: Bundle, seen: datetime | None, note: str, broker_away: str, now: datetime) -> str:
    if seen is None:
        return f"consumer {bundle.consumer_name} never connected"
    if broker_away:
        return f"the server has no connection to the broker: {broker_away}"
    if note and note != NOBODY_LISTENS:
        return note
    if note or now - seen > SILENT:
        return f"consumer {bundle.consumer_name} is not connected, last seen {timestamp(seen)}"
    times = f"sent {bundle.attempts + 1} times, " if bundle.attempts else ""
    return f"{times}waiting for the agent to confirm version {bundle.version}"


def _condition(bundle: Bundle, kind: str) -> _Condition | None:
    if bundle.status is None:
        return None
    conditions = msgspec.json.decode(bundle.status, type=_Conditions).conditions or []
    return next((found for found in conditions if found.type == kind), None)


def _true(bundle: Bundle, kind: str) -> bool:
    found = _condition(bundle, kind)
    return found is not None and found.status == "True"


def project(document: bytes, fields: list[str]) -> bytes:
    """Only these fields (`a`, `a.b`, `a.*`), and always the id."""
    whole = msgspec.json.decode(document)
    chosen: dict[str, Any] = {"id": whole.get("id")}
    for field in fields:
        _copy(whole, chosen, field.split("."))
    return msgspec.json.encode(chosen)


def _copy(source: Any, target: dict[str, Any], path: list[str]) -> None:
    name = path[0]
    if not isinstance(source, dict) or name not in source:
        return
    if len(path) == 1 or path[1] == "*" or not isinstance(source[name], dict):
        target[name] = source[name]
        return
    inner = target.setdefault(name, {})
    if isinstance(inner, dict):
        _copy(source[name], inner, path[1:])


def now() -> datetime:
    return datetime.now(UTC)

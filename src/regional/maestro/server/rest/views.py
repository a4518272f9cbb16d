"""Rows as the API shows them. Specs and statuses pass through as the JSON that they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from regional.maestro.protocol.bundles import Condition, ResourceMeta, ResourceStatus
from regional.maestro.protocol.events import timestamp
from regional.maestro.server.delivery import NOBODY_LISTENS
from regional.maestro.server.model import Backlog, Bundle, Consumer, Contact, shown_metadata

BASE = "/api/maestro/v1"
LONGEST_REASON = 1024
_NULL = msgspec.Raw(b"null")  # a type `Raw or None` would decode nothing but null


class _Spec(msgspec.Struct, rename="camel"):
    manifests: msgspec.Raw = msgspec.Raw(b"[]")
    delete_option: msgspec.Raw = _NULL
    manifest_configs: msgspec.Raw = _NULL


class _Status(msgspec.Struct, rename="camel"):
    conditions: msgspec.Raw = _NULL
    resource_status: msgspec.Raw = _NULL


class StatusView(msgspec.Struct, omit_defaults=True):
    ObservedVersion: int
    SequenceID: str
    conditions: Any = None
    resourceStatus: Any = None


class BundleView(msgspec.Struct, omit_defaults=True, kw_only=True):
    id: str
    kind: str
    href: str
    name: str
    source: str = ""
    consumer_name: str
    version: int
    created_at: str
    updated_at: str
    deleted_at: str | None = None
    metadata: dict[str, Any]
    manifests: msgspec.Raw
    delete_option: Any = None
    manifest_configs: Any = None
    status: StatusView | None = None
    delivery: dict[str, str] | None = None


class _Conditions(msgspec.Struct):
    conditions: list[Condition] | None = None


class _Resources(msgspec.Struct, rename="camel"):
    resource_status: list[ResourceStatus] | None = None


def consumer_view(consumer: Consumer, backlog: Backlog, now: datetime) -> dict[str, Any]:
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
        **({"agent_version": consumer.agent_version} if consumer.agent_version else {}),
        **({"agent_certificate": consumer.agent_certificate} if consumer.agent_certificate else {}),
        "connected": consumer.contact.connected(now),
        "pending": backlog.pending,
        **({"oldest_pending_at": timestamp(backlog.oldest_at)} if backlog.oldest_at else {}),
        **_unreachable(consumer),
    }


CONSUMER_SCHEMA = ("id", "kind", "href", "name", "labels", "created_at", "updated_at")


def plain(view: dict[str, Any]) -> dict[str, Any]:
    """Only what Maestro's own schema has."""
    return {name: view[name] for name in CONSUMER_SCHEMA if name in view}


def _unreachable(consumer: Consumer) -> dict[str, str]:
    if not consumer.cluster_unreachable or consumer.cluster_unreachable_since is None:
        return {}
    return {
        "cluster_unreachable": consumer.cluster_unreachable,
        "cluster_unreachable_since": timestamp(consumer.cluster_unreachable_since),
    }


def bundle_view(bundle: Bundle, delivery: dict[str, str] | None) -> bytes:
    """Without `delivery`, only what Maestro's own schema has."""
    spec = msgspec.json.decode(bundle.spec, type=_Spec)
    view = BundleView(
        id=bundle.id,
        kind="ResourceBundle",
        href=f"{BASE}/resource-bundles/{bundle.id}",
        name=bundle.name,
        source=bundle.source if delivery is not None else "",
        consumer_name=bundle.consumer_name,
        version=bundle.version,
        created_at=timestamp(bundle.created_at),
        updated_at=timestamp(bundle.updated_at),
        deleted_at=timestamp(bundle.deleted_at) if bundle.deleted_at else None,
        metadata=shown_metadata(bundle),
        manifests=spec.manifests,
        delete_option=_present(spec.delete_option),
        manifest_configs=_present(spec.manifest_configs),
        status=_status(bundle),
        delivery=delivery,
    )
    return msgspec.json.encode(view)


def _status(bundle: Bundle) -> StatusView | None:
    if bundle.status is None:
        return None
    status = msgspec.json.decode(bundle.status, type=_Status)
    return StatusView(
        ObservedVersion=bundle.status_version or 0,
        SequenceID=str(bundle.status_sequence or 0),
        conditions=_present(status.conditions),
        resourceStatus=_present(status.resource_status),
    )


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) == b"null" else raw


def delivery_of(bundle: Bundle, contact: Contact, note: str, broker_away: str, now: datetime) -> dict[str, str]:
    """Where the newest version is, and, if it is not applied, what it waits for."""
    confirmed = bundle.status_version == bundle.version
    if bundle.deleted_at is not None:
        waits = _waits_for(bundle, contact, note, broker_away, now)
        reached = "the agent is deleting the objects" if confirmed and _true(bundle, "Deleting") else waits
        return {"state": "pending", "reason": f"being deleted: {reached}"}
    if confirmed and bundle.applied:
        return {"state": "applied", "reason": ""}
    if confirmed:
        said = _why_not_applied(bundle) or "the agent has not tried to apply it yet"
        return {"state": "delivered", "reason": said}
    return {"state": "pending", "reason": _waits_for(bundle, contact, note, broker_away, now)}


def _waits_for(bundle: Bundle, contact: Contact, note: str, broker_away: str, now: datetime) -> str:
    if contact.last_seen_at is None:
        return f"consumer {bundle.consumer_name} never connected"
    if broker_away:
        return f"the server has no connection to the broker: {broker_away}"
    if note and note != NOBODY_LISTENS:
        return note
    if note or not contact.connected(now):
        return f"consumer {bundle.consumer_name} is not connected, last seen {timestamp(contact.last_seen_at)}"
    if contact.cluster_unreachable:
        return f"the agent of {bundle.consumer_name} cannot reach its cluster: {contact.cluster_unreachable}"
    times = f"sent {bundle.attempts + 1} times, " if bundle.attempts else ""
    return f"{times}waiting for the agent to confirm version {bundle.version}"


def _condition(bundle: Bundle, kind: str) -> Condition | None:
    if bundle.status is None:
        return None
    conditions = msgspec.json.decode(bundle.status, type=_Conditions).conditions or []
    return next((found for found in conditions if found.type == kind), None)


def _why_not_applied(bundle: Bundle) -> str:
    """In the agent's words. Some say at the work itself only that it failed, and the reason at its manifests. What is
    true of a former version says nothing about this one."""
    applied = _condition(bundle, "Applied")
    if applied is None or applied.status == "True":
        return ""
    faults = []
    for resource in _resources(bundle):
        wrong = next((c for c in resource.conditions or [] if c.type == "Applied" and c.status == "False"), None)
        if wrong is not None and wrong.message:
            meta = resource.resource_meta or ResourceMeta()
            place = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            faults.append((f"{meta.kind} {place}", wrong.message.removeprefix("Failed to apply manifest: ")))
    if not faults or any(fault in applied.message for _, fault in faults):
        return applied.message
    return f"{applied.message}: {'; '.join(f'{name}: {fault}' for name, fault in faults)}"[:LONGEST_REASON]


def _resources(bundle: Bundle) -> list[ResourceStatus]:
    try:
        return msgspec.json.decode(bundle.status or "{}", type=_Resources).resource_status or []
    except msgspec.ValidationError:  # stored by a server that did not look into it
        return []


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

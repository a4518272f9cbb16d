"""Resources as the sentinel and the adapters see them: just enough to say what an event is about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from regional.clm.entities import Registry
from regional.clm.events import Subject

RECONCILED = """resources.conditions @> '[{"type": "Reconciled", "status": "True"}]'::jsonb"""
_SELECT = (
    "SELECT resources.id, resources.kind, resources.generation, resources.request_id, resources.owner_id,"
    f" resources.owner_kind, resources.updated_time, {RECONCILED} AS reconciled FROM resources"
)


class Seen(msgspec.Struct, frozen=True):
    subject: Subject
    reconciled: bool
    adapters: tuple[str, ...]
    updated_time: datetime


async def look_at(connection: Any, registry: Registry, ids: Sequence[UUID]) -> list[Seen]:
    """Those of the resources that are still there and have adapters."""
    return await _look(connection, registry, "resources.id = ANY($1)", ids)


async def look_at_waiting_children(connection: Any, registry: Registry, ids: Sequence[UUID]) -> list[Seen]:
    return await _look(connection, registry, f"resources.owner_id = ANY($1) AND NOT {RECONCILED}", ids)


async def _look(connection: Any, registry: Registry, condition: str, ids: Sequence[UUID]) -> list[Seen]:
    rows = await connection.fetch(f"{_SELECT} WHERE {condition}", list(ids)) if ids else []
    found = [_seen(registry, row) for row in rows]
    return [seen for seen in found if seen.adapters]


def _seen(registry: Registry, row: Any) -> Seen:
    owner = None
    if row["owner_id"] is not None:
        href = registry.href(row["owner_kind"], row["owner_id"])
        owner = {"id": str(row["owner_id"]), "kind": row["owner_kind"], "href": href}
    href = registry.href(row["kind"], row["id"], row["owner_id"])
    subject = Subject(row["id"], row["kind"], row["generation"], row["request_id"], href, owner)
    entity = registry.of_kind(row["kind"])
    return Seen(subject, row["reconciled"], entity.required_adapters if entity is not None else (), row["updated_time"])

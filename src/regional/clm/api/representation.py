"""Resources as callers see them: one shape for all kinds."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from regional.clm.entities import Registry
from regional.clm.placement import reservations
from regional.clm.placement.reservations import Placement
from regional.core import store
from regional.core.store import Stored


class Owner(msgspec.Struct, frozen=True):
    id: UUID
    kind: str
    href: str


class Status(msgspec.Struct, frozen=True):
    conditions: msgspec.Raw


class Resource(msgspec.Struct, frozen=True, omit_defaults=True):
    id: UUID
    kind: str
    name: str
    href: str
    spec: msgspec.Raw
    generation: int
    created_time: datetime
    updated_time: datetime
    created_by: str
    updated_by: str
    status: Status
    labels: dict[str, str] = {}
    tenancy: dict[str, str] = {}
    owner_references: Owner | None = None
    placement: Placement | None = None
    deleted_time: datetime | None = None
    deleted_by: str | None = None


FIELDS = frozenset(Resource.__struct_fields__) - {"status"}
CONDITION_FIELDS = frozenset(
    {
        *("type", "status", "reason", "message", "observed_generation"),
        *("created_time", "last_updated_time", "last_transition_time"),
    }
)
SELECT = f"SELECT {store.COLUMNS}, {reservations.COLUMNS} FROM resources {reservations.JOIN}"


def represent(registry: Registry, resource: Stored, placement: Placement | None) -> Resource:
    owner = None
    if resource.owner_id is not None and resource.owner_kind is not None:
        owner = Owner(resource.owner_id, resource.owner_kind, registry.href(resource.owner_kind, resource.owner_id))
    return Resource(
        resource.id,
        resource.kind,
        resource.name,
        registry.href(resource.kind, resource.id, resource.owner_id),
        resource.spec,
        resource.generation,
        resource.created_time,
        resource.updated_time,
        resource.created_by,
        resource.updated_by,
        Status(resource.conditions),
        resource.labels,
        {"account": resource.tenant} if resource.tenant else {},
        owner,
        placement,
        resource.deleted_time,
        resource.deleted_by,
    )


def represent_row(registry: Registry, row: Any) -> Resource:
    """From a row of `SELECT`."""
    return represent(registry, store.stored(row), reservations.placement_of(row))


def project(resource: Resource, fields: tuple[str, ...]) -> dict[str, Any]:
    """Only these fields, and `id`."""
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(resource))
    wanted: dict[str, Any] = {"id": whole["id"]}
    inside: list[str] = []
    for field in fields:
        top, _, below = field.partition(".")
        if top != "status":
            if top in whole:
                wanted[top] = whole[top]
        else:
            inside.append(below.removeprefix("conditions").removeprefix("."))
    if inside:
        conditions: list[dict[str, Any]] = whole["status"]["conditions"]
        if "" not in inside:
            conditions = [{name: found[name] for name in inside if name in found} for found in conditions]
        wanted["status"] = {"conditions": conditions}
    return wanted

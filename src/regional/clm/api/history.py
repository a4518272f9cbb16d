"""Every revision of a resource, newest first; also after the resource itself is gone."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One change. `document` holds what changed: spec and labels, conditions, or the placement."""

    revision: int
    change: str
    generation: int
    time: datetime
    actor: str
    request_id: str
    document: msgspec.Raw


async def page_of_history(
    connection: Any, resource_id: UUID, kind: str, tenant: str, size: int, page: int
) -> tuple[list[Entry], int]:
    """An empty kind or tenant means any."""
    where = "resource_id = $1 AND ($2 = '' OR kind = $2) AND ($3 = '' OR tenant = $3)"
    total = await connection.fetchval(f"SELECT count(*) FROM resource_history WHERE {where}", resource_id, kind, tenant)
    rows = await connection.fetch(
        "SELECT revision, change, generation, at, actor, request_id, document FROM resource_history"
        f" WHERE {where} ORDER BY id DESC LIMIT $4 OFFSET $5",
        resource_id,
        kind,
        tenant,
        size,
        (page - 1) * size,
    )
    entries = [
        Entry(
            row["revision"],
            row["change"],
            row["generation"],
            row["at"],
            row["actor"],
            row["request_id"],
            msgspec.Raw(row["document"].encode()),
        )
        for row in rows
    ]
    return entries, total

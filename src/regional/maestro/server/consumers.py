"""Consumers in the database: the management clusters that bundles can be sent to, and when each was last heard of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec

from regional.core.database import Database
from regional.maestro.server.connection import pool_of
from regional.maestro.server.model import CONSUMER_COLUMNS, Consumer, consumer_of


class ConsumerExists(Exception):
    pass


class ConsumerInUse(Exception):
    pass


class Consumers:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _pool(self) -> Any:
        return pool_of(self._database)

    async def create(self, name: str, labels: Mapping[str, str] | None) -> Consumer:
        consumer_id = str(uuid.uuid4())
        row = await self._pool.fetchrow(
            "INSERT INTO consumers (id, name, labels) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
            f" RETURNING {CONSUMER_COLUMNS}",
            *(consumer_id, name or consumer_id, _encoded(labels)),
        )
        if row is None:
            raise ConsumerExists("This Consumer already exists")
        return consumer_of(row)

    async def get(self, consumer_id: str) -> Consumer | None:
        row = await self._pool.fetchrow(f"SELECT {CONSUMER_COLUMNS} FROM consumers WHERE id = $1", consumer_id)
        return consumer_of(row) if row else None

    async def relabel(self, consumer_id: str, labels: Mapping[str, str]) -> Consumer | None:
        row = await self._pool.fetchrow(
            f"UPDATE consumers SET labels = $2, updated_at = now() WHERE id = $1 RETURNING {CONSUMER_COLUMNS}",
            *(consumer_id, _encoded(labels)),
        )
        return consumer_of(row) if row else None

    async def delete(self, consumer_id: str) -> None:
        try:
            await self._pool.execute("DELETE FROM consumers WHERE id = $1", consumer_id)
        except (asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError):
            raise ConsumerInUse("the consumer has resource bundles") from None

    async def names(self) -> list[str]:
        return [row["name"] for row in await self._pool.fetch("SELECT name FROM consumers ORDER BY name")]

    async def seen(self, agents: Mapping[str, str]) -> None:
        """These consumers' agents (by name) have just been heard of."""
        await self._pool.execute(
            "UPDATE consumers c SET last_seen_at = now(), agent = s.agent"
            " FROM unnest($1::text[], $2::text[]) AS s (name, agent) WHERE c.name = s.name",
            *(list(agents), list(agents.values())),
        )


def _encoded(labels: Mapping[str, str] | None) -> str | None:
    return msgspec.json.encode(labels).decode() if labels else None

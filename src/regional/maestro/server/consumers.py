"""Consumers in the database: the management clusters that bundles can be sent to, and when each was last heard of."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import asyncpg
import msgspec
import prometheus_client

from regional.core.database import Database, still_wanted
from regional.maestro.protocol.identity import consumer_uid
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.model import CONSUMER_COLUMNS, SILENT, Backlog, Consumer, consumer_of

COUNT_SECONDS = 10.0
STATES = ("connected", "cluster unreachable", "silent", "never seen")
_states = prometheus_client.Gauge("maestro_server_consumers", "Consumers, by how they are reached", ["state"])

# Two conditions that match the two partial indexes of what is due, so that only that is read.
WITH_BACKLOG = """
LEFT JOIN (
    SELECT consumer_name, count(*) AS pending, min(since) AS oldest_at FROM (
        SELECT consumer_name, updated_at AS since FROM resources WHERE due_at IS NOT NULL AND deleted_at IS NULL
        UNION ALL
        SELECT consumer_name, deleted_at FROM resources WHERE due_at IS NOT NULL AND deleted_at IS NOT NULL
    ) AS unconfirmed GROUP BY consumer_name
) AS backlog ON backlog.consumer_name = r.name
"""
SHOWN = ", ".join(f"r.{name}" for name in Consumer.__struct_fields__) + ", coalesce(pending, 0) AS pending, oldest_at"
_SEEN = """
UPDATE consumers c SET last_seen_at = now(), absent_since = NULL, agent = s.agent,
    agent_version = coalesce(s.version, c.agent_version),
    agent_certificate = coalesce(s.certificate, c.agent_certificate),
    cluster_unreachable = CASE WHEN s.unreachable IS NULL THEN c.cluster_unreachable ELSE nullif(s.unreachable, '') END,
    cluster_unreachable_since = CASE WHEN s.unreachable IS NULL THEN c.cluster_unreachable_since
        WHEN s.unreachable = '' THEN NULL ELSE coalesce(c.cluster_unreachable_since, now()) END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
    AS s (name, agent, version, unreachable, certificate)
WHERE c.name = s.name
"""


class Sign(msgspec.Struct, frozen=True):
    """An agent was heard of. What it did not speak about (None) is as it was before."""

    agent: str
    version: str | None = None
    unreachable: str | None = None
    """Why it cannot reach its cluster's API; "" if it can."""
    certificate: str | None = None
    """The digest of the certificate that it came in with; "" if it is of another make and does not say."""

    def over(self, former: Sign | None) -> Sign:
        if former is None:
            return self
        version = former.version if self.version is None else self.version
        certificate = former.certificate if self.certificate is None else self.certificate
        unreachable = former.unreachable if self.unreachable is None else self.unreachable
        return Sign(self.agent, version, unreachable, certificate)


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
        consumer_id = consumer_uid(name) if name else str(uuid.uuid4())
        row = await self._pool.fetchrow(
            "INSERT INTO consumers (id, name, labels) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
            f" RETURNING {CONSUMER_COLUMNS}",
            *(consumer_id, name or consumer_id, _encoded(labels)),
        )
        if row is None:
            raise ConsumerExists("This Consumer already exists")
        return consumer_of(row)

    async def get(self, consumer_id: str) -> tuple[Consumer, Backlog] | None:
        row = await self._pool.fetchrow(f"SELECT {SHOWN} FROM consumers r {WITH_BACKLOG} WHERE r.id = $1", consumer_id)
        return (consumer_of(row), backlog_of(row)) if row else None

    async def relabel(self, consumer_id: str, labels: Mapping[str, str]) -> None:
        await self._pool.execute(
            "UPDATE consumers SET labels = $2, updated_at = now() WHERE id = $1", consumer_id, _encoded(labels)
        )

    async def delete(self, consumer_id: str) -> None:
        try:
            await self._pool.execute("DELETE FROM consumers WHERE id = $1", consumer_id)
        except (asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError):
            raise ConsumerInUse("the consumer has resource bundles") from None

    async def names(self) -> list[str]:
        return [row["name"] for row in await self._pool.fetch("SELECT name FROM consumers ORDER BY name")]

    async def seen(self, signs: Mapping[str, Sign]) -> None:
        """These consumers (by name) have just been heard of."""
        columns = zip(
            *((name, sign.agent, sign.version, sign.unreachable, sign.certificate) for name, sign in signs.items()),
            strict=True,
        )
        await self._pool.execute(_SEEN, *(list(column) for column in columns))

    async def absent(self, names: Iterable[str]) -> None:
        """The broker says that nobody listens to these consumers' topics."""
        await self._pool.execute(
            "UPDATE consumers SET absent_since = now() WHERE name = ANY($1) AND absent_since IS NULL", list(names)
        )

    async def by_state(self) -> dict[str, int]:
        """How many consumers are connected, silent, never seen, or cannot reach their cluster."""
        rows = await self._pool.fetch(
            "SELECT CASE WHEN last_seen_at IS NULL THEN 'never seen'"
            " WHEN absent_since IS NOT NULL OR last_seen_at < now() - $1::interval THEN 'silent'"
            " WHEN cluster_unreachable IS NOT NULL THEN 'cluster unreachable' ELSE 'connected' END AS state,"
            " count(*) AS number FROM consumers GROUP BY 1",
            SILENT,
        )
        return {row["state"]: row["number"] for row in rows}

    async def keep_counting(self) -> None:
        while True:
            try:
                found = await self.by_state()
                for state in STATES:
                    _states.labels(state).set(found.get(state, 0))
            except FAILURES:
                still_wanted()
            await asyncio.sleep(COUNT_SECONDS)


def backlog_of(row: Mapping[str, Any]) -> Backlog:
    return Backlog(row["pending"], row["oldest_at"])


def _encoded(labels: Mapping[str, str] | None) -> str | None:
    return msgspec.json.encode(labels).decode() if labels else None

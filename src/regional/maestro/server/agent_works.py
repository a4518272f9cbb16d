"""Works that agents have and this database has not, or only in an older version: it was emptied, or restored.

Nothing here ends a work by itself. What is noted serves to count on from the agent's version when the bundle comes
back, because an agent takes no version older than its own; to show people what nobody knows any more; and to end what
they ask to be ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional.core.database import Database
from regional.maestro.server.bundles import CHANNEL, LEASE_SECONDS
from regional.maestro.server.connection import pool_of
from regional.maestro.server.model import COLUMNS, QUALIFIED, Bundle, bundle_of
from regional.maestro.server.together import Together

MOST_SHOWN = 1000
MOST_NOTED = 100_000
"""Of one consumer, far above what a cluster carries: an agent that invents works must not fill the disk."""
LONGEST_ID = 253
HIGHEST = 1 << 30
"""A version beyond it is no count of changes; counting on from it would soon leave the column's range."""

_ROOM = "(SELECT count(*) FROM (SELECT 1 FROM agent_works l WHERE l.consumer_name = $1 LIMIT {most}) AS l) < {most}"
_NOTE = f"""
WITH settled AS (
    DELETE FROM agent_works WHERE consumer_name = $1 AND id >= $2 AND ($3 = '' OR id < $3) AND id <> ALL($4::text[])
)
INSERT INTO agent_works (consumer_name, id, version)
SELECT $1, id, version FROM unnest($4::text[], $5::int[]) AS given (id, version)
WHERE {_ROOM.format(most="$6::int")} ORDER BY id
ON CONFLICT (consumer_name, id) DO UPDATE SET version = excluded.version, seen_at = now()
"""
# A status tells of one work and says nothing of the others.
_ADD = f"""
INSERT INTO agent_works (consumer_name, id, version)
SELECT $1, w.id, w.version FROM unnest($2::text[], $3::int[]) AS w (id, version)
WHERE NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = w.id AND r.consumer_name = $1 AND r.version >= w.version)
    AND NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.id = w.id AND t.consumer_name = $1)
    AND {_ROOM.format(most="$4::int")}
ORDER BY w.id
ON CONFLICT (consumer_name, id) DO UPDATE SET version = greatest(agent_works.version, excluded.version), seen_at = now()
"""
# Of what no agent has spoken yet, the wish is remembered as if it had been fulfilled: the agent that speaks of it is
# told, whoever it is.
_END = f"""
WITH incoming AS (
    SELECT * FROM unnest($1::text[], $2::text[]) AS i (id, request_id)
), known AS (
    SELECT DISTINCT ON (a.id) a.id, a.consumer_name, a.version, i.request_id
    FROM incoming i JOIN agent_works a ON a.id = i.id JOIN consumers c ON c.name = a.consumer_name
    ORDER BY a.id, a.consumer_name
), made AS (
    INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, request_id, deleted_at, due_at)
    SELECT id, id, '', consumer_name, version, '{{}}', '{{"manifests":[]}}', request_id, now(),
        now() + interval '{LEASE_SECONDS} seconds'
    FROM known ON CONFLICT DO NOTHING
    RETURNING *
), remembered AS (
    INSERT INTO tombstones (id, consumer_name, version) SELECT id, '', 0 FROM incoming
    WHERE id NOT IN (SELECT id FROM known) AND NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = incoming.id)
    ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO events (resource_id, source, kind, version, request_id)
    SELECT id, source, 'deleting', version, request_id FROM made
), heard AS (
    SELECT pg_notify('{CHANNEL}', source) FROM (SELECT DISTINCT source FROM made) AS sources
)
SELECT {COLUMNS}, (SELECT count(*) FROM heard) FROM made
"""
# An agent takes a deletion of an older version than its own for one of the bundle's former life.
_RAISE = f"""
UPDATE resources r SET version = w.version FROM unnest($2::text[], $3::int[]) AS w (id, version)
WHERE r.id = w.id AND r.consumer_name = $1 AND r.deleted_at IS NOT NULL AND r.version < w.version
RETURNING {QUALIFIED}
"""
_SHOW = """
SELECT a.consumer_name, a.id, a.version, a.seen_at, r.version AS known_version, count(*) OVER () AS total
FROM agent_works a LEFT JOIN resources r ON r.id = a.id AND r.consumer_name = a.consumer_name
WHERE ($1 = '' OR a.consumer_name = $1) AND (r.id IS NULL OR r.version < a.version)
ORDER BY a.consumer_name, a.id LIMIT $2
"""


class AgentWorks:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._ends: Together[tuple[str, str], Bundle] = Together(lambda found: found[0], self._end)

    async def end(self, work_id: str, request_id: str) -> Bundle | None:
        """A work without a bundle is to go: its bundle, which is being deleted. None if no agent has it so far.

        An agent may speak of it just before the wish is written down, and find none. So the second look comes after
        the wish, as whoever hears an agent looks for wishes after noting what it said: one of both sees the other.
        """
        return await self._ends.do((work_id, request_id)) or await self._ends.do((work_id, request_id))

    async def _end(self, several: list[tuple[str, str]]) -> dict[str, Bundle]:
        ids, request_ids = zip(*several, strict=True)
        rows = await pool_of(self._database).fetch(_END, list(ids), list(request_ids))
        return {row["id"]: bundle_of(row) for row in rows}

    async def note(self, consumer: str, first: str, until: str, versions: Mapping[str, int]) -> None:
        """All that the consumer's agent has beyond what is known, of ids from `first` to before `until`."""
        kept = _sane(versions)
        await pool_of(self._database).execute(
            _NOTE, consumer, first, until, list(kept), list(kept.values()), MOST_NOTED
        )

    async def add(self, consumer: str, versions: Mapping[str, int]) -> None:
        """The consumer's agent has sent statuses of these, perhaps in a version that is known here."""
        kept = _sane(versions)
        await pool_of(self._database).execute(_ADD, consumer, list(kept), list(kept.values()), MOST_NOTED)

    async def deletions_behind(self, consumer: str, versions: Mapping[str, int]) -> list[Bundle]:
        """Of the bundles that are being deleted, those that the agent has in a newer version: now they have it too."""
        sane = _sane(versions)
        rows = await pool_of(self._database).fetch(_RAISE, consumer, list(sane), list(sane.values()))
        return [bundle_of(row) for row in rows]

    async def unknown(self, consumer: str) -> tuple[list[Any], int]:
        """Rows (at most MOST_SHOWN) and how many there are."""
        rows = await pool_of(self._database).fetch(_SHOW, consumer, MOST_SHOWN)
        return rows, rows[0]["total"] if rows else 0


def possible(work: str) -> bool:
    """Whether a bundle can be called so. One that cannot would spoil the statement that speaks of it."""
    return 0 < len(work) <= LONGEST_ID and "\0" not in work


def _sane(versions: Mapping[str, int]) -> dict[str, int]:
    return {work: version for work, version in versions.items() if 0 < version < HIGHEST and possible(work)}

"""What became of a bundle: its accepted versions, its statuses and its end, newest first and not without limit.

The change feed's events are the history of the last hours. When the feed needs them no more they move here, so that
nothing is written twice while a bundle is on its way.
"""

from __future__ import annotations

from typing import Any

from regional.core.database import Database
from regional.maestro.protocol.events import timestamp
from regional.maestro.server.connection import pool_of

MOST_ENTRIES = 200  # of one bundle
KEEP = "30 days"
CHANGES = {"spec": "accepted"}
_OF = """
SELECT * FROM (
    SELECT created_at AS at, xid, id, kind, version, request_id, note FROM events
    WHERE resource_id = $1 AND version IS NOT NULL
    UNION ALL
    SELECT at, 0, 0, kind, version, request_id, note FROM history WHERE resource_id = $1
) AS entries ORDER BY at DESC, xid DESC, id DESC LIMIT $2
"""
_TRIM = f"""
WITH long AS MATERIALIZED (  -- once for each bundle that has new entries, not for each of its entries
    SELECT resource_id, (SELECT n.at FROM history n WHERE n.resource_id = recent.resource_id
        ORDER BY n.at DESC OFFSET {MOST_ENTRIES} LIMIT 1) AS limit_at
    FROM (SELECT DISTINCT resource_id FROM history WHERE at > now() - interval '3 hours') AS recent
)
DELETE FROM history h USING long WHERE h.resource_id = long.resource_id AND h.at < long.limit_at
"""


async def entries_of(database: Database, bundle_id: str, limit: int) -> list[dict[str, Any]]:
    rows = await pool_of(database).fetch(_OF, bundle_id, limit)
    return [
        {
            "at": timestamp(row["at"]),
            "change": CHANGES.get(row["kind"], row["kind"]),
            "version": row["version"],
            **({"request_id": row["request_id"]} if row["request_id"] else {}),
            **({"note": row["note"]} if row["note"] else {}),
        }
        for row in rows
    ]


async def trim(database: Database) -> None:
    pool = pool_of(database)
    await pool.execute("DELETE FROM history WHERE at < now() - $1::text::interval", KEEP)
    await pool.execute(_TRIM)

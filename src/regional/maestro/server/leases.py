"""Which replica carries a consumer's messages: one at a time, agreed upon in the database, whoever dies.

The holder of a consumer's lease sends its bundles, answers its agent and stores what that reports; the others pass on
what they accept. Nothing is lost or wrong if two believe for a moment to be the holder: the rules for versions and
statuses are in the statements themselves. Leases only keep the replicas from all doing the same.

A replica lives as long as its session with the database, in which it holds a lock. The database ends that session as
soon as the process is gone, and others see it at their next look. One that stands still keeps its session, but stops
renewing its row.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import asyncpg
import prometheus_client

from regional.core.database import Bell, Database
from regional.maestro.server.connection import FAILURES, pool_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
TURN_SECONDS = 10.0
"""A connection that swallows every word fails only after a quarter of an hour; until then nothing would be heard."""
BEAT_SECONDS = 4.0
STILL_SECONDS = 15.0
UNFIT_SECONDS = 5.0
"""A broker that restarts is away from all replicas, and not for long: no reason to change hands."""
RETURN_SECONDS = 5.0
"""A database that restarts ends the sessions of all replicas; who is back first waits for the others this long."""
CHANGED = "maestro_leases"
HANDOVER = "maestro_handover"
_LOCKS = "hashtext('maestro replicas')"
_held = prometheus_client.Gauge("maestro_server_held_consumers", "Consumers whose lease this replica holds")

_BEAT = """
INSERT INTO replicas (id, fit) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET fit = excluded.fit, seen_at = now()
"""
_REPLICAS = f"""
SELECT r.id, r.fit, r.seen_at < now() - interval '{STILL_SECONDS} seconds' OR NOT EXISTS (
    SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 2
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid = ({_LOCKS}::bigint & 4294967295)::oid
        AND l.objid = (hashtext(r.id)::bigint & 4294967295)::oid
) AS dead FROM replicas r
"""
_HOLDERS = """
SELECT c.name, coalesce(l.holder, '') AS holder FROM consumers c LEFT JOIN leases l ON l.consumer_name = c.name
"""
_TAKE = """
INSERT INTO leases (consumer_name, holder) SELECT name, $2 FROM unnest($1::text[]) AS name
ON CONFLICT DO NOTHING RETURNING consumer_name
"""


def chosen(me: str, replicas: Mapping[str, bool], holders: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What to take and what to give up, so that each replica that is fit (or, if none is, each) has its share."""
    able = [replica for replica, fit in replicas.items() if fit] or list(replicas)
    mine = sorted(name for name, holder in holders.items() if holder == me)
    if me not in able:
        return [], mine
    share = math.ceil(len(holders) / len(able))
    free = sorted(name for name, holder in holders.items() if not holder)
    return free[: max(0, share - len(mine))], mine[share:]


class Leases:
    def __init__(
        self,
        database: Database,
        replica: str,
        *,
        fit: Callable[[], bool],
        acquired: Callable[[Collection[str]], None],
        handed_over: Callable[[str], None],
        deaf: Callable[[], None] = lambda: None,
    ) -> None:
        """`fit` says whether messages can be sent at all, `acquired` hears of new consumers, `handed_over` of what
        other replicas pass on, `deaf` that for a while nothing was heard."""
        self.id = f"{replica}-{secrets.token_hex(4)}"  # a process, not a pod: one that died is not the one after it
        self._database = database
        self._connected, self._acquired, self._handed_over, self._deaf = fit, acquired, handed_over, deaf
        self._others: frozenset[str] = frozenset()
        self._made: set[str] = set()
        """Held since a moment that a turn may not have seen yet."""
        self._beaten = self._was_fit = self._patient_until = -math.inf
        self._sessions = 0
        self._last_fit: bool | None = None
        self.held: frozenset[str] = frozenset()

    def elsewhere(self, consumer: str) -> bool:
        """Whether another replica holds it. What nobody is known to hold is anybody's."""
        return consumer in self._others

    async def begin(self, consumer: str) -> None:
        """Hold a consumer that was just made. Its agent may be there already, and have spoken before it was known."""
        try:
            taken = await pool_of(self._database).fetch(_TAKE, [consumer], self.id)
        except (*FAILURES, asyncpg.ForeignKeyViolationError):
            return  # somebody takes it at the next turn
        if taken:
            self._made.add(consumer)
            self.held |= {consumer}
            self._acquired((consumer,))

    async def hold(self, connection: asyncpg.Connection) -> None:
        """As long as this session lasts. Leaves in order when cancelled."""
        await connection.execute("SET synchronous_commit = off; SET statement_timeout = '10s'")
        # Shared: a session of ours whose end the database has not noticed holds it, too, perhaps for hours.
        await connection.execute(f"SELECT pg_advisory_lock_shared({_LOCKS}, hashtext($1))", self.id)
        bell = Bell(connection)
        await bell.listen(CHANGED)
        await connection.add_listener(HANDOVER, lambda *said: self._handed_over(str(said[-1])))
        self._beaten = -math.inf
        self._sessions += 1
        if self._sessions > 1:
            self._patient_until = time.monotonic() + RETURN_SECONDS
            self._deaf()
        try:
            while True:
                async with asyncio.timeout(TURN_SECONDS):
                    await self._turn(connection)
                await bell.wait(LOOK_SECONDS)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                async with asyncio.timeout(2):
                    await connection.execute("DELETE FROM replicas WHERE id = $1", self.id)
                    await connection.execute("SELECT pg_notify($1, '')", CHANGED)
            raise

    async def _turn(self, connection: asyncpg.Connection) -> None:
        replicas = await self._living(connection)
        seen = frozenset(self._made)
        rows = await connection.fetch(_HOLDERS)
        holders = {row["name"]: row["holder"] for row in rows}
        self._made -= seen
        take, give = chosen(self.id, replicas, holders)
        mine = {name for name, holder in holders.items() if holder == self.id}
        if take:
            mine |= {row["consumer_name"] for row in await connection.fetch(_TAKE, take, self.id)}
        if give:
            mine -= set(give)
            await connection.execute("DELETE FROM leases WHERE holder = $1 AND consumer_name = ANY($2)", self.id, give)
            await connection.execute("SELECT pg_notify($1, '')", CHANGED)
        self._others = frozenset(name for name, holder in holders.items() if holder and holder != self.id)
        self._now_holding(frozenset(mine), len(replicas))

    def _now_holding(self, mine: frozenset[str], replicas: int) -> None:
        mine |= self._made
        new, self.held = mine - self.held, mine
        _held.set(len(mine))
        if new:
            log.info("consumers are held", extra={"new": len(new), "held": len(mine), "replicas": replicas})
            self._acquired(new)

    async def _living(self, connection: asyncpg.Connection) -> dict[str, bool]:
        """Each replica that lives, this one among them, and whether it is fit. The others' leases go with them."""
        fit = self._fit()
        if time.monotonic() - self._beaten > BEAT_SECONDS or fit != self._last_fit:
            await self._beat(connection, fit)
        rows: list[Any] = await connection.fetch(_REPLICAS)
        if self.id not in {row["id"] for row in rows}:  # others took us for dead
            await self._beat(connection, fit)
        dead = [row["id"] for row in rows if row["dead"] and row["id"] != self.id]
        if time.monotonic() < self._patient_until:
            dead = []
        if dead:
            log.warning("replicas are gone", extra={"replicas": ",".join(dead)})
            await connection.execute("DELETE FROM replicas WHERE id = ANY($1)", dead)
        return {row["id"]: row["fit"] for row in rows if row["id"] not in dead} | {self.id: fit}

    async def _beat(self, connection: asyncpg.Connection, fit: bool) -> None:
        await connection.execute(_BEAT, self.id, fit)
        self._beaten, self._last_fit = time.monotonic(), fit

    def _fit(self) -> bool:
        now = time.monotonic()
        if self._connected():
            self._was_fit = now
        return now - self._was_fit < UNFIT_SECONDS

"""The life of a resource: created, changed, reported on, marked for deletion, gone.

Each function is called inside one transaction and holds the locks it needs, parents before children, so that a delete
coming down a tree and a finalization going up it wait for each other instead of blocking each other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from regional.clm.api import reports
from regional.clm.api.aggregation import Condition, Subject, aggregate, all_finalized
from regional.clm.api.bodies import Draft, immutable_faults
from regional.clm.api.caller import Caller
from regional.clm.api.problems import Exists, Invalid, NotFound, Overtaken, WrongState
from regional.clm.api.reports import Report
from regional.clm.entities import Entity, Registry
from regional.clm.placement import reservations
from regional.clm.placement.reservations import CLUSTER, MANAGEMENT_CLUSTER, Placement
from regional.core import store
from regional.core.clock import Clock, SystemClock
from regional.core.identifiers import uuid7
from regional.core.store import Stored

log = logging.getLogger(__name__)

# By then the feed has long told the sentinel of a new resource; if not, its scan finds it.
FIRST_PULSE = timedelta(seconds=10)
EMPTIED = "emptied"  # the change of a parent whose last child is gone
FREED = "freed"  # the change of a child whose predecessor, of the same name, is gone

_LOCK = f"SELECT {store.COLUMNS} FROM resources WHERE id = $1"


class Lifecycle:
    def __init__(self, registry: Registry, clock: Clock | None = None) -> None:
        self.registry = registry
        self._clock: Clock = clock or SystemClock()

    def now(self) -> datetime:
        return self._clock.now().astimezone(UTC)

    # -- what is wanted ----------------------------------------------------------------------------------------------

    async def create(
        self, connection: Any, caller: Caller, entity: Entity, draft: Draft, owner_id: UUID | None
    ) -> tuple[Stored, Placement | None]:
        now = self.now()
        tenant = caller.tenant
        if owner_id is not None:
            parent = await self._parent(connection, caller, entity, owner_id)
            tenant = parent.tenant
        wanted = Stored(
            uuid7(),
            entity.kind,
            draft.name,
            "" if entity.regional else tenant,
            owner_id,
            entity.parent_kind or None,
            1,
            1,
            msgspec.Raw(msgspec.json.encode(draft.spec)),
            draft.labels or {},
            msgspec.Raw(b"[]"),
            caller.request_id,
            now,
            caller.actor,
            now,
            caller.actor,
            None,
            None,
        )
        if entity.required_adapters:
            wanted = _with(wanted, aggregate(self._subject(wanted, entity, has_children=False), ()))
        try:
            made = await store.insert(connection, wanted)
        except store.NameTaken:
            raise Exists(f"{entity.kind} with name '{draft.name}' already exists") from None
        if entity.required_adapters:
            await connection.execute(
                "INSERT INTO pulses (resource_id, due) VALUES ($1, $2)", made.id, now + FIRST_PULSE
            )
        placement = None
        if entity.kind == CLUSTER:
            placement = await reservations.reserve(connection, made, now)
        elif entity.kind == MANAGEMENT_CLUSTER:
            await reservations.enrol(connection, made)
        return made, placement

    async def patch(self, connection: Any, caller: Caller, found: Stored, draft: Draft, if_match: str = "") -> Stored:
        """`found` is locked. Returns it unchanged if nothing differs."""
        entity = self._entity(found)
        if if_match and if_match not in ("*", f'"{found.revision}"'):
            raise Overtaken(f'the resource is at revision "{found.revision}", not {if_match[:100]}')
        if found.deleted_time is not None:
            raise WrongState(f"{found.kind} '{found.id}' is marked for deletion")
        old = msgspec.json.decode(found.spec)
        spec = old if draft.spec is None else draft.spec
        labels = found.labels if draft.labels is None else draft.labels
        if faults := immutable_faults(entity, old, spec):
            raise Invalid.because(faults)
        if spec == old and labels == found.labels and draft.references is None:
            return found
        now = self.now()
        wanted = msgspec.structs.replace(
            found,
            generation=found.generation + 1,
            spec=msgspec.Raw(msgspec.json.encode(spec)),
            labels=labels,
            request_id=caller.request_id,
            updated_time=now,
            updated_by=caller.actor,
        )
        if entity.required_adapters:
            wanted = await self._recomputed(connection, wanted, entity)
        made = await store.update(connection, wanted, "updated")
        if entity.kind == MANAGEMENT_CLUSTER:
            try:
                await reservations.enrol(connection, made)
            except reservations.StillHosts as error:
                raise WrongState(f"{entity.kind} '{made.name}': {error}") from None
        return made

    # -- deletion ----------------------------------------------------------------------------------------------------

    async def delete(self, connection: Any, caller: Caller, found: Stored, *, upward: bool = True) -> Stored:
        """`found` and its parent are locked. Marks it and all below it; what nobody has to finalize is gone at once."""
        entity = self._entity(found)
        for kind in self.registry.children(entity):
            children = await self._children(connection, found.id, kind)
            active = [child for child in children if child.deleted_time is None]
            if active and kind.on_parent_delete == "restrict":
                names = ", ".join(child.name for child in active[:5])
                raise WrongState(f"{entity.kind} '{found.id}' still has {kind.plural}: {names}")
            for child in children:
                await self.delete(connection, caller, child, upward=False)
        if entity.kind == MANAGEMENT_CLUSTER and (hosted := await reservations.hosted_by(connection, found.id)):
            raise WrongState(f"{entity.kind} '{found.name}' still hosts {hosted} clusters")
        now = self.now()
        if found.deleted_time is None:
            found = msgspec.structs.replace(
                found,
                generation=found.generation + 1,
                request_id=caller.request_id,
                updated_time=now,
                updated_by=caller.actor,
                deleted_time=now,
                deleted_by=caller.actor,
            )
            if entity.required_adapters:
                found = await self._recomputed(connection, found, entity)
            found = await store.update(connection, found, "deleted")
        if not entity.required_adapters and not await self._has_children(connection, found.id):
            await self._remove(connection, found, caller.actor, caller.request_id, upward=upward)
        return found

    async def force_delete(
        self, connection: Any, caller: Caller, found: Stored, reason: str, *, upward: bool = True
    ) -> None:
        """`found` and its parent are locked. Forget it and all below it; what adapters made of it may stay."""
        if found.deleted_time is None:
            raise WrongState(f"{found.kind} '{found.id}' is not in Finalizing state")
        for kind in self.registry.children(self._entity(found)):
            for child in await self._children(connection, found.id, kind):
                await self.force_delete(connection, caller, child, reason, upward=False)
        await self._remove(connection, found, caller.actor, caller.request_id, reason, upward=upward)
        extra = {"resource": str(found.id), "kind": found.kind, "actor": caller.actor, "reason": reason}
        log.warning("force-deleted", extra=extra | {"request_id": caller.request_id})

    # -- what is observed --------------------------------------------------------------------------------------------

    async def take_report(self, connection: Any, caller: Caller, found: Stored, report: Report) -> Report | None:
        """`found` (and, if the report finalizes it, its parent) is locked. None if the report is discarded."""
        entity = self._entity(found)
        if report.observed_generation > found.generation:
            return None
        known = {kept.adapter: kept for kept in await reports.reports_on(connection, found.id)}
        before = known.get(report.adapter)
        if before is not None and report.is_older_than(before):
            return None
        if missing := report.missing_mandatory():
            raise Invalid(f"missing mandatory condition '{missing}'")
        finalizes = found.deleted_time is not None and report.status_of("Finalized") == "True"
        unknown = report.status_of("Available") == "Unknown"
        if unknown and before is not None and not finalizes:
            return None
        repeated = before is not None and report.is_as_old_as(before)
        kept = before if before is not None and repeated else reports.succeeding(before, report)
        known[report.adapter] = kept
        if finalizes and await self._finished(connection, found, entity, known.values()):
            await self._remove(connection, found, report.adapter, caller.request_id)
            return kept
        if not repeated:
            await reports.keep(connection, found.id, kept)
            if not unknown:
                news = reports.news(before, kept)
                await self._observe(connection, found, entity, known.values(), report.adapter, caller.request_id, news)
        return kept

    async def _observe(
        self,
        connection: Any,
        found: Stored,
        entity: Entity,
        known: Iterable[Report],
        actor: str,
        request_id: str,
        news: dict[str, Any] | None = None,
    ) -> None:
        """`news` is what a report says that the one before did not."""
        wanted = await self._recomputed(connection, found, entity, known)
        now_seen, last_seen = _conditions(wanted), _conditions(found)
        if news or _essence(now_seen) != _essence(last_seen):
            await store.update_conditions(
                connection,
                found,
                wanted.conditions,
                at=self.now(),
                actor=actor,
                request_id=request_id,
                beside={"report": news} if news else None,
            )
        elif now_seen != last_seen:
            await store.confirm_conditions(connection, found, wanted.conditions)

    async def _finished(self, connection: Any, found: Stored, entity: Entity, known: Iterable[Report]) -> bool:
        subject = self._subject(found, entity, has_children=False)
        finalized = all_finalized(subject, [report.observation() for report in known])
        return finalized and not await self._has_children(connection, found.id)

    async def _remove(
        self,
        connection: Any,
        found: Stored,
        actor: str,
        request_id: str,
        reason: str = "",
        *,
        upward: bool = True,
    ) -> None:
        """Gone for good; then its parent, which may have waited for just this."""
        if found.kind == CLUSTER:
            await reservations.release(connection, found.id)
        await connection.execute("DELETE FROM events WHERE resource_id = $1", found.id)
        await store.remove(connection, found, at=self.now(), actor=actor, request_id=request_id, reason=reason)
        log.info("removed", extra={"resource": str(found.id), "kind": found.kind, "request_id": request_id})
        if found.owner_id is None or not upward:
            return
        parent = await lock(connection, found.owner_id)
        if parent is None:
            return
        if parent.deleted_time is None:
            await self._tell_successor(connection, found, actor)
            return
        entity = self._entity(parent)
        known = await reports.reports_on(connection, parent.id)
        if await self._finished(connection, parent, entity, known):
            await self._remove(connection, parent, actor, request_id)
        elif not await self._has_children(connection, parent.id):
            # Its adapters may have waited for this: taking down a parent before its children would strand them.
            document = {"last_child": {"kind": found.kind, "name": found.name}}
            now, request = self.now(), parent.request_id
            await store.note(connection, parent.id, EMPTIED, document, at=now, actor=actor, request_id=request)
            await self._observe(connection, parent, entity, known, actor, request_id)

    async def _tell_successor(self, connection: Any, gone: Stored, actor: str) -> None:
        """Its adapters may have waited for this: on a management cluster the two are one object."""
        row = await connection.fetchrow(
            f"SELECT {store.COLUMNS} FROM resources WHERE owner_id = $1 AND kind = $2 AND name = $3"
            " AND deleted_time IS NULL FOR UPDATE",
            gone.owner_id,
            gone.kind,
            gone.name,
        )
        if row is not None:
            found = store.stored(row)
            document, request = {"predecessor": str(gone.id)}, found.request_id
            await store.note(connection, found.id, FREED, document, at=self.now(), actor=actor, request_id=request)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _entity(self, found: Stored) -> Entity:
        entity = self.registry.of_kind(found.kind)
        if entity is None:
            raise NotFound(f"Resource with id='{found.id}' not found")
        return entity

    async def _parent(self, connection: Any, caller: Caller, entity: Entity, owner_id: UUID) -> Stored:
        """Shared lock: children are created side by side, but not while the parent is being marked for deletion."""
        row = await connection.fetchrow(_LOCK + " FOR SHARE", owner_id)
        parent = None if row is None else store.stored(row)
        if parent is None or parent.kind != entity.parent_kind or not visible(caller, parent):
            raise NotFound(f"{entity.parent_kind} with id='{owner_id}' not found")
        if parent.deleted_time is not None:
            raise WrongState(f"{parent.kind} '{parent.id}' is marked for deletion")
        return parent

    async def _children(self, connection: Any, owner_id: UUID, entity: Entity) -> list[Stored]:
        rows = await connection.fetch(
            f"SELECT {store.COLUMNS} FROM resources WHERE owner_id = $1 AND kind = $2 ORDER BY id FOR UPDATE",
            owner_id,
            entity.kind,
        )
        return [store.stored(row) for row in rows]

    async def _has_children(self, connection: Any, owner_id: UUID) -> bool:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM resources WHERE owner_id = $1)", owner_id))

    async def _recomputed(
        self, connection: Any, found: Stored, entity: Entity, known: Iterable[Report] | None = None
    ) -> Stored:
        if known is None:
            known = await reports.reports_on(connection, found.id)
        below = found.deleted_time is not None and await self._has_children(connection, found.id)
        subject = self._subject(found, entity, has_children=below)
        observations = [report.observation() for report in known]
        return _with(found, aggregate(subject, observations, _conditions(found)))

    def _subject(self, found: Stored, entity: Entity, *, has_children: bool) -> Subject:
        return Subject(
            found.generation, found.updated_time, found.deleted_time is not None, has_children, entity.required_adapters
        )


def visible(caller: Caller, found: Stored) -> bool:
    return caller.system or found.tenant == caller.tenant


async def lock(connection: Any, resource_id: UUID, *, parent_first: bool = False) -> Stored | None:
    """The resource's row; before it its parent's, if the parent may have to go with it."""
    if parent_first:
        owner_id = await connection.fetchval("SELECT owner_id FROM resources WHERE id = $1", resource_id)
        if owner_id is not None:
            await lock(connection, owner_id)
    row = await connection.fetchrow(_LOCK + " FOR UPDATE", resource_id)
    return None if row is None else store.stored(row)


def _conditions(found: Stored) -> list[Condition]:
    return msgspec.json.decode(found.conditions, type=list[Condition])


def _essence(conditions: list[Condition]) -> list[tuple[Any, ...]]:
    """Without the time at which the same was last confirmed."""
    return [
        (found.type, found.status, found.observed_generation, found.last_transition_time, found.reason, found.message)
        for found in conditions
    ]


def _with(found: Stored, conditions: list[Condition]) -> Stored:
    return msgspec.structs.replace(found, conditions=msgspec.Raw(msgspec.json.encode(conditions)))

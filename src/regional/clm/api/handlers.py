"""One request each: from a checked call to rows and back."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response

from regional import __version__
from regional.clm.api import bodies, listing, reports
from regional.clm.api.caller import Caller, demand_system
from regional.clm.api.calls import Call, Where
from regional.clm.api.history import page_of_history
from regional.clm.api.lifecycle import Lifecycle, lock
from regional.clm.api.problems import ChildKind, Denied, Invalid, NotFound
from regional.clm.api.representation import SELECT, project, represent, represent_row
from regional.clm.entities import Entity, Registry
from regional.clm.placement import reservations
from regional.clm.specs import Fault
from regional.core.store import CHANNEL, Stored

log = logging.getLogger(__name__)
T = TypeVar("T")


class Handlers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lifecycle = Lifecycle(registry)
        self._version = __version__

    def metadata(self) -> Response:
        body = {"id": "hyperfleet", "kind": "API", "href": "/api/hyperfleet", "version": self._version}
        return _json(200, body | {"build_time": ""})

    def admit(self, caller: Caller, where: Where) -> None:
        if where.entity is not None and where.entity.regional and not caller.system:
            raise Denied(f"{where.entity.plural} are kept by the region for itself (X-System)")

    # -- reading -----------------------------------------------------------------------------------------------------

    async def list(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        also = frozenset({"kind"}) if where.entity is None else frozenset()
        asked = listing.listing_of(call.query, also)
        kind = where.entity.kind if where.entity is not None else call.query.get("kind", "")
        if kind and self._registry.of_kind(kind) is None:
            raise Invalid.because([Fault("kind", "Unknown entity kind", kind[:100], "enum")])
        if where.owner_id:
            await self._demand_parent(connection, caller, where)
        owner = UUID(where.owner_id) if where.owner_id else None
        scope = listing.Scope(call.tenant, kind, owner)
        rows, total = await listing.run(connection, scope, asked)
        items: list[Any] = [represent_row(self._registry, row) for row in rows]
        if asked.fields:
            items = [project(item, asked.fields) for item in items]
        return _json(200, {"items": items, "page": asked.page, "size": len(items), "total": total})

    async def get(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        row = await connection.fetchrow(f"{SELECT} WHERE resources.id = $1", UUID(where.resource_id))
        if row is None or not self._fits(caller, where, row["kind"], row["tenant"], row["owner_id"]):
            await self._not_found(connection, caller, where)
        return _json(200, represent_row(self._registry, row), row["revision"])

    async def history(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        asked = _paging(call.query)
        kind = where.entity.kind if where.entity is not None else ""
        if where.owner_id:
            await self._demand(connection, caller, where)  # history does not know owners
        entries, total = await page_of_history(
            connection, UUID(where.resource_id), kind, call.tenant, asked.size, asked.page
        )
        if not total:
            await self._not_found(connection, caller, where)
        return _json(200, {"items": entries, "page": asked.page, "size": len(entries), "total": total})

    async def list_reports(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        asked = _paging(call.query, frozenset({"order", "search"}))
        await self._demand(connection, caller, where)
        found, total = await reports.page_of_reports(connection, UUID(where.resource_id), asked.size, asked.page)
        items = [report.masked() for report in found]
        return _json(200, {"items": items, "page": asked.page, "size": len(items), "total": total})

    async def get_report(self, call: Call, connection: Any) -> Response:
        """The one report whole, with what lists mask: the customer's kubeconfig is in it."""
        caller, where = call.caller, call.where
        await self._demand(connection, caller, where)
        report = None
        if "\0" not in where.adapter:
            report = await reports.one_report(connection, UUID(where.resource_id), where.adapter)
        if report is None:
            raise NotFound(f"{where.kind} with id='{where.resource_id}' has no report of '{where.adapter[:100]}'")
        return _json(200, report)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def reconcile(self, call: Call, connection: Any) -> Response:
        """Every resource is looked at now, behind what somebody waits for: what adapters made may have been lost."""
        demand_system(call.caller, "reconciling everything")
        async with connection.transaction():
            resources = await connection.fetchval(
                "WITH due AS (UPDATE pulses SET due = now() RETURNING 1) SELECT count(*) FROM due"
            )
            await connection.execute(f"NOTIFY {CHANNEL}")
        log.info("everything is looked at again", extra={"resources": resources, "request_id": call.caller.request_id})
        return _json(202, {"resources": resources})

    async def create(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        document = call.document
        entity = where.entity or self._entity_in(caller, document)
        draft = bodies.draft_of_create(document, entity)
        parent = self._registry.parent(entity)
        if parent is not None and not where.owner_id:
            raise ChildKind(
                f"kind {entity.kind} is a child kind; create it via /{parent.plural}/{{id}}/{entity.plural}"
            )
        owner = UUID(where.owner_id) if where.owner_id else None

        async def work() -> tuple[Stored, reservations.Placement | None]:
            return await self._lifecycle.create(connection, caller, entity, draft, owner)

        made, placement = await _in_transaction(connection, work)
        more = {"tenant": made.tenant}
        if placement is not None:
            more["placement"] = placement.management_cluster or f"waiting: {placement.reason}"
        _log("created", made, call, more)
        return _json(201, represent(self._registry, made, placement), made.revision)

    async def patch(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        document = call.document

        async def work() -> Stored:
            found = await self._locked(connection, caller, where)
            entity = self._registry.of_kind(found.kind)
            assert entity is not None
            draft = bodies.draft_of_patch(document, entity)
            return await self._lifecycle.patch(connection, caller, found, draft, call.if_match)

        if where.entity is not None:
            bodies.draft_of_patch(document, where.entity)  # a bad body is told before a missing resource
        made = await _in_transaction(connection, work)
        _log("updated", made, call)
        return await self._written(connection, 200, made)

    async def delete(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where

        async def work() -> tuple[Stored, reservations.Placement | None]:
            found = await self._locked(connection, caller, where, parent_first=True)
            placement = await self._placement(connection, found)
            return await self._lifecycle.delete(connection, caller, found), placement

        made, placement = await _in_transaction(connection, work)
        _log("marked for deletion", made, call)
        return _json(202, represent(self._registry, made, placement), made.revision)

    async def force_delete(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        demand_system(caller, "force-delete")
        reason = bodies.reason_of_force_delete(call.document)

        async def work() -> None:
            found = await self._locked(connection, caller, where, parent_first=True)
            await self._lifecycle.force_delete(connection, caller, found, reason)

        await _in_transaction(connection, work)
        return Response(status_code=204)

    async def put_report(self, call: Call, connection: Any) -> Response:
        caller, where = call.caller, call.where
        demand_system(caller, "reporting a status")
        report = reports.report_of(call.document, self._lifecycle.now())
        finalizes = report.status_of("Finalized") == "True"

        async def work() -> reports.Report | None:
            found = await lock(connection, UUID(where.resource_id), parent_first=finalizes)
            if found is None or not self._fits(caller, where, found.kind, found.tenant, found.owner_id):
                await self._not_found(connection, caller, where)
            return await self._lifecycle.take_report(connection, caller, found, report)

        kept = await _in_transaction(connection, work)
        extra = {"resource": where.resource_id, "kind": where.kind, "generation": report.observed_generation}
        extra |= {"adapter": report.adapter, "available": report.status_of("Available"), "kept": kept is not None}
        log.info("reported on", extra=extra | _span("clm.status", call))
        return Response(status_code=204) if kept is None else _json(201, kept)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _entity_in(self, caller: Caller, document: dict[str, Any]) -> Entity:
        kind = document.get("kind")
        entity = self._registry.of_kind(kind) if isinstance(kind, str) else None
        if entity is None:
            shown = kind[:100] if isinstance(kind, str) else None
            raise Invalid.because([Fault("kind", "Unknown entity kind", shown, "enum")])
        self.admit(caller, Where(entity))
        return entity

    def _fits(self, caller: Caller, where: Where, kind: str, tenant: str, owner_id: UUID | None) -> bool:
        return (
            (caller.system or tenant == caller.tenant)
            and (where.entity is None or where.entity.kind == kind)
            and (not where.owner_id or str(owner_id) == where.owner_id)
        )

    async def _not_found(self, connection: Any, caller: Caller, where: Where) -> NoReturn:
        if where.owner_id:
            await self._demand_parent(connection, caller, where)
        raise NotFound(f"{where.kind} with id='{where.resource_id}' not found")

    async def _demand(self, connection: Any, caller: Caller, where: Where) -> None:
        row = await connection.fetchrow(
            "SELECT kind, tenant, owner_id FROM resources WHERE id = $1", UUID(where.resource_id)
        )
        if row is None or not self._fits(caller, where, row["kind"], row["tenant"], row["owner_id"]):
            await self._not_found(connection, caller, where)

    async def _demand_parent(self, connection: Any, caller: Caller, where: Where) -> None:
        assert where.entity is not None
        parent = Where(self._registry.parent(where.entity), where.owner_id)
        await self._demand(connection, caller, parent)

    async def _locked(self, connection: Any, caller: Caller, where: Where, *, parent_first: bool = False) -> Stored:
        found = await lock(connection, UUID(where.resource_id), parent_first=parent_first)
        if found is None or not self._fits(caller, where, found.kind, found.tenant, found.owner_id):
            await self._not_found(connection, caller, where)
        return found

    async def _placement(self, connection: Any, found: Stored) -> reservations.Placement | None:
        if found.kind != reservations.CLUSTER:
            return None
        row = await connection.fetchrow(
            f"SELECT {reservations.COLUMNS} FROM resources {reservations.JOIN} WHERE resources.id = $1", found.id
        )
        return None if row is None else reservations.placement_of(row)

    async def _written(self, connection: Any, status: int, made: Stored) -> Response:
        placement = await self._placement(connection, made)
        return _json(status, represent(self._registry, made, placement), made.revision)


def _span(name: str, call: Call) -> dict[str, Any]:
    taken = (time.perf_counter() - call.began) * 1000
    return {"span": name, "ms": round(taken, 2), "request_id": call.caller.request_id}


def _log(what: str, made: Stored, call: Call, more: Mapping[str, str] | None = None) -> None:
    extra = {"resource": str(made.id), "kind": made.kind, "generation": made.generation, **(more or {})}
    log.info(what, extra=extra | _span("clm.commit", call))


async def _in_transaction(connection: Any, work: Callable[[], Awaitable[T]]) -> T:
    async with connection.transaction():
        return await work()


def _paging(query: QueryParams, ignored: frozenset[str] = frozenset()) -> listing.Listing:
    """Only page and size; `ignored` is what the contract accepts without effect."""
    named = [(name, value) for name, value in query.multi_items() if name not in ignored]
    refused = frozenset({"order", "search", "fields", "after"})
    return listing.listing_of(QueryParams(named), without=refused)


def _json(status: int, body: Any, revision: int | None = None) -> Response:
    headers = {} if revision is None else {"ETag": f'"{revision}"'}
    return Response(msgspec.json.encode(body), status, headers, "application/json")

"""What a client publishes: a bundle's create, update or delete, or the wish to hear statuses again.

The texts of refusals are matched on by clients in the field; the codes are ours, and say what an `Unknown` would hide.
"""

from __future__ import annotations

import time
from typing import Any

import asyncpg
import grpc
import msgspec

from regional.core.database import Database
from regional.maestro.protocol.bundles import StatusHashes, decode_data
from regional.maestro.protocol.canonical import NO_STATUS
from regional.maestro.protocol.events import CREATE, DELETE, RESYNC, SPEC, STATUS, UPDATE, Event, MalformedEvent
from regional.maestro.protocol.tracing import request_id_of
from regional.maestro.server import admission
from regional.maestro.server.bundles import CHANNEL
from regional.maestro.server.connection import FAILURES, pool_of
from regional.maestro.server.model import Bundle
from regional.maestro.server.refusals import CONFLICT, FORBIDDEN, MALFORMED, NOT_FOUND, VALIDATION, Refusal
from regional.maestro.server.writes import Writes

_CODES = {
    FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    VALIDATION: grpc.StatusCode.INVALID_ARGUMENT,
    MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
}
_AGAIN = f"""
WITH told AS (
    INSERT INTO events (resource_id, source, kind)
    SELECT r.id, r.source, 'status' FROM resources r
    LEFT JOIN (SELECT DISTINCT ON (id) id, hash FROM unnest($3::text[], $4::text[]) AS given (id, hash)) AS known
        ON known.id = r.id
    WHERE r.source = $1 AND r.status IS NOT NULL
        AND ($2 OR known.hash <> coalesce(r.status_hash, '{NO_STATUS}'))
    RETURNING 1
)
SELECT count(*), pg_notify('{CHANNEL}', $1) FROM told
"""
_MOST_VERSION = 2**31 - 1


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Publishing:
    def __init__(self, database: Database, writes: Writes) -> None:
        self._database, self._writes = database, writes

    async def publish(self, event: Event) -> None:
        """Raises Refused."""
        started = time.monotonic()
        try:
            if event.subresource == STATUS and event.action == RESYNC:
                await self._tell_again(event)
            elif event.subresource != SPEC or event.action not in (CREATE, UPDATE, DELETE):
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"unsupported action {event.action[:80]}")
            else:
                await self._write(event, started)
        except FAILURES as error:
            text = f"the database cannot be reached: {error or type(error).__name__}"
            raise Refused(grpc.StatusCode.UNAVAILABLE, text) from None
        except asyncpg.DataError as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"a value is not possible: {error}") from None

    async def _write(self, event: Event, started: float) -> None:
        try:
            _check_identity(event)
        except MalformedEvent as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"failed to decode cloudevent: {error}") from None
        doing = {CREATE: "create", UPDATE: "update", DELETE: "delete"}[event.action]
        try:
            if event.action == DELETE:
                request_id = admission.checked_request_id(request_id_of(event.extensions))
                await self._writes.delete(event.resource_id, request_id, started, event.source)
            elif event.action == CREATE:
                await self._create(event, started)
            else:
                await self._update(event, started)
        except Refusal as error:
            if event.action == UPDATE and error.code == NOT_FOUND:
                doing = "get"
            code = _CODES.get(error.code, grpc.StatusCode.INTERNAL)
            raise Refused(code, f"failed to {doing} resource: maestro-{error.code}: {error.reason}") from None

    async def _create(self, event: Event, started: float) -> None:
        new = admission.published_bundle(event, self._writes.largest)
        try:
            _, _, fresh = await self._writes.create(new, started)
        except Refusal as error:
            if error.code != NOT_FOUND:
                raise
            # Clients know a missing consumer by the name of the database's constraint.
            raise Refusal(NOT_FOUND, f"{error.reason} (fk_resources_consumers)") from None
        if not fresh:
            raise Refusal(CONFLICT, "This Resource already exists")

    async def _update(self, event: Event, started: float) -> None:
        def following(bundle: Bundle) -> tuple[str, str, str]:
            if bundle.source != event.source or bundle.consumer_name != event.consumer:
                raise Refusal(
                    FORBIDDEN, f"the resource belongs to source {bundle.source} and consumer {bundle.consumer_name}"
                )
            new = admission.published_bundle(event, self._writes.largest)
            return new.metadata, new.spec, new.request_id

        await self._writes.update(event.resource_id, event.version or None, following, started)

    async def _tell_again(self, event: Event) -> None:
        """Through the change feed: the subscriber may be connected to another replica than the one that it asks."""
        try:
            known: StatusHashes = decode_data(event.data or b"{}", StatusHashes)
        except MalformedEvent as error:
            text = f"failed to respond resync status request: {error}"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text) from None
        hashes = known.status_hashes or []
        await pool_of(self._database).fetchrow(
            _AGAIN, event.source, not hashes, [found.resource_id for found in hashes], [found.hash for found in hashes]
        )


def _check_identity(event: Event) -> None:
    for name in ("clustername", "resourceid", "resourceversion"):
        if name not in event.extensions:
            raise MalformedEvent(f"failed to get {name} extension: invalid CloudEvents value: <nil>")
    if not event.resource_id:
        raise MalformedEvent("resourceid is empty")
    if not 0 <= event.version < _MOST_VERSION:
        raise MalformedEvent(f"resourceversion {event.version} is out of range")


def status_data(bundle: Bundle) -> bytes:
    """The status as it came, with the spec that it is about: such clients keep no copy of what they sent."""
    status: dict[str, Any] = msgspec.json.decode(bundle.status or "{}", type=dict[str, msgspec.Raw])
    if bundle.spec != "{}":
        status["manifestBundle"] = msgspec.Raw(bundle.spec.encode())
    return msgspec.json.encode(status)

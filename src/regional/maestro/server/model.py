"""The two things that Maestro keeps, as rows, and how a row becomes the message that carries it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from regional.core.clock import rfc3339
from regional.maestro.protocol import bundles
from regional.maestro.protocol.events import CREATE, DELETE, RESYNC_RESPONSE, UPDATE, Event, timestamp

SILENT = timedelta(minutes=3)
"""Our agents repeat their resync every minute, so a consumer that is silent for longer is not connected."""


class Consumer(msgspec.Struct, kw_only=True):
    id: str
    name: str
    labels: str | None = None
    created_at: datetime
    updated_at: datetime
    last_seen_at: datetime | None = None
    agent: str | None = None
    agent_version: str | None = None
    agent_certificate: str | None = None
    """SHA-256 of the certificate that the agent came in with, as AWS IoT's certificate ids are."""
    absent_since: datetime | None = None
    """Since when the broker has said that nobody listens to the consumer's topic."""
    cluster_unreachable: str | None = None
    """Why the agent cannot reach its cluster's API, in its own words."""
    cluster_unreachable_since: datetime | None = None

    @property
    def contact(self) -> Contact:
        return Contact(self.last_seen_at, self.absent_since, self.cluster_unreachable)


class Contact(msgspec.Struct, frozen=True):
    """How well a consumer can be reached: what a bundle that is not applied may be waiting for."""

    last_seen_at: datetime | None = None
    absent_since: datetime | None = None
    cluster_unreachable: str | None = None

    def connected(self, now: datetime) -> bool:
        return self.last_seen_at is not None and self.absent_since is None and now - self.last_seen_at <= SILENT


class Backlog(msgspec.Struct, frozen=True):
    """What a consumer has not confirmed."""

    pending: int = 0
    oldest_at: datetime | None = None


class Bundle(msgspec.Struct, kw_only=True):
    """`metadata`, `spec` and `status` are JSON texts, passed on and seldom taken apart."""

    id: str
    name: str
    source: str
    consumer_name: str
    version: int
    metadata: str
    spec: str
    request_id: str
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    status: str | None = None
    status_version: int | None = None
    status_sequence: int | None = None
    status_hash: str | None = None
    status_at: datetime | None = None
    applied: bool = False
    attempts: int = 0
    due_at: datetime | None = None


COLUMNS = ", ".join(Bundle.__struct_fields__)
QUALIFIED = ", ".join(f"r.{name}" for name in Bundle.__struct_fields__)
CONSUMER_COLUMNS = ", ".join(Consumer.__struct_fields__)
CONTACT = ", ".join(f"c.{name}" for name in Contact.__struct_fields__)


def bundle_of(row: Mapping[str, Any]) -> Bundle:
    return Bundle(**{name: row[name] for name in Bundle.__struct_fields__})


def consumer_of(row: Mapping[str, Any]) -> Consumer:
    return Consumer(**{name: row[name] for name in Consumer.__struct_fields__})


def contact_of(row: Mapping[str, Any]) -> Contact:
    return Contact(*(row[name] for name in Contact.__struct_fields__))


def with_row_times(metadata: str, created: datetime, deleted: datetime | None) -> dict[str, Any]:
    """Stored metadata plus what only the row knows."""
    document: dict[str, Any] = msgspec.json.decode(metadata)
    document["creationTimestamp"] = rfc3339(created)
    if deleted is not None:
        document["deletionTimestamp"] = rfc3339(deleted)
    return document


def shown_metadata(bundle: Bundle) -> dict[str, Any]:
    """As Maestro's clients read it: they know a work by its uid, which is the bundle's id, and change or delete none
    without."""
    return with_row_times(bundle.metadata, bundle.created_at, bundle.deleted_at) | {"uid": bundle.id}


def spec_event(bundle: Bundle, source_id: str, action: str = "") -> Event:
    """The bundle's newest version, or its deletion, as its agent is told.

    The agent knows the work by the bundle's id. The event's id is the same each time that one version is sent.
    """
    metadata = with_row_times(bundle.metadata, bundle.created_at, bundle.deleted_at) | {"name": bundle.id}
    deleted = bundle.deleted_at
    action = action or (DELETE if deleted else CREATE if bundle.version == 1 else UPDATE)
    return bundles.spec_event(
        action,
        source=source_id,
        consumer=bundle.consumer_name,
        resource_id=bundle.id,
        version=bundle.version,
        data=bundle.spec.encode(),
        metadata=msgspec.json.encode(metadata, order="sorted").decode(),
        deletion=timestamp(deleted) if deleted else "",
        request_id=bundle.request_id,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{bundle.id} {bundle.version} {'deleted' if deleted else ''}")),
        time=timestamp(deleted or bundle.updated_at),
        known_sequence=(bundle.status_sequence or 0) if action == RESYNC_RESPONSE else 0,
    )

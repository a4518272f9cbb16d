"""Names that both sides, and every other client of Maestro, must compute alike."""

from __future__ import annotations

import hashlib
import uuid


def resource_uid(source: str, consumer: str, work: str) -> str:
    """The id of the bundle that a source keeps for a ManifestWork: writing it again finds the same bundle."""
    name = f"{source}-manifestworks.work.open-cluster-management.io-{consumer}-{work}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def consumer_uid(name: str) -> str:
    """A consumer's id follows from its name: one that comes back after a lost database is the same to its clients."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"consumers.maestro-{name}"))


def hub_hash(broker_host: str) -> str:
    """Which hub an applied work belongs to, from the broker's address as it is configured."""
    return hashlib.sha256(broker_host.encode()).hexdigest()


def applied_work_name(hub: str, work: str) -> str:
    return f"{hub}-{work}"

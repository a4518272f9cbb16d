"""The events themselves: specs down, statuses up, and both resyncs.

The spec's payload is kept and passed on as bytes; an agent decodes it, a server never has to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from regional.maestro.protocol.events import (
    RESYNC,
    RESYNC_RESPONSE,
    SPEC,
    STATUS,
    UPDATE,
    Event,
    MalformedEvent,
    event_type,
)
from regional.maestro.protocol.tracing import log_tracing

LARGEST_BUNDLE = 500 * 1024
LARGEST_MESSAGE = 128 * 1024  # the payload that AWS IoT takes, and so does the broker of a region on one machine
LARGEST_RESYNC = 120 * 1000
DEEPEST = 64  # levels of a manifest, more than any kind of object has; every step on the way walks them by recursion
SAID_BY_AGENTS = ("Applied", "Deleting", "Deleted")
"""Conditions that servers act upon. A bundle's own rules must not speak in the agent's place."""


class Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


class Identifier(msgspec.Struct, frozen=True):
    """Which manifest a configuration is for; name and namespace may have `*`."""

    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""


class JsonPath(msgspec.Struct, frozen=True):
    name: str
    path: str = ""
    version: str = ""


class FeedbackRule(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    json_paths: list[JsonPath] = []


class IgnoreFields(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that the cluster's own controllers may change: `OnSpokePresent` once they are there, `OnSpokeChange` as
    long as the manifest itself stays as it is."""

    condition: str = ""
    json_paths: list[str] = []


class ServerSideApply(msgspec.Struct, frozen=True, rename="camel"):
    force: bool = False
    field_manager: str = "work-agent"
    ignore_fields: list[IgnoreFields] = []


class UpdateStrategy(msgspec.Struct, frozen=True, rename="camel"):
    type: str = "Update"
    server_side_apply: ServerSideApply | None = None


class ConditionRule(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the manifest, true when every expression over `object` is."""

    condition: str
    type: str = ""
    cel_expressions: list[str] = []
    message: str = ""
    message_expression: str = ""


class ManifestConfig(msgspec.Struct, frozen=True, rename="camel"):
    resource_identifier: Identifier
    feedback_rules: list[FeedbackRule] = []
    update_strategy: UpdateStrategy | None = None
    condition_rules: list[ConditionRule] = []
    feedback_scrape_type: str = ""


class SelectivelyOrphans(msgspec.Struct, frozen=True, rename="camel"):
    orphaning_rules: list[Identifier] = []


class DeleteOption(msgspec.Struct, frozen=True, rename="camel"):
    propagation_policy: str = "Foreground"
    selectively_orphans: SelectivelyOrphans | None = None
    ttl_seconds_after_finished: int | None = None


class ServiceAccount(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class Subject(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    service_account: ServiceAccount | None = None


class Executor(msgspec.Struct, frozen=True):
    """On whose rights the bundle is applied."""

    subject: Subject = Subject()


class ManifestBundle(msgspec.Struct, frozen=True, rename="camel"):
    """`executer` is spelt as on the wire."""

    manifests: list[dict[str, Any]]
    delete_option: DeleteOption | None = None
    manifest_configs: list[ManifestConfig] | None = None
    executer: Executor | None = None


class ResourceMeta(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class FeedbackValue(msgspec.Struct, rename="camel"):
    name: str = ""
    field_value: dict[str, Any] | None = None


class StatusFeedback(msgspec.Struct):
    values: list[FeedbackValue] | None = None


class ResourceStatus(msgspec.Struct, rename="camel"):
    resource_meta: ResourceMeta | None = None
    status_feedback: StatusFeedback | None = None
    conditions: list[Condition] | None = None


class StatusData(msgspec.Struct, rename="camel"):
    """A status' payload as far as anybody looks into it: what has this shape is passed on as it came. Whoever reads
    bundles relies on that, so a server takes no status of another."""

    conditions: list[msgspec.Raw] | None = None
    resource_status: list[ResourceStatus] | None = None


class ResourceVersion(msgspec.Struct):
    resource_id: str = msgspec.field(name="resourceID")
    version: int = msgspec.field(name="resourceVersion")


class StatusHash(msgspec.Struct):
    resource_id: str = msgspec.field(name="resourceID")
    hash: str = msgspec.field(name="statusHash")


class ResourceVersions(msgspec.Struct, rename="camel"):
    resource_versions: list[ResourceVersion] | None = None


class StatusHashes(msgspec.Struct, rename="camel"):
    status_hashes: list[StatusHash] | None = None


def decode_data(data: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(str(error)) from None


def without_nulls(value: Any) -> Any:
    """As Kubernetes reads it: a field that is null is one that is left out."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def is_deep(value: Any, levels: int = DEEPEST) -> bool:
    """Whether maps and lists are nested deeper than this. Level by level, so that no depth can break it."""
    here = [value]
    for _ in range(levels + 1):
        here = [
            inner
            for outer in here
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not here:
            return False
    return True


def spec_event(
    action: str,
    *,
    source: str,
    consumer: str,
    resource_id: str,
    version: int,
    data: bytes = b"",
    metadata: str = "",
    deletion: str = "",
    request_id: str = "",
    id: str = "",  # noqa: A002
    time: str = "",
    known_sequence: int = 0,
) -> Event:
    """`known_sequence` (an addition of ours) is that of the status which the server has: the agent must count on from
    there, or the server would ignore it."""
    extensions = {
        "clustername": consumer,
        "originalsource": "",
        "resourceid": resource_id,
        "resourceversion": str(version),
        "logtracing": log_tracing(request_id),
    }
    if metadata:
        extensions["metadata"] = metadata
    if deletion:
        extensions["deletiontimestamp"] = deletion
    if known_sequence:
        extensions["knownsequence"] = str(known_sequence)
    return Event(id=id, source=source, type=event_type(SPEC, action), time=time, extensions=extensions, data=data)


def status_event(
    *,
    source: str,
    consumer: str,
    original_source: str,
    resource_id: str,
    version: int,
    sequence: int,
    hash: str,  # noqa: A002
    conditions: Sequence[Any],
    resource_status: Sequence[Any],
    metadata: str,
    request_id: str = "",
    time: str = "",
    resync: bool = False,
) -> Event:
    extensions = {
        "clustername": consumer,
        "originalsource": original_source,
        "resourceid": resource_id,
        "resourceversion": str(version),
        "sequenceid": str(sequence),
        "statushash": hash,
        "metadata": metadata,
        "logtracing": log_tracing(request_id),
    }
    payload: dict[str, Any] = {"conditions": conditions}
    if resource_status:
        payload["resourceStatus"] = resource_status
    kind = event_type(STATUS, RESYNC_RESPONSE if resync else UPDATE)
    return Event(source=source, type=kind, time=time, extensions=extensions, data=msgspec.json.encode(payload))


def spec_resync_events(
    source: str,
    consumer: str,
    works: Iterable[tuple[str, int]],
    limit: int = LARGEST_RESYNC,
    *,
    agent_version: str = "",
    unreachable: str = "",
    certificate: str = "",
) -> Iterator[Event]:
    """What an agent has, in as few messages as fit. The first says who the agent is, which certificate it came
    in with, and why it cannot reach its cluster, if it cannot: additions of ours that other servers pass over.

    The wire knows only whole lists. A list that does not fit goes in parts that say which ids they speak of, an
    addition of ours: another server takes each part for the whole and sends what the part lacks once more, which
    costs traffic and breaks nothing.
    """
    chunks = list(_chunks([ResourceVersion(*work) for work in sorted(works)], limit)) or [[]]
    for number, chunk in enumerate(chunks):
        extensions = {"clustername": consumer, "originalsource": ""}
        if number == 0 and agent_version:
            extensions["agentversion"] = agent_version
        if number == 0 and certificate:
            extensions["agentcertificate"] = certificate
        if number == 0 and unreachable:
            extensions["clusterunreachable"] = unreachable[:300]
        if number > 0:
            extensions["resyncfrom"] = chunk[0].resource_id
        if number < len(chunks) - 1:
            extensions["resyncuntil"] = chunks[number + 1][0].resource_id
        data = msgspec.json.encode(ResourceVersions(chunk))
        yield Event(source=source, type=event_type(SPEC, RESYNC), extensions=extensions, data=data)


def status_resync_events(
    source: str, consumer: str, hashes: Iterable[tuple[str, str]], limit: int = LARGEST_RESYNC
) -> Iterator[Event]:
    """What a server knows. An agent passes over ids that a list does not name, so lists may be cut anywhere."""
    for chunk in list(_chunks([StatusHash(*found) for found in hashes], limit)) or [[]]:
        extensions = {"clustername": consumer, "originalsource": ""}
        data = msgspec.json.encode(StatusHashes(chunk))
        yield Event(source=source, type=event_type(STATUS, RESYNC), extensions=extensions, data=data)


def _chunks(entries: Sequence[Any], limit: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    size = 0
    for entry in entries:
        length = len(msgspec.json.encode(entry)) + 1
        if chunk and size + length > limit - 32:
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += length
    if chunk:
        yield chunk

"""The way to a management cluster: a ManifestWork of a task becomes a resource bundle of Maestro.

A bundle's id follows from the source, the consumer and the work's name, so that asking twice makes one bundle. The
generation that a bundle was made from is in its annotations: the same generation is left alone, another is an update.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec
import yaml

from regional.maestro.client import MaestroClient, MaestroError

Document = dict[str, Any]
Operation = Literal["created", "updated", "kept", "deleting", "gone", "waiting"]

SOURCE = "clm"
GENERATION = "hyperfleet.io/generation"


class TransportError(Exception):
    """`reason` is one word for a condition, the message is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Found(msgspec.Struct, frozen=True):
    operation: Operation
    bundle: Document | None


def bundle_id(consumer: str, work: str) -> str:
    """As Maestro's own client for ManifestWorks makes it."""
    text = f"{SOURCE}-manifestworks.work.open-cluster-management.io-{consumer}-{work}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def read_work(text: str) -> Document:
    """A rendered manifest. Raises TransportError."""
    try:
        work = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise TransportError("InvalidManifest", f"the rendered manifest is no YAML: {error}") from None
    if not isinstance(work, dict) or work.get("kind") != "ManifestWork":
        raise TransportError("InvalidManifest", "the rendered manifest is no ManifestWork")
    annotation = ((work.get("metadata") or {}).get("annotations") or {}).get(GENERATION, "")
    if not (isinstance(annotation, str) and annotation.isdigit() and int(annotation) > 0):
        raise TransportError("InvalidManifest", f"the ManifestWork has no annotation {GENERATION} with a number")
    return work


class MaestroTransport:
    def __init__(self, maestro: MaestroClient) -> None:
        self._maestro = maestro

    async def find(self, consumer: str, work: str) -> Document | None:
        return await self._maestro.get_bundle_or_none(bundle_id(consumer, work))

    async def apply(self, consumer: str, work: Document, existing: Document | None, request_id: str) -> Found:
        spec, metadata = work["spec"], work["metadata"]
        content: Document = {
            "metadata": metadata,
            "manifests": spec["workload"]["manifests"],
            "manifest_configs": spec.get("manifestConfigs") or [],
            "delete_option": spec.get("deleteOption"),
            "request_id": request_id,
        }
        try:
            if existing is None:
                made = await self._maestro.create_bundle(
                    consumer, id=bundle_id(consumer, metadata["name"]), source=SOURCE, **content
                )
                return Found("created", made)
            if existing.get("deleted_at"):
                raise TransportError("BeingDeleted", "the former resource bundle is still being deleted")
            if generation_of(existing) == metadata["annotations"][GENERATION]:
                return Found("kept", existing)
            made = await self._maestro.patch_bundle(existing["id"], version=existing["version"], **content)
            return Found("updated", made)
        except MaestroError as error:
            if error.code == "maestro-7" and existing is None:
                message = f"management cluster {consumer!r} is not registered with Maestro"
                raise TransportError("UnknownConsumer", message) from None
            if error.conflict:
                raise TransportError("Conflict", f"somebody else changed the resource bundle: {error.reason}") from None
            raise

    async def delete(self, consumer: str, work: str, existing: Document | None, request_id: str) -> Found:
        """Also of a bundle that Maestro does not know: with its database lost an agent may have it all the same, and
        Maestro keeps in mind what it is asked to delete."""
        if existing is not None and existing.get("deleted_at"):
            return Found("deleting", existing)
        wanted = bundle_id(consumer, work)
        try:
            await self._maestro.delete_bundle(wanted, request_id=request_id)
        except MaestroError as error:
            if not error.not_found:
                raise
        after = await self._maestro.get_bundle_or_none(wanted)
        return Found("gone" if after is None else "deleting", after)


def generation_of(bundle: Document) -> str:
    annotations = (bundle.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(GENERATION, ""))


def as_work(bundle: Document) -> Document:
    """A bundle as expressions see it: a ManifestWork, with what Maestro knows about its delivery."""
    status = bundle.get("status") or {}
    return {
        "metadata": bundle.get("metadata") or {},
        "id": bundle.get("id", ""),
        "consumer": bundle.get("consumer_name", ""),
        "version": bundle.get("version", 0),
        "observedVersion": _observed_version(bundle, status),
        "deleting": bool(bundle.get("deleted_at")),
        "delivery": bundle.get("delivery") or {},
        "status": {"conditions": status.get("conditions") or [], "resourceStatus": status.get("resourceStatus") or []},
    }


def _observed_version(bundle: Document, status: Document) -> int:
    """Which version the agent has tried to apply. The Go Maestro's agent names a new one as soon as it has it, while
    `Applied` is still about the one before; Maestro's server knows whether that makes a difference."""
    version = int(status.get("ObservedVersion") or 0)
    if (bundle.get("delivery") or {}).get("state") == "applied":
        return version
    for condition in status.get("conditions") or []:
        generation = condition.get("observedGeneration")
        if condition.get("type") == "Applied" and isinstance(generation, int):
            return min(version, generation)
    return version


def nested(bundle: Document, name: str) -> Document | None:
    """The manifest of that name in a bundle, with what came back about it."""
    for manifest in bundle.get("manifests") or []:
        metadata = manifest.get("metadata") or {}
        if metadata.get("name") != name:
            continue
        reported = _reported(bundle, manifest.get("kind", ""), name, metadata.get("namespace", ""))
        return {
            **manifest,
            "conditions": reported.get("conditions") or [],
            "statusFeedback": reported.get("statusFeedback") or {},
        }
    return None


def _reported(bundle: Document, kind: str, name: str, namespace: str) -> Document:
    for entry in (bundle.get("status") or {}).get("resourceStatus") or []:
        meta: Document = entry.get("resourceMeta") or {}
        if (meta.get("kind"), meta.get("name"), meta.get("namespace") or "") == (kind, name, namespace):
            found: Document = entry
            return found
    return {}

"""What is let in: bodies of consumers and bundles are checked whole, and every fault is named at once."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from regional.maestro.protocol.bundles import DEEPEST, decode_data, is_deep, without_nulls
from regional.maestro.protocol.events import Event, MalformedEvent
from regional.maestro.protocol.identity import resource_uid
from regional.maestro.protocol.tracing import ANNOTATION, request_id_of
from regional.maestro.server.bundles import NewBundle
from regional.maestro.server.faults import (
    LABEL,
    SUBDOMAIN,
    executor_faults,
    label_faults,
    manifest_faults,
    metadata_faults,
    option_faults,
    size_faults,
)
from regional.maestro.server.model import Bundle
from regional.maestro.server.refusals import MALFORMED, VALIDATION, Refusal

WATCH = "watch"
_SOURCE = re.compile(r"^[a-zA-Z0-9][-_.a-zA-Z0-9]{0,127}\Z")
_REQUEST_ID = re.compile(r"^[\x21-\x7e]{1,128}\Z")
_OF_THE_ROW = ("creationTimestamp", "deletionTimestamp", "resourceVersion", "generation", "managedFields", "uid")
MOST_FAULTS = 30
_encode = msgspec.json.Encoder(order="sorted").encode

T = TypeVar("T", bound=msgspec.Struct)


class ConsumerBody(msgspec.Struct):
    id: str = ""
    name: str = ""
    labels: dict[str, str] | None = None


class ConsumerPatch(msgspec.Struct):
    labels: dict[str, str] | None = None


class BundleBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    consumer_name: str = ""
    manifests: list[Any] = []
    id: str | None = None
    name: str | None = None
    source: str = "maestro-rest"
    metadata: dict[str, Any] = {}
    delete_option: dict[str, Any] | None = None
    manifest_configs: list[Any] | None = None
    executer: dict[str, Any] | None = None


class BundlePatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    version: int | None = None
    manifests: list[Any] | None = None
    metadata: dict[str, Any] | None = None
    delete_option: dict[str, Any] | None = None
    manifest_configs: list[Any] | None = None


class _Stored(msgspec.Struct, rename="camel"):
    manifests: msgspec.Raw
    delete_option: msgspec.Raw = msgspec.Raw(b"null")
    manifest_configs: msgspec.Raw = msgspec.Raw(b"null")
    executer: msgspec.Raw = msgspec.Raw(b"null")


def parsed(body: bytes, kind: type[T]) -> tuple[T, dict[str, str]]:
    """The body, and the faults of those fields that are not of their type (left at their defaults), by field.

    Raises Refusal for what is no JSON object at all.
    """
    try:
        document = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(MALFORMED, f"Invalid request format: {error}") from None
    if not isinstance(document, dict):
        raise Refusal(MALFORMED, "Invalid request format: the body is not a JSON object")
    if is_deep(document, DEEPEST + 2):
        raise Refusal(VALIDATION, f"the body is nested deeper than {DEEPEST} levels")
    if b"u0000" in body and has_nul(document):
        raise Refusal(VALIDATION, "a text in the body holds a NUL character")
    given: dict[str, Any] = {}
    faults: dict[str, str] = {}
    fields = _fields(kind)
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            if kind.__struct_config__.forbid_unknown_fields:
                faults[name[:80]] = "is not a known field"
        elif value is not None:
            try:
                given[name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                faults[name] = f"is not valid: {error}"
    return kind(**given), faults


@functools.cache  # finding them out costs more than all of the rest
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def has_nul(document: Any) -> bool:
    """PostgreSQL keeps no such text."""
    here = [document]
    while here:
        value = here.pop()
        if isinstance(value, str) and "\x00" in value:
            return True
        if isinstance(value, dict):
            here += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            here += value
    return False


def _read_has_nul(content: bytes) -> bool:
    try:
        return has_nul(msgspec.json.decode(content))
    except (msgspec.MsgspecError, RecursionError):  # where nobody has looked so far
        return True


def refuse(faults: Iterable[str]) -> None:
    """Raises Refusal that names every fault, or as many as are worth reading."""
    found = list(faults)
    if found:
        more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
        raise Refusal(VALIDATION, "; ".join(fault[:300] for fault in found[:MOST_FAULTS] + more))


def checked_consumer(content: bytes) -> ConsumerBody:
    body, untyped = parsed(content, ConsumerBody)
    faults = [f"{name} {fault}" for name, fault in untyped.items()]
    if body.id:
        faults.append("id must be empty")
    if body.name and not LABEL.match(body.name):
        faults.append(f"name {body.name[:80]!r} is not a DNS label of at most 63 characters")
    refuse([*faults, *label_faults("labels", body.labels)])
    return body


def checked_consumer_patch(content: bytes) -> ConsumerPatch:
    body, untyped = parsed(content, ConsumerPatch)
    refuse([*(f"{name} {fault}" for name, fault in untyped.items()), *label_faults("labels", body.labels)])
    return body


def checked_request_id(given: str | None) -> str:
    """From outside and bound for headers and logs; one that does not fit is as none."""
    return given if given and _REQUEST_ID.match(given) else ""


def new_bundle(content: bytes, request_id: str, largest: int) -> NewBundle:
    """Raises Refusal that names every fault."""
    body, untyped = parsed(content, BundleBody)
    faults = [f"{name} {fault}" for name, fault in untyped.items()]
    if not body.consumer_name and "consumer_name" not in untyped:
        faults.append("consumer_name is required")
    if body.id is not None:
        faults += _id_faults("id", body.id)
    if body.name is not None and not SUBDOMAIN.match(body.name):
        faults.append("name is not a DNS name")
    if not _SOURCE.match(body.source):
        faults.append("source is not 1 to 128 letters, digits, '-', '_' or '.'")
    if "manifests" not in untyped:
        faults += manifest_faults(body.manifests)
    _tidy(body)
    body.executer = without_nulls(body.executer)
    metadata, request_id = _traced(_own(body.metadata), request_id)
    faults += [
        *option_faults(body.delete_option, body.manifest_configs),
        *executor_faults(body.executer),
        *metadata_faults(metadata),
    ]
    spec = _spec(body.manifests, body.delete_option, body.manifest_configs, body.executer)
    refuse([*faults, *size_faults(spec, largest)])
    bundle_id = body.id or _id_for(body)
    return NewBundle(
        id=bundle_id,
        name=body.name or bundle_id,
        source=body.source,
        consumer_name=body.consumer_name,
        metadata=_encode(metadata).decode(),
        spec=spec.decode(),
        request_id=request_id,
    )


class _Published(msgspec.Struct, rename="camel"):
    manifests: list[Any] = []
    delete_option: dict[str, Any] | None = None
    manifest_configs: list[Any] | None = None
    executer: dict[str, Any] | None = None


def published_bundle(event: Event, largest: int) -> NewBundle:
    """A bundle as other clients publish it: a whole event. Raises Refusal that names every fault."""
    try:
        body: _Published = decode_data(event.data or b"{}", _Published)
        given: dict[str, Any] = decode_data(event.extensions.get("metadata", "").encode() or b"{}", dict[str, Any])
    except MalformedEvent as error:
        raise Refusal(VALIDATION, f"the manifest bundle in the resource is invalid, {error}") from None
    faults: list[str] = []
    if is_deep([body.manifests, body.delete_option, body.manifest_configs, body.executer], DEEPEST + 2):
        raise Refusal(VALIDATION, f"the manifest bundle in the resource is invalid, deeper than {DEEPEST} levels")
    if (b"u0000" in event.data and _read_has_nul(event.data)) or has_nul(given):
        raise Refusal(VALIDATION, "a text in the event holds a NUL character")
    _tidy(body)
    body.executer = without_nulls(body.executer)
    faults += _id_faults("resourceid", event.resource_id)
    if not _SOURCE.match(event.source):
        faults.append("source is not 1 to 128 letters, digits, '-', '_' or '.'")
    metadata, request_id = _traced(_own(given), checked_request_id(request_id_of(event.extensions)))
    faults += manifest_faults(body.manifests)
    faults += [
        *option_faults(body.delete_option, body.manifest_configs),
        *executor_faults(body.executer),
        *metadata_faults(metadata),
    ]
    spec = _spec(body.manifests, body.delete_option, body.manifest_configs, body.executer)
    if faults or (faults := [*size_faults(spec, largest)]):
        refuse([f"the manifest bundle in the resource is invalid, {faults[0]}", *faults[1:]])
    return NewBundle(
        id=event.resource_id,
        name=event.resource_id,
        source=event.source,
        consumer_name=event.consumer,
        metadata=_encode(metadata).decode(),
        spec=spec.decode(),
        request_id=request_id,
        version=event.version or 1,
    )


def _id_faults(field: str, given: str) -> list[str]:
    if given == WATCH:
        return [f"{field} is {WATCH!r}, which is the path of the watch: nobody could read such a bundle"]
    return [] if LABEL.match(given) else [f"{field} is neither a UUID nor a DNS label"]


def _id_for(body: BundleBody) -> str:
    """The same work of the same source is the same bundle, as it is for Maestro's other clients."""
    work = body.name or body.metadata.get("name")
    return resource_uid(body.source, body.consumer_name, work) if work else str(uuid.uuid4())


def checked_patch(content: bytes) -> BundlePatch:
    patch, untyped = parsed(content, BundlePatch)
    _tidy(patch)
    faults = [f"{name} {fault}" for name, fault in untyped.items()]
    if patch.manifests is not None:
        faults += manifest_faults(patch.manifests)
    refuse([*faults, *option_faults(patch.delete_option, patch.manifest_configs), *metadata_faults(patch.metadata)])
    return patch


def patched(bundle: Bundle, patch: BundlePatch, request_id: str, largest: int) -> tuple[str, str, str]:
    """(metadata, spec, request id) of the bundle's next version. Raises Refusal if it does not fit into a message."""
    stored = msgspec.json.decode(bundle.spec, type=_Stored)
    given = _own(patch.metadata) if patch.metadata is not None else msgspec.json.decode(bundle.metadata)
    metadata, request_id = _traced(given, request_id)
    spec = _spec(
        _over(patch.manifests, stored.manifests),
        _over(patch.delete_option, stored.delete_option),
        _over(patch.manifest_configs, stored.manifest_configs),
        msgspec.json.decode(stored.executer),
    )
    refuse([*metadata_faults(metadata), *size_faults(spec, largest)])
    return _encode(metadata).decode(), spec.decode(), request_id


def _over(given: Any, stored: msgspec.Raw) -> Any:
    return given if given is not None else msgspec.json.decode(stored)


def _spec(manifests: Any, option: Any, configs: Any, executer: Any = None) -> bytes:
    """The very payload that the agent will get; keys sorted, so that equal content is equal text."""
    parts = {
        "manifests": manifests,
        "deleteOption": option or None,
        "manifestConfigs": configs or None,
        "executer": executer or None,
    }
    return _encode({name: value for name, value in parts.items() if value is not None})


def _tidy(body: BundleBody | BundlePatch | _Published) -> None:
    """What is null was left out. Lists of what remains are passed on as they were written."""
    body.delete_option = without_nulls(body.delete_option)
    body.manifest_configs = without_nulls(body.manifest_configs)


def _own(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without what only a server knows: clients send what they have read, or what their ManifestWork has."""
    return {name: value for name, value in metadata.items() if value is not None and name not in _OF_THE_ROW}


def _traced(metadata: dict[str, Any], request_id: str) -> tuple[dict[str, Any], str]:
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict):
        return metadata, request_id
    request_id = request_id or checked_request_id(str(annotations.get(ANNOTATION, "")))
    if request_id:
        metadata = metadata | {"annotations": annotations | {ANNOTATION: request_id}}
    return metadata, request_id

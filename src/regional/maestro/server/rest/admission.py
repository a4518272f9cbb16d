"""What is let in: bodies of consumers and bundles are checked whole, and every fault is named at once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from regional.maestro.protocol.bundles import DEEPEST, DeleteOption, ManifestConfig, is_deep
from regional.maestro.protocol.identity import resource_uid
from regional.maestro.protocol.tracing import ANNOTATION
from regional.maestro.server.bundles import NewBundle
from regional.maestro.server.model import Bundle
from regional.maestro.server.rest.errors import Refusal

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?\Z")
_SOURCE = re.compile(r"^[a-zA-Z0-9][-_.a-zA-Z0-9]{0,127}\Z")
_REQUEST_ID = re.compile(r"^[\x21-\x7e]{1,128}\Z")
LARGEST_METADATA = 32 * 1024  # it travels as one user property, which MQTT allows 64 KiB
_FORBIDDEN = ("generateName", "resourceVersion", "deletionGracePeriodSeconds")
STRATEGIES = ("Update", "CreateOnly", "ServerSideApply", "ReadOnly")
MOST_FAULTS = 30
_encode = msgspec.json.Encoder(order="sorted").encode

T = TypeVar("T", bound=msgspec.Struct)
VALIDATION = 8
MALFORMED = 17


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
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
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
    refuse([*faults, *_label_faults("labels", body.labels)])
    return body


def checked_consumer_patch(content: bytes) -> ConsumerPatch:
    body, untyped = parsed(content, ConsumerPatch)
    refuse([*(f"{name} {fault}" for name, fault in untyped.items()), *_label_faults("labels", body.labels)])
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
    if body.id is not None and not LABEL.match(body.id):
        faults.append("id is neither a UUID nor a DNS label")
    if body.name is not None and not _SUBDOMAIN.match(body.name):
        faults.append("name is not a DNS name")
    if not _SOURCE.match(body.source):
        faults.append("source is not 1 to 128 letters, digits, '-', '_' or '.'")
    if "manifests" not in untyped:
        faults += _manifest_faults(body.manifests)
    metadata, request_id = _traced(body.metadata, request_id)
    faults += [*_option_faults(body.delete_option, body.manifest_configs), *_metadata_faults(metadata)]
    spec = _spec(body.manifests, body.delete_option, body.manifest_configs)
    refuse([*faults, *_size_faults(spec, largest)])
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


def _id_for(body: BundleBody) -> str:
    """The same work of the same source is the same bundle, as it is for Maestro's other clients."""
    work = body.name or body.metadata.get("name")
    return resource_uid(body.source, body.consumer_name, work) if work else str(uuid.uuid4())


def checked_patch(content: bytes) -> BundlePatch:
    patch, untyped = parsed(content, BundlePatch)
    faults = [f"{name} {fault}" for name, fault in untyped.items()]
    if patch.manifests is not None:
        faults += _manifest_faults(patch.manifests)
    refuse([*faults, *_option_faults(patch.delete_option, patch.manifest_configs), *_metadata_faults(patch.metadata)])
    return patch


def patched(bundle: Bundle, patch: BundlePatch, request_id: str, largest: int) -> tuple[str, str, str]:
    """(metadata, spec, request id) of the bundle's next version. Raises Refusal if it does not fit into a message."""
    stored = msgspec.json.decode(bundle.spec, type=_Stored)
    given = patch.metadata if patch.metadata is not None else msgspec.json.decode(bundle.metadata)
    metadata, request_id = _traced(given, request_id)
    spec = _spec(
        _over(patch.manifests, stored.manifests),
        _over(patch.delete_option, stored.delete_option),
        _over(patch.manifest_configs, stored.manifest_configs),
    )
    refuse([*_metadata_faults(metadata), *_size_faults(spec, largest)])
    return _encode(metadata).decode(), spec.decode(), request_id


def _over(given: Any, stored: msgspec.Raw) -> Any:
    return given if given is not None else msgspec.json.decode(stored)


def _spec(manifests: Any, option: Any, configs: Any) -> bytes:
    """The very payload that the agent will get; keys sorted, so that equal content is equal text."""
    parts = {"manifests": manifests, "deleteOption": option or None, "manifestConfigs": configs or None}
    return _encode({name: value for name, value in parts.items() if value is not None})


def _traced(metadata: dict[str, Any], request_id: str) -> tuple[dict[str, Any], str]:
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict):
        return metadata, request_id
    request_id = request_id or checked_request_id(str(annotations.get(ANNOTATION, "")))
    if request_id:
        metadata = metadata | {"annotations": annotations | {ANNOTATION: request_id}}
    return metadata, request_id


def _manifest_faults(manifests: list[Any]) -> Iterator[str]:
    if not manifests:
        yield "manifests: at least one is required"
    seen: dict[tuple[Any, ...], int] = {}
    for index, manifest in enumerate(manifests):
        where = f"manifests[{index}]"
        if not isinstance(manifest, dict):
            yield f"{where} is not an object"
            continue
        for field in ("apiVersion", "kind"):
            if not isinstance(manifest.get(field), str) or not manifest[field]:
                yield f"{where}.{field} is required"
        metadata = manifest.get("metadata")
        if not isinstance(metadata, dict):
            yield f"{where}.metadata.name is required"
            continue
        yield from (f"{where}.metadata.{fault}" for fault in _object_faults(metadata))
        identity = (manifest.get("apiVersion"), manifest.get("kind"), metadata.get("namespace"), metadata.get("name"))
        first = seen.setdefault(tuple(map(str, identity)), index)
        if first != index:
            yield f"{where} is the same object as manifests[{first}]"


def _object_faults(metadata: dict[str, Any]) -> Iterator[str]:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        yield "name is required"
    elif len(name) > 253 or "/" in name:
        yield "name is not valid"
    if namespace is not None and not (isinstance(namespace, str) and LABEL.match(namespace)):
        yield "namespace is not a DNS label"
    yield from (f"{field} must not be set" for field in _FORBIDDEN if metadata.get(field))
    for field in ("labels", "annotations"):
        if metadata.get(field) is not None and not _is_text_map(metadata[field]):
            yield f"{field} is not a map of strings"


def _option_faults(option: Any, configs: list[Any] | None) -> Iterator[str]:
    if option:
        yield from _convertible("delete_option", option, DeleteOption)
        policy = option.get("propagationPolicy")
        if policy not in (None, "Foreground", "Orphan", "SelectivelyOrphan"):
            yield f"delete_option.propagationPolicy {policy!r} is not Foreground, Orphan or SelectivelyOrphan"
    for index, config in enumerate(configs or ()):
        where = f"manifest_configs[{index}]"
        yield from _convertible(where, config, ManifestConfig)
        strategy = config.get("updateStrategy") if isinstance(config, dict) else None
        chosen = strategy.get("type", "Update") if isinstance(strategy, dict) else "Update"
        if chosen not in STRATEGIES:
            yield f"{where}.updateStrategy.type {chosen!r} is not one of {', '.join(STRATEGIES)}"


def _convertible(where: str, value: Any, kind: Any) -> Iterator[str]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        yield f"{where}: {error}"


def _metadata_faults(metadata: dict[str, Any] | None) -> Iterator[str]:
    if metadata is None:
        return
    name = metadata.get("name")
    if name is not None and not (isinstance(name, str) and _SUBDOMAIN.match(name)):
        yield "metadata.name is not a DNS name"
    yield from _label_faults("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations")
    if annotations is not None and not _is_text_map(annotations):
        yield "metadata.annotations is not a map of strings"
    size = len(_encode(metadata))
    if size > LARGEST_METADATA:
        yield f"metadata has {size} bytes, at most {LARGEST_METADATA} are possible"


def _label_faults(where: str, labels: Any) -> Iterator[str]:
    """They become labels of objects on the cluster, so they have to be such."""
    if labels is None:
        return
    if not _is_text_map(labels):
        yield f"{where} is not a map of strings"
        return
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_NAME.match(name) or (slash and not _SUBDOMAIN.match(prefix)):
            yield f"{where}: {key[:80]!r} is not a label's key"
        if value and not _LABEL_NAME.match(value):
            yield f"{where}: {value[:80]!r} is not a label's value"
    if len(_encode(labels)) > LARGEST_METADATA:
        yield f"{where} is larger than {LARGEST_METADATA} bytes"


def _is_text_map(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(value, str) for value in found.values())


def _size_faults(spec: bytes, largest: int) -> Iterator[str]:
    if len(spec) > largest:
        yield f"the bundle has {len(spec)} bytes, and a message carries at most {largest}"

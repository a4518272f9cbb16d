"""What is wrong with the parts of a bundle or a consumer, in words: everything at once, so that nobody asks twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from regional.maestro.protocol.bundles import SAID_BY_AGENTS, DeleteOption, Executor, ManifestConfig

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?\Z")
LARGEST_METADATA = 32 * 1024  # it travels as one user property, which MQTT allows 64 KiB
_FORBIDDEN = ("generateName", "resourceVersion", "deletionGracePeriodSeconds")
LONGEST_TTL = 2**31 - 1
"""Seconds. What is added to a date must still be one."""
STRATEGIES = ("Update", "CreateOnly", "ServerSideApply", "ReadOnly")
_encode = msgspec.json.Encoder(order="sorted").encode


def manifest_faults(manifests: list[Any]) -> Iterator[str]:
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


def option_faults(option: Any, configs: list[Any] | None) -> Iterator[str]:
    if option:
        yield from _convertible("delete_option", option, DeleteOption)
        policy = option.get("propagationPolicy")
        if policy not in (None, "Foreground", "Orphan", "SelectivelyOrphan"):
            yield f"delete_option.propagationPolicy {policy!r} is not Foreground, Orphan or SelectivelyOrphan"
        seconds = option.get("ttlSecondsAfterFinished")
        if isinstance(seconds, int) and not 0 <= seconds <= LONGEST_TTL:
            yield f"delete_option.ttlSecondsAfterFinished is not 0 to {LONGEST_TTL}"
    for index, config in enumerate(configs or ()):
        where = f"manifest_configs[{index}]"
        yield from _convertible(where, config, ManifestConfig)
        strategy = config.get("updateStrategy") if isinstance(config, dict) else None
        chosen = strategy.get("type", "Update") if isinstance(strategy, dict) else "Update"
        if chosen not in STRATEGIES:
            yield f"{where}.updateStrategy.type {chosen!r} is not one of {', '.join(STRATEGIES)}"
        rules = config.get("conditionRules") if isinstance(config, dict) else None
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict) and rule.get("condition") in SAID_BY_AGENTS:
                yield f"{where}: a rule cannot be called {rule['condition']!r}"


def executor_faults(executer: Any) -> Iterator[str]:
    if executer:
        yield from _convertible("executer", executer, Executor)


def _convertible(where: str, value: Any, kind: Any) -> Iterator[str]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        yield f"{where}: {error}"


def metadata_faults(metadata: dict[str, Any] | None) -> Iterator[str]:
    if metadata is None:
        return
    name = metadata.get("name")
    if name is not None and not (isinstance(name, str) and SUBDOMAIN.match(name)):
        yield "metadata.name is not a DNS name"
    yield from label_faults("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations")
    if annotations is not None and not _is_text_map(annotations):
        yield "metadata.annotations is not a map of strings"
    size = len(_encode(metadata))
    if size > LARGEST_METADATA:
        yield f"metadata has {size} bytes, at most {LARGEST_METADATA} are possible"


def label_faults(where: str, labels: Any) -> Iterator[str]:
    """They become labels of objects on the cluster, so they have to be such."""
    if labels is None:
        return
    if not _is_text_map(labels):
        yield f"{where} is not a map of strings"
        return
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL_NAME.match(name) or (slash and not SUBDOMAIN.match(prefix)):
            yield f"{where}: {key[:80]!r} is not a label's key"
        if value and not _LABEL_NAME.match(value):
            yield f"{where}: {value[:80]!r} is not a label's value"
    if len(_encode(labels)) > LARGEST_METADATA:
        yield f"{where} is larger than {LARGEST_METADATA} bytes"


def _is_text_map(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(value, str) for value in found.values())


def size_faults(spec: bytes, largest: int) -> Iterator[str]:
    if len(spec) > largest:
        yield f"the bundle has {len(spec)} bytes, and a message carries at most {largest}"

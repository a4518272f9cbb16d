"""What every object's metadata must satisfy, built-in or custom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import forbidden, invalid, required, too_long
from regional.kube.schema.names import NAME_RULES, dns_subdomain, label_value, qualified_name
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import Kind

MAX_ANNOTATIONS = 262_144
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_OWNER_ORDER = (*_OWNER_FIELDS, "controller", "blockOwnerDeletion")
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def validate_metadata(kind: Kind, obj: Obj, old: Obj | None) -> list[FieldError]:
    metadata = obj.get("metadata") or {}
    before = (old or {}).get("metadata") or {}
    found: list[FieldError] = []
    if old is None:
        found.extend(_name(kind, metadata))
    else:
        found.extend(_identity(metadata, before))
        found.extend(_late_finalizers(metadata, before))
    if metadata.get("labels") != before.get("labels"):
        found.extend(validate_labels(metadata.get("labels"), "metadata.labels"))
    if metadata.get("annotations") != before.get("annotations"):
        found.extend(_annotations(metadata.get("annotations")))
    found.extend(_owners(metadata.get("ownerReferences")))
    found.extend(_finalizers(kind, metadata.get("finalizers") or ()))
    return found


def _name(kind: Kind, metadata: Obj) -> Iterator[FieldError]:
    name = metadata.get("name")
    if not name:
        yield required("metadata.name", "name or generateName is required")
        return
    rule = NAME_RULES.get((kind.group, kind.kind), dns_subdomain)
    for text in rule(name):
        yield invalid("metadata.name", name, text)


def _identity(metadata: Obj, before: Obj) -> Iterator[FieldError]:
    for field in ("name", "namespace", "uid"):
        value = metadata.get(field)
        if value != before.get(field):
            yield invalid(f"metadata.{field}", value, "field is immutable")
    if metadata.get("deletionTimestamp") and not before.get("deletionTimestamp"):
        yield invalid("metadata.deletionTimestamp", metadata["deletionTimestamp"], "field is immutable")
    grace = metadata.get("deletionGracePeriodSeconds")
    if grace is not None and grace != before.get("deletionGracePeriodSeconds"):
        yield invalid("metadata.deletionGracePeriodSeconds", grace, "field is immutable")


def _finalizers(kind: Kind, finalizers: Sequence[str]) -> Iterator[FieldError]:
    for value in finalizers:
        yield from (invalid("metadata.finalizers", value, text) for text in qualified_name(value))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid("metadata.finalizers", list(finalizers), why)
    if kind.custom is not None or kind.group == "apiextensions.k8s.io":
        return
    yield from unknown_finalizers("metadata.finalizers", finalizers)


def unknown_finalizers(field: str, finalizers: Sequence[str]) -> Iterator[FieldError]:
    for index, value in enumerate(finalizers):
        if "/" not in value and value not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{field}[{index}]", value, why)


def _late_finalizers(metadata: Obj, before: Obj) -> Iterator[FieldError]:
    if not before.get("deletionTimestamp"):
        return
    known = before.get("finalizers") or []
    late = sorted(value for value in metadata.get("finalizers") or () if value not in known)
    if late:
        listed = ", ".join(shown(value) for value in late)
        yield forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )


def validate_labels(labels: Any, field: str) -> Iterator[FieldError]:
    for key, value in (labels or {}).items():
        for text in qualified_name(key):
            yield invalid(field, key, text)
        for text in label_value(value):
            yield invalid(field, value, text)


def _annotations(annotations: Any) -> Iterator[FieldError]:
    size = 0
    for key, value in (annotations or {}).items():
        for text in qualified_name(key.lower()):
            yield invalid("metadata.annotations", key, text)
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS:
        yield too_long("metadata.annotations", MAX_ANNOTATIONS)


def _owners(references: Any) -> Iterator[FieldError]:
    controller = ""
    for reference in references or ():
        for field in _OWNER_FIELDS:
            if not reference.get(field):
                text = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield invalid(f"metadata.ownerReferences.{field}", reference.get(field) or "", text)
        if (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Event"):
            shown_owner = {key: reference[key] for key in _OWNER_ORDER if key in reference}
            text = json.dumps(shown_owner, ensure_ascii=False, separators=(",", ":"))
            body = f"Invalid value: {text}: /v1, Kind=Event is disallowed from being an owner"
            yield FieldError("metadata.ownerReferences", "FieldValueInvalid", body)
        if reference.get("controller"):
            name = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                # Printed in the order of the Go struct, as everywhere in these texts.
                listed = [{key: each[key] for key in _OWNER_ORDER if key in each} for each in references]
                text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
                yield FieldError(
                    "metadata.ownerReferences",
                    "FieldValueInvalid",
                    f"Invalid value: {text}: Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {name}',
                )
            controller = controller or name

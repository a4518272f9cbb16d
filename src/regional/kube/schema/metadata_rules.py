"""What every object's metadata must satisfy, built-in or custom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import forbidden, invalid, required, too_long
from regional.kube.schema.names import NAME_RULES, dns_subdomain, label_value, qualified_name
from regional.kube.schema.openapi_validation import shown
from regional.kube.schema.registry import Kind

MAX_ANNOTATIONS = 262_144
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")


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
    for value in metadata.get("finalizers") or ():
        found.extend(invalid("metadata.finalizers", value, text) for text in qualified_name(value))
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
    for index, reference in enumerate(references or ()):
        where = f"metadata.ownerReferences[{index}]"
        for field in _OWNER_FIELDS:
            if not reference.get(field):
                text = {"apiVersion": "version must not be empty"}.get(field, f"{field} must not be empty")
                yield invalid(f"{where}.{field}", reference.get(field) or "", text)
        if reference.get("controller"):
            name = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                yield invalid(
                    "metadata.ownerReferences",
                    references,
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {name}",
                )
            controller = controller or name

"""Who owns which fields: reading, changing and writing `metadata.managedFields`.

An entry belongs to a manager acting in one way: by apply (whatever version it spoke) or by update (per version), and
per subresource. The order, the cap on update entries and what is never recorded are protocol.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.fieldset import FieldSet, ordered, union

APPLY = "Apply"
UPDATE = "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
MAX_UPDATE_MANAGERS = 10
MAX_MANAGER_NAME = 128

_UNRECORDED_METADATA = (
    "f:name",
    "f:namespace",
    "f:uid",
    "f:creationTimestamp",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
    "f:selfLink",
)

Identity = tuple[str, str, str, str]


class Entry:
    """One manager's entry. `raw` is its stored form, dropped when its fields or time change."""

    __slots__ = ("api_version", "fields", "manager", "operation", "raw", "subresource", "time")

    def __init__(
        self,
        manager: str,
        operation: str,
        api_version: str,
        subresource: str,
        fields: FieldSet,
        time: str = "",
        raw: Obj | None = None,
    ) -> None:
        self.manager = manager
        self.operation = operation
        self.api_version = api_version
        self.subresource = subresource
        self.fields = fields
        self.time = time
        self.raw = raw

    @property
    def identity(self) -> Identity:
        """What makes two entries the same: an applier is one manager in whatever version it speaks."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.operation, self.manager, version, self.subresource)

    def holding(self, fields: FieldSet, time: str | None = None) -> Entry:
        kept = self.time if time is None else time
        return Entry(self.manager, self.operation, self.api_version, self.subresource, fields, kept)

    def document(self) -> Obj:
        if self.raw is not None:
            return self.raw
        entry: Obj = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = ordered(self.fields)
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Managers = dict[Identity, Entry]


def read_managers(obj: Obj, served: Collection[str] = ()) -> Managers:
    """The entries of an object by identity; entries of versions no longer served are dropped (if `served` is given)."""
    found: Managers = {}
    for raw in (obj.get("metadata") or {}).get("managedFields") or ():
        entry = _read_entry(raw)
        if entry is not None and (not served or entry.api_version in served):
            found[entry.identity] = entry
    return found


def _read_entry(raw: Any) -> Entry | None:
    if not isinstance(raw, dict):
        return None
    operation, fields = raw.get("operation"), raw.get("fieldsV1")
    if operation not in (APPLY, UPDATE) or raw.get("fieldsType") != "FieldsV1" or not isinstance(fields, dict):
        return None
    return Entry(
        raw.get("manager") or "",
        operation,
        raw.get("apiVersion") or "",
        raw.get("subresource") or "",
        fields,
        raw.get("time") or "",
        raw,
    )


def write_managers(obj: Obj, managers: Managers) -> None:
    """Set metadata.managedFields in the order clients see; nothing is written when nobody owns anything."""
    metadata = obj.setdefault("metadata", {})
    entries = sorted(
        (entry for entry in managers.values() if entry.fields),
        key=lambda entry: (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource),
    )
    if entries:
        metadata["managedFields"] = [entry.document() for entry in entries]
    else:
        metadata.pop("managedFields", None)


def recordable(fields: FieldSet) -> FieldSet:
    """The set without what managedFields never records."""
    out = {key: node for key, node in fields.items() if key not in ("f:apiVersion", "f:kind")}
    metadata = out.get("f:metadata")
    if metadata is not None:
        kept = {key: node for key, node in metadata.items() if key != "." and key not in _UNRECORDED_METADATA}
        if kept:
            out["f:metadata"] = kept
        else:
            del out["f:metadata"]
    return out


def cap_update_managers(managers: Managers) -> Managers:
    """Fold the oldest update entries into `ancient-changes`, one per version, until at most ten are left."""
    updates = sorted(
        (entry for entry in managers.values() if entry.operation == UPDATE),
        key=lambda entry: (entry.time, entry.manager),
    )
    surplus = len(updates) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return managers
    out = dict(managers)
    first_of_version: dict[str, Entry] = {}
    for entry in updates:
        if surplus <= 0:
            break
        first = first_of_version.setdefault(entry.api_version, entry)
        if first is entry:
            continue
        bucket = Entry(ANCIENT_CHANGES, UPDATE, entry.api_version, "", union(first.fields, entry.fields), entry.time)
        out.pop(first.identity, None)
        out.pop(entry.identity, None)
        out[bucket.identity] = bucket
        first_of_version[entry.api_version] = bucket
        surplus -= 1
    return out


def manager_of(field_manager: str, user_agent: str) -> str:
    """The manager of a request: the parameter, else what the User-Agent says before its version."""
    if field_manager:
        return field_manager
    name = user_agent.partition("/")[0]
    return "".join(char for char in name[:MAX_MANAGER_NAME] if char.isprintable())

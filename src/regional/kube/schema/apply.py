"""Server-side apply and the bookkeeping of every other write.

`server_side_apply` merges one manager's whole intent into the live object, takes away what that manager no longer
wants and nobody else does, and refuses to take what others own. `track_update` records what a create, update or patch
changed. Both work on whole objects and return new ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.errors import ApplyConflict, FieldError, Refusal
from regional.kube.schema.fieldset import FieldSet, difference, intersection, members, union
from regional.kube.schema.managers import (
    APPLY,
    BEFORE_FIRST_APPLY,
    UPDATE,
    Entry,
    Managers,
    cap_update_managers,
    manager_of,
    read_managers,
    recordable,
    write_managers,
)
from regional.kube.schema.strict import type_error
from regional.kube.schema.typed import address_text, clone, compare, merge, owned_fields, remove_fields
from regional.kube.schema.typed_check import TypeMismatch, check
from regional.kube.schema.types import Schema

__all__ = ["manager_of", "server_side_apply", "track_update", "unchanged"]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# kubectl's server-side manager inherits what kubectl's client-side apply wrote.
KUBECTL = "kubectl"


def server_side_apply(
    live: Obj | None,
    applied: Obj,
    manager: str,
    *,
    schema: Schema,
    api_version: str,
    force: bool = False,
    now: str,
    subresource: str = "",
    served: Collection[str] = (),
) -> Obj:
    """The object that results when `manager` applies its configuration; not yet defaulted or validated.

    live None means create. `now` is RFC 3339 in seconds. `served` lists the kind's served apiVersions; entries of
    others are dropped. Raises ApplyConflict, or Refusal if the configuration does not fit the schema.
    """
    _check_applied(applied, schema, api_version)
    config = _restricted(applied, schema, subresource)
    base: Obj = live if live is not None else {"apiVersion": api_version, "kind": applied.get("kind")}
    managers = read_managers(base, served)
    if live is not None and not managers:
        managers = _first_managers(live, schema, now)
    bare = _without_managers(base)
    entry = Entry(manager, APPLY, api_version, subresource, recordable(owned_fields(config, schema.root)))
    try:
        result, left = _apply(bare, config, entry, managers, schema, force=force)
    except _Conflicts as conflicts:
        if manager != KUBECTL or live is None:
            raise conflicts.refusal() from None
        remaining = conflicts.without(_last_applied_fields(live, schema))
        if remaining.by_manager:
            raise remaining.refusal() from None
        result, left = _apply(bare, config, entry, managers, schema, force=True)
    if manager == KUBECTL and live is not None:
        _rewrite_last_applied(result, live, applied)
    if live is not None and result == bare and _same_managers(left, read_managers(live, served)):
        return clone(live)  # type: ignore[no-any-return]
    mine = left.get(entry.identity)
    if mine is not None and result != bare:
        # Who changes nothing but the list of owners is not dated: the real server's way, and the order follows from it.
        left[entry.identity] = mine.holding(mine.fields, now)
    write_managers(result, left)
    return result


def track_update(
    live: Obj | None,
    new: Obj,
    manager: str,
    *,
    schema: Schema,
    api_version: str,
    now: str,
    subresource: str = "",
    served: Collection[str] = (),
) -> Obj:
    """`new` with managedFields brought up to date, for creates (live None), updates and patches.

    `new` must already be defaulted and prepared (status or spec restored), so that only real changes are recorded.
    Managed fields in `new` replace the live ones; none keep them, and `[{}]` resets them.
    """
    sent = (new.get("metadata") or {}).get("managedFields")
    result = _without_managers(new)
    if sent == [{}] and not subresource and live is not None:
        return result
    managers = {} if subresource else read_managers(new, served)
    if not managers and live is not None:
        managers = read_managers(live, served)
        if not managers:
            # Nothing is recorded for an object that was reset until somebody applies to it.
            return result
    before = _without_managers(live) if live is not None else schema.zero
    entry = Entry(manager, UPDATE, api_version, subresource, {})
    write_managers(result, cap_update_managers(_record_update(before, result, entry, managers, schema, now)))
    return result


def unchanged(live: Obj, new: Obj) -> bool:
    """The two differ at most in the times of managedFields: nothing to store, no event to send."""
    return _without_times(live) == _without_times(new)


# --- apply ---------------------------------------------------------------------------------------------------------


class _Conflicts(Exception):
    """Fields of other managers that an apply would change."""

    def __init__(self, by_manager: dict[tuple[str, str], FieldSet]) -> None:
        super().__init__()
        # (name as printed, sort key) → fields
        self.by_manager = by_manager

    def without(self, allowed: FieldSet) -> _Conflicts:
        rest = {who: difference(fields, allowed) for who, fields in self.by_manager.items()}
        return _Conflicts({who: fields for who, fields in rest.items() if fields})

    def refusal(self) -> ApplyConflict:
        causes: list[FieldError] = []
        blocks: list[str] = []
        for (who, _), fields in sorted(self.by_manager.items(), key=lambda item: item[0][1]):
            paths = ["".join(address_text(step) for step in path) for path in members(fields)]
            causes.extend(FieldError(path, "FieldManagerConflict", f"conflict with {who}") for path in paths)
            blocks.append(f"conflicts with {who}:" + "".join(f"\n- {path}" for path in paths))
        if len(causes) == 1:
            return ApplyConflict(f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}", causes)
        return ApplyConflict(f"Apply failed with {len(causes)} conflicts: " + "\n".join(blocks), causes)


def _apply(
    live: Obj, config: Obj, entry: Entry, managers: Managers, schema: Schema, *, force: bool
) -> tuple[Obj, Managers]:
    """The new object and the new owners; raises _Conflicts unless forced."""
    root = schema.root
    result: Obj = merge(live, config, root)
    last = managers.get(entry.identity)
    others = {identity: other for identity, other in managers.items() if identity != entry.identity}
    if last is not None:
        kept = entry.fields
        for other in others.values():
            kept = union(kept, other.fields)
        gone = difference(last.fields, kept)
        if gone:
            remove_fields(result, gone, kept, root)
    changes = compare(live, result, root)
    taken = union(changes.added, changes.modified)
    conflicts: dict[tuple[str, str], FieldSet] = {}
    left: Managers = {}
    for identity, other in others.items():
        contested = intersection(other.fields, taken) if taken else {}
        if contested and not force:
            who = _printed(other)
            conflicts[who] = union(conflicts.get(who, {}), contested)
            continue
        rest = difference(difference(other.fields, contested), changes.removed)
        if rest == other.fields:
            left[identity] = other
        elif rest:
            left[identity] = other.holding(rest)
    if conflicts:
        raise _Conflicts(conflicts)
    if entry.fields:
        same = last is not None and last.fields == entry.fields and last.api_version == entry.api_version
        dated = entry.holding(entry.fields, last.time if last is not None else "")
        left[entry.identity] = last if same and last is not None else dated
    return result, left


def _printed(entry: Entry) -> tuple[str, str]:
    text = json.dumps(entry.manager, ensure_ascii=False)
    if entry.subresource:
        text += f" with subresource {json.dumps(entry.subresource)}"
    if entry.operation == UPDATE:
        text += f" using {entry.api_version}"
    return text, entry.manager + "\0" + text


def _check_applied(applied: Obj, schema: Schema, api_version: str) -> None:
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise Refusal(400, "BadRequest", "metadata.managedFields must be nil")
    try:
        check(applied, schema.root)
    except TypeMismatch as mismatch:
        what = f"{_name(applied)}; {_type(applied, api_version)}"
        # The real server answers 500 here; the fault is the client's, so we say so.
        raise Refusal(422, "Invalid", f"failed to create typed patch object ({what}): {mismatch}") from None


def check_readable(applied: Obj, schema: Schema, api_version: str) -> None:
    """Refuse what fits a built-in kind's schema and yet no client could read: a fraction for an integer, bytes that are
    no base64, a time or quantity that is none. One such object, stored, would keep typed clients from every list."""
    problem = type_error(applied, schema)
    if problem is None:
        return
    kind = _type(applied, api_version)
    why = f"unable to convert unstructured object to {kind}: {problem}"
    raise Refusal(422, "Invalid", f"failed to convert new object ({_name(applied)}; {kind}) to proper version: {why}")


def _name(applied: Obj) -> str:
    metadata = applied.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _type(applied: Obj, api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{group + '/' if group else '/'}{version}, Kind={applied.get('kind')}"


def _restricted(applied: Obj, schema: Schema, subresource: str) -> Obj:
    """What of the configuration this endpoint listens to."""
    if subresource == "status":
        return {key: applied[key] for key in ("apiVersion", "kind", "status") if key in applied}
    metadata = applied.get("metadata")
    config = {key: value for key, value in applied.items() if key != "status" or not schema.status}
    if isinstance(metadata, dict) and "resourceVersion" in metadata:
        # It is a precondition, not a value to apply.
        config["metadata"] = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    return config


def _first_managers(live: Obj, schema: Schema, now: str) -> Managers:
    """Before the first apply nobody is known: what is there belongs to whoever was there before."""
    entry = Entry(BEFORE_FIRST_APPLY, UPDATE, live.get("apiVersion") or "", "", {})
    return _record_update(schema.zero, _without_managers(live), entry, {}, schema, now)


def _same_managers(left: Managers, right: Managers) -> bool:
    return left.keys() == right.keys() and all(
        entry.fields == right[key].fields and entry.api_version == right[key].api_version for key, entry in left.items()
    )


# --- update --------------------------------------------------------------------------------------------------------


def _record_update(before: Obj, after: Obj, entry: Entry, managers: Managers, schema: Schema, now: str) -> Managers:
    changes = compare(before, after, schema.root)
    if not changes:
        return managers
    taken = union(changes.added, changes.modified)
    lost = union(taken, changes.removed)
    out: Managers = {}
    for identity, other in managers.items():
        gone = changes.removed if identity == entry.identity else lost
        rest = difference(other.fields, gone)
        if rest == other.fields:
            out[identity] = other
        elif rest:
            out[identity] = other.holding(rest)
    mine = recordable(taken)
    if mine:
        previous = out.get(entry.identity)
        fields = union(previous.fields, mine) if previous is not None else mine
        out[entry.identity] = entry.holding(fields, now)
    return out


# --- coming from client-side apply ---------------------------------------------------------------------------------


def _last_applied(live: Obj) -> str | None:
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    value = annotations.get(LAST_APPLIED)
    return value if isinstance(value, str) and value else None


def _last_applied_fields(live: Obj, schema: Schema) -> FieldSet:
    """The fields that client-side apply set and that still have the value it gave them."""
    text = _last_applied(live)
    if text is None:
        return {}
    try:
        config = json.loads(text)
        check(config, schema.root)
    except (ValueError, TypeMismatch):
        return {}
    if not isinstance(config, dict):
        return {}
    changes = compare(live, config, schema.root)
    return difference(recordable(owned_fields(config, schema.root)), union(changes.modified, changes.added))


def _rewrite_last_applied(result: Obj, live: Obj, applied: Obj) -> None:
    """Keep the annotation true, so that a later client-side apply still knows what was applied."""
    if _last_applied(live) is None:
        return
    annotations = (result.get("metadata") or {}).get("annotations")
    if annotations is not None and LAST_APPLIED in annotations:
        annotations[LAST_APPLIED] = (
            json.dumps(applied, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"
        )


# --- whole objects -------------------------------------------------------------------------------------------------


def _without_managers(obj: Obj) -> Obj:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj if not isinstance(metadata, dict) else {**obj, "metadata": dict(metadata)}
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _without_times(obj: Obj) -> Obj:
    metadata: dict[str, Any] = obj.get("metadata") or {}
    entries = [{key: value for key, value in entry.items() if key != "time"} for entry in _entries(metadata)]
    entries.sort(
        key=lambda e: (e.get("operation", ""), e.get("manager", ""), e.get("apiVersion", ""), e.get("subresource", ""))
    )
    return {**obj, "metadata": {**metadata, "managedFields": entries}}


def _entries(metadata: Obj) -> list[Obj]:
    return [entry for entry in metadata.get("managedFields") or () if isinstance(entry, dict)]

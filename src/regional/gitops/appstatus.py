"""An Application's status in Argo CD's shape, and the smallest patch that brings the stored one there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from regional.core.clock import rfc3339
from regional.gitops.compare import UNKNOWN, Comparison
from regional.gitops.health import Health
from regional.gitops.manifests import images_of
from regional.gitops.sources import Revisions
from regional.gitops.targets import Targets
from regional.kube.objects import Obj, namespace_of, spec_of, status_of

HISTORY = 10
COMPARISON_ERROR = "ComparisonError"
_TIMES = ("reconciledAt",)


def compared_to(application: Obj) -> Obj:
    spec = spec_of(application)
    kept = ("destination", "source", "sources", "ignoreDifferences")
    return {key: spec[key] for key in kept if spec.get(key) is not None}


def source_fields(application: Obj) -> Obj:
    spec = spec_of(application)
    return {"sources": spec["sources"]} if spec.get("sources") else {"source": spec.get("source") or {}}


def build(
    application: Obj,
    *,
    now: datetime,
    sync_status: str,
    health: Health,
    comparison: Comparison | None,
    targets: Targets | None,
    conditions: Sequence[Obj],
    operation_state: Obj | None,
    history: list[Obj],
    refused: Revisions | None = None,
) -> Obj:
    """`refused` are commits that cannot be compared with, where it is they who are at fault."""
    old = status_of(application)
    sync: Obj = {"status": sync_status, "comparedTo": compared_to(application)}
    status: Obj = {
        "controllerNamespace": namespace_of(application),
        "health": _with_transition(old.get("health"), health, now),
        "sync": sync,
        "resources": old.get("resources") or [],
        "summary": old.get("summary") or {},
        "reconciledAt": rfc3339(now),
    }
    if refused is not None:
        sync |= refused.fields()
    if any(each["type"] == COMPARISON_ERROR for each in conditions):
        # Nothing can be said of the objects either, as long as nobody knows what they should be.
        status["resources"] = [entry | {"status": UNKNOWN} for entry in status["resources"]]
    if targets is not None:
        sync |= targets.revisions.fields()
        if targets.revisions.multiple:
            status["sourceTypes"] = targets.types
        else:
            status["sourceType"] = targets.types[0]
        status["summary"] = {"images": images_of(targets.objects)} if images_of(targets.objects) else {}
    if comparison is not None:
        status["resources"] = [resource.fields() for resource in comparison.resources]
    if conditions:
        status["conditions"] = _conditions(old.get("conditions") or [], conditions, now)
    if operation_state is not None:
        status["operationState"] = operation_state
    if history:
        status["history"] = history
    return status


def condition(kind: str, message: str) -> Obj:
    return {"type": kind, "message": message}


def _conditions(old: Sequence[Obj], new: Sequence[Obj], now: datetime) -> list[Obj]:
    """The time of a condition is when its message was first said."""
    known = {(entry.get("type"), entry.get("message")): entry.get("lastTransitionTime") for entry in old}
    found = [
        entry | {"lastTransitionTime": known.get((entry["type"], entry["message"])) or rfc3339(now)} for entry in new
    ]
    return sorted(found, key=lambda entry: (str(entry["type"]), str(entry["message"])))


def _with_transition(old: Any, health: Health, now: datetime) -> Obj:
    since = old.get("lastTransitionTime") if isinstance(old, dict) and old.get("status") == health.status else None
    return health.fields() | {"lastTransitionTime": since or rfc3339(now)}


def remembered(
    application: Obj, targets: Targets, history: Sequence[Obj], started: str, finished: str, initiated: Obj
) -> list[Obj]:
    """status.history with one more deployment, the oldest forgotten beyond the limit."""
    limit = spec_of(application).get("revisionHistoryLimit", HISTORY)
    number = history[-1]["id"] + 1 if history else 0
    entry = {
        "id": number,
        "deployStartedAt": started,
        "deployedAt": finished,
        "initiatedBy": initiated,
        **targets.revisions.fields(),
        **source_fields(application),
    }
    return [*history, entry][-limit:] if limit else []


def patch(old: Obj, new: Obj) -> Obj | None:
    """A merge patch from one status to the next; None if only the time of looking changed."""
    changes = merge_difference(old, new)
    if not changes or set(changes) <= set(_TIMES):
        return None
    return changes


def merge_difference(old: Obj, new: Obj) -> Obj:
    """The JSON merge patch from one map to another."""
    changes: Obj = {key: None for key in old if key not in new}
    for key, value in new.items():
        present = old.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            if inner := merge_difference(present, value):
                changes[key] = inner
        elif key not in old or present != value:
            changes[key] = value
    return changes

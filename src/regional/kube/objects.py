"""The few things everybody asks of a Kubernetes object.

Objects stay plain dicts, as they are on the wire: a typed model of every kind would cost more than it tells, and would
drop fields it does not know. These helpers are the shared vocabulary over those dicts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from regional.core.clock import rfc3339

Obj: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""


def metadata_of(obj: Obj) -> Obj:
    return cast(Obj, obj.get("metadata") or {})


def name_of(obj: Obj) -> str:
    return cast(str, metadata_of(obj).get("name", ""))


def namespace_of(obj: Obj) -> str:
    return cast(str, metadata_of(obj).get("namespace", ""))


def key_of(obj: Obj) -> Key:
    metadata = metadata_of(obj)
    return (metadata.get("namespace", ""), metadata.get("name", ""))


def uid_of(obj: Obj) -> str:
    return cast(str, metadata_of(obj).get("uid", ""))


def version_of(obj: Obj) -> str:
    return cast(str, metadata_of(obj).get("resourceVersion", ""))


def revision_of(obj: Obj) -> int:
    """resourceVersion as the number it is; 0 when absent or foreign."""
    version = version_of(obj)
    return int(version) if version.isdigit() else 0


def generation_of(obj: Obj) -> int:
    return cast(int, metadata_of(obj).get("generation", 0))


def labels_of(obj: Obj) -> dict[str, str]:
    return metadata_of(obj).get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return metadata_of(obj).get("annotations") or {}


def finalizers_of(obj: Obj) -> list[str]:
    return metadata_of(obj).get("finalizers") or []


def spec_of(obj: Obj) -> Obj:
    return cast(Obj, obj.get("spec") or {})


def status_of(obj: Obj) -> Obj:
    return cast(Obj, obj.get("status") or {})


def is_deleting(obj: Obj) -> bool:
    return bool(metadata_of(obj).get("deletionTimestamp"))


def owners_of(obj: Obj) -> list[Obj]:
    return metadata_of(obj).get("ownerReferences") or []


def owner_of(obj: Obj) -> Obj | None:
    """The owner that controls this object, if any (`controller: true`)."""
    return next((reference for reference in owners_of(obj) if reference.get("controller")), None)


def owner_reference(owner: Obj, *, controller: bool = True) -> Obj:
    """A reference to put on a child; `owner` must carry apiVersion and kind."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
    }
    return reference | {"controller": True, "blockOwnerDeletion": True} if controller else reference


def condition_of(obj: Obj, kind: str) -> Obj | None:
    return next((c for c in status_of(obj).get("conditions") or [] if c.get("type") == kind), None)


def is_true(obj: Obj, kind: str) -> bool:
    condition = condition_of(obj, kind)
    return condition is not None and condition.get("status") == "True"


def set_condition(
    obj: Obj,
    kind: str,
    status: bool | str,
    reason: str,
    message: str = "",
    *,
    now: datetime | None = None,
    generation: int | None = None,
) -> bool:
    """Set one condition in `obj.status.conditions`; the transition time moves only when the status does.

    Says whether anything changed, so that a caller can skip a write that would tell nothing new.
    """
    conditions: list[Obj] = obj.setdefault("status", {}).setdefault("conditions", [])
    value = status if isinstance(status, str) else ("True" if status else "False")
    wanted: Obj = {"type": kind, "status": value, "reason": reason, "message": message}
    if generation is not None:
        wanted["observedGeneration"] = generation
    present = next((c for c in conditions if c.get("type") == kind), None)
    if present is None:
        conditions.append(wanted | {"lastTransitionTime": rfc3339(now or datetime.now(UTC))})
        return True
    if all(present.get(field) == wanted_value for field, wanted_value in wanted.items()):
        return False
    if present.get("status") != value:
        present["lastTransitionTime"] = rfc3339(now or datetime.now(UTC))
    present.update(wanted)
    return True


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339, with or without fraction (Time and MicroTime)."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def created_at(obj: Obj) -> datetime | None:
    return parse_time(metadata_of(obj).get("creationTimestamp"))


def copied(obj: Obj) -> Obj:
    """A deep copy to change: objects in an informer's cache are shared and must never be written to.

    Objects are JSON, so there is nothing but dicts and lists to copy: `copy.deepcopy` takes five times as long.
    """
    return {key: _copied(value) for key, value in obj.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


def matches(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector (`matchLabels`, `matchExpressions`). Empty selects everything, None nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_requirement(expression, labels) for expression in selector.get("matchExpressions") or [])


def _requirement(expression: Obj, labels: Mapping[str, str]) -> bool:
    key, operator = expression.get("key", ""), expression.get("operator")
    values: Collection[str | None] = expression.get("values") or ()
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False

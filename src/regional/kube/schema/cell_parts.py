"""What the cells of many kinds have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.durations import age

NONE = "<none>"
UNSET = "<unset>"


def name_of(obj: Obj) -> Any:
    return (obj.get("metadata") or {}).get("name")


def age_of(obj: Obj, now: datetime) -> str:
    return age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def spec_of(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def status_of(obj: Obj) -> Obj:
    return obj.get("status") or {}


def joined(values: Any, otherwise: str = NONE) -> str:
    return ",".join(str(value) for value in values) or otherwise


def selector_text(selector: Any) -> str:
    """A label selector on one line, as `kubectl get -o wide` shows it."""
    if not selector:
        return NONE
    labels = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    parts = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    for rule in selector.get("matchExpressions") or () if isinstance(selector, dict) else ():
        key, operator, values = rule.get("key"), rule.get("operator"), ",".join(rule.get("values") or ())
        parts.append(
            {"Exists": key, "DoesNotExist": f"!{key}", "In": f"{key} in ({values})"}.get(
                operator, f"{key} notin ({values})"
            )
        )
    return joined(parts)

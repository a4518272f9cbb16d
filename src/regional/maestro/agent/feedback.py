"""What a bundle wants to know of its objects: values by JSONPath or by well-known names, in the wire's typed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.maestro.agent.jsonpath import BadPath, find
from regional.maestro.protocol.bundles import FeedbackRule

LARGEST_RAW = 1024 * 1024
_WELL_KNOWN: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("apps", "Deployment"): (
        ("ReadyReplicas", ".status.readyReplicas"),
        ("Replicas", ".status.replicas"),
        ("AvailableReplicas", ".status.availableReplicas"),
    ),
    ("apps", "DaemonSet"): (
        ("NumberReady", ".status.numberReady"),
        ("DesiredNumberScheduled", ".status.desiredNumberScheduled"),
        ("NumberAvailable", ".status.numberAvailable"),
    ),
    ("batch", "Job"): (
        ("JobComplete", '.status.conditions[?(@.type=="Complete")].status'),
        ("JobSucceeded", ".status.succeeded"),
    ),
    ("", "Pod"): (
        ("PodReady", '.status.conditions[?(@.type=="Ready")].status'),
        ("PodPhase", ".status.phase"),
    ),
}


class FeedbackFailed(Exception):
    """Some values could not be had; `values` has the others."""

    def __init__(self, faults: Sequence[str], values: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(faults))
        self.values = values


def values_of(obj: Obj, rules: Sequence[FeedbackRule], largest: int = LARGEST_RAW) -> list[dict[str, Any]]:
    """Raises FeedbackFailed."""
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    values: list[dict[str, Any]] = []
    faults: list[str] = []
    for name, path, wanted in _paths(rules, group, str(obj.get("kind", "")), faults):
        if wanted and wanted != version:
            faults.append(f"{name}: the object is of version {version}, not {wanted}")
            continue
        try:
            value = _typed(find(obj, path), largest)
        except BadPath as error:
            faults.append(f"{name}: {error}")
            continue
        except OverflowError as error:
            faults.append(f"{name}: {error}")
            continue
        if value is not None:
            values.append({"name": name, "fieldValue": value})
    if faults:
        raise FeedbackFailed(faults, values)
    return values


def _paths(rules: Sequence[FeedbackRule], group: str, kind: str, faults: list[str]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        if rule.type == "JSONPaths":
            yield from ((path.name, path.path, path.version) for path in rule.json_paths)
        elif rule.type == "WellKnownStatus":
            known = _WELL_KNOWN.get((group, kind))
            if known is None:
                faults.append(f"{kind} has no well-known status")
                continue
            yield from ((name, path, "") for name, path in known)
        else:
            faults.append(f"feedback of type {rule.type!r} is not known")


def _typed(found: list[Any], largest: int) -> dict[str, Any] | None:
    if not found:
        return None
    if len(found) == 1:
        value = found[0]
        if isinstance(value, bool):
            return {"type": "Boolean", "boolean": value}
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return {"type": "Integer", "integer": value}
        if isinstance(value, str):
            return {"type": "String", "string": value}
        if value is None:
            return None
        found = value
    raw = msgspec.json.encode(found)
    if len(raw) > largest:
        raise OverflowError(f"the value has {len(raw)} bytes, more than {largest}")
    return {"type": "JsonRaw", "jsonRaw": raw.decode()}

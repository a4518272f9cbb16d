"""Two views of one Event: core/v1, in which events are stored, and events.k8s.io/v1.

Clients write through either API and read through either; only field names differ.
"""

from __future__ import annotations

from regional.kube.objects import Obj
from regional.kube.schema.registry import Kind, by_kind

# events.k8s.io name → core name
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}
_GROUP = "events.k8s.io"


def core_kind(kind: Kind) -> Kind:
    """The kind that refusals name: both are the old Event inside the server."""
    return (by_kind("", "v1", "Event") or kind) if kind.group == _GROUP else kind


def to_storage(kind: Kind, obj: Obj) -> Obj:
    """The object in the shape its store keeps."""
    if kind.group != _GROUP:
        return obj
    return {_NAMES.get(key, key): value for key, value in obj.items()} | {"apiVersion": "v1"}


def from_storage(kind: Kind, obj: Obj) -> Obj:
    """A stored object as this kind shows it."""
    if kind.group != _GROUP:
        return obj
    shown = {_BACK.get(key, key): value for key, value in obj.items()} | {"apiVersion": kind.api_version}
    for name in ("reportingController", "reportingInstance"):  # only the old API shows them empty
        if not shown.get(name):
            shown.pop(name, None)
    return shown

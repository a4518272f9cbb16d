"""What the server itself decides about an object on its way in: server-owned fields, status, generation.

Built-in and custom kinds alike; the differences are flags of the kind's row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from regional.kube.objects import Obj
from regional.kube.schema.quantity import parse_quantity
from regional.kube.schema.registry import Kind
from regional.kube.schema.typed import clone
from regional.kube.schema.types import schema_of

_SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
    "selfLink",
    "uid",
)
# A node registers itself with its status.
_KEEPS_STATUS_AT_CREATE = {("", "Node")}
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def prepare_for_create(kind: Kind, obj: Obj) -> None:
    """Clear what only the server sets, reset the status, give the first generation; in place."""
    metadata = obj.setdefault("metadata", {})
    for name in _SERVER_METADATA:
        metadata.pop(name, None)
    _merge_owners(metadata)
    if kind.generation:
        metadata["generation"] = 1
    if kind.status and (kind.group, kind.kind) not in _KEEPS_STATUS_AT_CREATE:
        if kind.custom is not None:
            obj.pop("status", None)
        else:
            obj["status"] = clone(schema_of(kind).zero.get("status") or {})
    first = _FIRST.get((kind.group, kind.kind))
    if first is not None:
        first(obj)


def prepare_for_update(kind: Kind, new: Obj, old: Obj, subresource: str = "") -> None:
    """Keep what this endpoint may not change, and bump the generation if the desired state changed; in place."""
    if subresource == "status" or (subresource == "approval" and kind.kind == "CertificateSigningRequest"):
        _keep_all_but_status(new, old)
        return
    metadata, before = new.setdefault("metadata", {}), old.get("metadata") or {}
    for name in _SERVER_METADATA:
        if name == "uid" and metadata.get("uid"):
            continue
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    _merge_owners(metadata)
    if kind.status:
        if "status" in old:
            new["status"] = clone(old["status"])
        else:
            new.pop("status", None)
    if (kind.group, kind.kind) == ("", "Secret"):
        fold_string_data(new)
    elif (kind.group, kind.kind) == ("", "Namespace"):
        _keep_finalizers(new, old)
    elif (kind.group, kind.kind) == ("", "Service"):
        _keep_cluster_address(new, old)
    if kind.generation and _desired(kind, new) != _desired(kind, old):
        metadata["generation"] = (before.get("generation") or 0) + 1


def identify_job(kind: Kind, obj: Obj) -> None:
    """Give a new Job the selector and pod labels that carry its uid; to be called once metadata.uid is set."""
    if (kind.group, kind.kind) != ("batch", "Job"):
        return
    spec = obj["spec"]
    if spec.get("manualSelector") or spec.get("selector"):
        return
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    metadata = spec.setdefault("template", {}).setdefault("metadata", {})
    labels = dict.fromkeys(_JOB_LABELS, uid) | dict.fromkeys(_JOB_NAME_LABELS, name)
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec["selector"] = {"matchLabels": {_JOB_LABELS[0]: uid}}


def _keep_all_but_status(new: Obj, old: Obj) -> None:
    """A status write takes the status (and what apply recorded about it), nothing else."""
    status = new.get("status")
    managers = (new.get("metadata") or {}).get("managedFields")
    new.clear()
    new.update(clone(old))
    if status is None:
        new.pop("status", None)
    else:
        new["status"] = status
    if managers is not None:
        new["metadata"]["managedFields"] = managers


def _desired(kind: Kind, obj: Obj) -> Obj:
    """The part whose changes count as a new generation."""
    ignored = ("apiVersion", "kind", "metadata", "status") if kind.status else ("apiVersion", "kind", "metadata")
    return {key: value for key, value in obj.items() if key not in ignored}


def _merge_owners(metadata: Obj) -> None:
    """The same owner twice is one owner."""
    owners = metadata.get("ownerReferences")
    if not owners:
        return
    kept: list[Obj] = []
    for owner in owners:
        if owner not in kept:
            kept.append(owner)
    metadata["ownerReferences"] = kept


# --- single kinds --------------------------------------------------------------------------------------------------


def fold_string_data(obj: Obj) -> None:
    """`stringData` is write-only: it becomes `data`, and wins over it."""
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _namespace(obj: Obj) -> None:
    finalizers = (obj.get("spec") or {}).get("finalizers") or []
    if "kubernetes" not in finalizers:
        finalizers = [*finalizers, "kubernetes"]
    obj["spec"] = {"finalizers": finalizers}
    obj["status"] = {"phase": "Active"}


def _keep_finalizers(new: Obj, old: Obj) -> None:
    if "spec" in old:
        new["spec"] = clone(old["spec"])


def _keep_cluster_address(new: Obj, old: Obj) -> None:
    """An update that leaves the allocated address out keeps it."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec.get("type") == "ExternalName" or before.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP") and before.get("clusterIP"):
        spec["clusterIP"] = before["clusterIP"]
        spec["clusterIPs"] = clone(before.get("clusterIPs") or [before["clusterIP"]])
    elif spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _pod(obj: Obj) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj.get("spec") or {})}


def quality_of_service(spec: Obj) -> str:
    """Guaranteed: every container limits cpu and memory and requests just that. BestEffort: none says anything."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    guaranteed, mentioned = bool(containers), False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name)
            mentioned = mentioned or limit is not None or request is not None
            guaranteed = guaranteed and limit is not None and _equal(limit, limit if request is None else request)
    if not mentioned:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _equal(left: object, right: object) -> bool:
    try:
        return parse_quantity(str(left)) == parse_quantity(str(right))
    except ValueError:
        return False


def _pending(obj: Obj) -> None:
    obj["status"] = {"phase": "Pending"}


_FIRST: dict[tuple[str, str], Callable[[Obj], None]] = {
    ("", "Namespace"): _namespace,
    ("", "Pod"): _pod,
    ("", "Secret"): fold_string_data,
    ("", "PersistentVolume"): _pending,
    ("", "PersistentVolumeClaim"): _pending,
}

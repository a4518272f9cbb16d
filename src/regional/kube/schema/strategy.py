"""What the server itself decides about an object on its way in: server-owned fields, status, generation.

Built-in and custom kinds alike; the differences are flags of the kind's row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from regional.kube.objects import Obj
from regional.kube.schema.completion import complete
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
_PEOPLES_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")
_KEPT_BY_STATUS = {("Deployment", "labels"), ("Pod", "ownerReferences")}
# A node registers itself with its status.
_KEEPS_STATUS_AT_CREATE = {("", "Node")}
# A namespace's finalizers have a door of their own; who wants another certificate asks again.
_KEEPS_SPEC = {("", "Namespace"), ("certificates.k8s.io", "CertificateSigningRequest")}
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def settle(kind: Kind, obj: Obj) -> list[str]:
    """What reading the object into its Go type would do to it; the uids of owners that were named twice."""
    if (kind.group, kind.kind) == ("", "Secret"):
        fold_string_data(obj)
    if kind.custom is None and kind.group != "apiextensions.k8s.io":
        complete(obj, schema_of(kind))
        if kind.kind == "DaemonSet":
            _count_template(obj, None)
    return _merge_owners(obj["metadata"])


def prepare_for_create(kind: Kind, obj: Obj) -> None:
    """Clear what only the server sets, reset the status, give the first generation; in place."""
    metadata = obj.setdefault("metadata", {})
    for name in _SERVER_METADATA:
        metadata.pop(name, None)
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
        _keep_all_but_status(kind, new, old)
        return
    metadata, before = new.setdefault("metadata", {}), old.get("metadata") or {}
    for name in _SERVER_METADATA:
        if name == "uid" and metadata.get("uid"):
            continue
        if name == "deletionGracePeriodSeconds" and metadata.get(name) is not None:
            continue  # as with the time of deletion, who would change it is told
        if name in before:
            metadata[name] = before[name]
        elif name != "deletionTimestamp":  # which nobody sets by an update, and which is told
            metadata.pop(name, None)
    if kind.status:
        if "status" in old:
            new["status"] = clone(old["status"])
        else:
            new.pop("status", None)
    if (kind.group, kind.kind) in _KEEPS_SPEC:
        _keep_spec(new, old)
    elif (kind.group, kind.kind) == ("", "Service"):
        _keep_cluster_address(new, old)
    elif (kind.group, kind.kind) == ("apps", "DaemonSet"):
        _count_template(new, old)
    if kind.generation and _desired(kind, new) != _desired(kind, old):
        metadata["generation"] = (before.get("generation") or 0) + 1


def identify_job(kind: Kind, obj: Obj) -> None:
    """Give a new Job the selector and pod labels that carry its uid; to be called once metadata.uid is set."""
    if (kind.group, kind.kind) != ("batch", "Job"):
        return
    spec = obj["spec"]
    metadata = spec.setdefault("template", {}).setdefault("metadata", {})
    if not spec.get("manualSelector"):
        # What is there already stays, and is refused if it is not just this (`workload_rules.job`).
        metadata["labels"] = job_labels(obj) | (metadata.get("labels") or {})
        selector = spec.get("selector") or {}
        own = {_JOB_LABELS[0]: obj["metadata"]["uid"]}
        spec["selector"] = selector | {"matchLabels": own | (selector.get("matchLabels") or {})}
    if not obj["metadata"].get("labels") and metadata.get("labels"):
        obj["metadata"]["labels"] = dict(metadata["labels"])


def job_labels(job: Obj) -> Obj:
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    return dict.fromkeys(_JOB_LABELS, uid) | dict.fromkeys(_JOB_NAME_LABELS, name)


def _keep_all_but_status(kind: Kind, new: Obj, old: Obj) -> None:
    """A status write takes the status (and what apply recorded about it); of built-in kinds, what people put into
    metadata too."""
    status, sent = new.get("status"), new.get("metadata") or {}
    new.clear()
    new.update(clone(old))
    if status is None:
        new.pop("status", None)
    else:
        new["status"] = status
    metadata = new["metadata"]
    if sent.get("managedFields") is not None:
        metadata["managedFields"] = sent["managedFields"]
    if kind.custom is not None:
        return
    for name in _PEOPLES_METADATA:
        if (kind.kind, name) in _KEPT_BY_STATUS:
            continue
        if sent.get(name):
            metadata[name] = sent[name]
        else:
            metadata.pop(name, None)


def _desired(kind: Kind, obj: Obj) -> Obj:
    """The part whose changes count as a new generation."""
    ignored = ("apiVersion", "kind", "metadata", "status") if kind.status else ("apiVersion", "kind", "metadata")
    return {key: value for key, value in obj.items() if key not in ignored}


def _merge_owners(metadata: Obj) -> list[str]:
    """The same owner twice is one owner; returns the uids of those."""
    owners = metadata.get("ownerReferences")
    if not owners:
        return []
    kept: list[Obj] = []
    repeated: list[str] = []
    for owner in owners:
        if owner not in kept:
            kept.append(owner)
        elif isinstance(owner, dict) and owner.get("uid") not in repeated:
            repeated.append(str(owner.get("uid")))
    metadata["ownerReferences"] = kept
    return repeated


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


def _keep_spec(new: Obj, old: Obj) -> None:
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


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _count_template(new: Obj, old: Obj | None) -> None:
    """How often the template changed, in the place where old clients look."""
    number = "1"
    if old is not None:
        number = ((old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION)) or "1"
        if (new.get("spec") or {}).get("template") != (old.get("spec") or {}).get("template"):
            number = str(int(number) + 1 if number.isdigit() else 1)
    new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), _TEMPLATE_GENERATION: number}


def _pending(obj: Obj) -> None:
    obj["status"] = {"phase": "Pending"}


_FIRST: dict[tuple[str, str], Callable[[Obj], None]] = {
    ("", "Namespace"): _namespace,
    ("", "Pod"): _pod,
    ("", "PersistentVolume"): _pending,
    ("", "PersistentVolumeClaim"): _pending,
}

"""What a namespace holds once nothing moves, without what differs from run to run: names made up, uids, times.

A hash of a template is written as the number of its revision, a made-up suffix as `*`, a uid as its object's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from regional.kube.client import Client
from regional.kube.objects import Obj, annotations_of, generation_of, is_deleting, labels_of, name_of, spec_of, uid_of

KINDS = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ControllerRevision"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
    ("v1", "PersistentVolumeClaim"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("v1", "Endpoints"),
    ("v1", "Pod"),
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Of objects that are not shown."""
_ADDRESS = re.compile(r"\b10\.9\.\d+\.\d+\b")
"""Those that the stage gives out."""
_MADE_UP = re.compile(r"( pod: \S+-)[a-z0-9]{5}$")
_PROGRESSED = re.compile(r'(ReplicaSet \\")[^"\\]+(\\" has successfully progressed\.)')
_BEHIND = re.compile(r" FailedDelete: .* not found$| FailedCreate: .* already exists$")
_OWN_METADATA = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "namespace"})
_POD_SPEC = ("nodeName", "hostname", "subdomain", "restartPolicy")
_CLAIM_STATUS = ("phase",)


async def snapshot(client: Client, namespace: str, *, events: bool = False) -> Obj:
    """Kind -> its objects; with events, also `events`: what was told, each thing once."""
    found: list[Obj] = []
    for api_version, kind in KINDS:
        found += await client.list(api_version, kind, namespace)
    # A claim goes once its volume's files are gone, which is the node's doing.
    found = [obj for obj in found if obj["kind"] != "PersistentVolumeClaim" or not is_deleting(obj)]
    told = await client.list("v1", "Event", namespace) if events else []
    renamed = _names(found, namespace)
    result: Obj = {}
    for obj in found:
        plain = _renamed(_trimmed(obj), renamed)
        result.setdefault(obj["kind"], []).append(plain)
    for objects in result.values():
        objects.sort(key=lambda obj: msgspec.json.encode(obj, order="sorted"))
    if events:
        result["events"] = sorted({_renamed(line, renamed) for line in map(_told, told) if line})
    return result


def without_chance(seen: Obj) -> Obj:
    """Without what the real controllers leave to chance; ours are held to all of it.

    A condition whose reason has not changed keeps its message, so a rollout that is over between two looks goes on to
    name the ReplicaSet before. And a controller whose cache is behind deletes what is gone, or makes what is there,
    says that it failed, and goes on.
    """
    text = _PROGRESSED.sub(r"\1*\2", msgspec.json.encode(seen).decode())
    plain: Obj = msgspec.json.decode(text)
    if "events" in plain:
        plain["events"] = [line for line in plain["events"] if not _BEHIND.search(line)]
    return plain


def _told(event: Obj) -> str:
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent")
    # Where a pod goes is another test's subject, and where the volumes come from differs by design.
    if source in ("default-scheduler", "persistentvolume-controller", "volume-controller", "taint-eviction-controller"):
        return ""
    about = event["involvedObject"]
    message = _MADE_UP.sub(r"\1*", event["message"])
    return f"{source} {event['type']} {about['kind']}/{about['name']} {event['reason']}: {message}"


def _names(found: Iterable[Obj], namespace: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = [(namespace, "NAMESPACE")]
    for obj in found:
        kind, labels = obj["kind"], labels_of(obj)
        if kind == "ReplicaSet" and "pod-template-hash" in labels:
            number = annotations_of(obj).get("deployment.kubernetes.io/revision", "?")
            pairs.append((labels["pod-template-hash"], f"REV{number}"))
        if kind == "ControllerRevision":
            hashed = labels.get("controller-revision-hash") or labels.get("controller.kubernetes.io/hash") or "?"
            pairs.append((hashed.rpartition("-")[2], f"REV{obj['revision']}"))
        prefix = obj["metadata"].get("generateName")
        if kind == "EndpointSlice":
            service = labels.get("kubernetes.io/service-name", "")
            pairs.append((name_of(obj), f"{service}-*"))
        elif prefix and len(name_of(obj).removeprefix(prefix)) >= 5:  # shorter ones are ordinals
            pairs.append((name_of(obj), f"{prefix}*"))
    return pairs + [(uid_of(obj), f"UID {obj['kind']}/{name_of(obj)}") for obj in found]


def _renamed(value: Any, pairs: list[tuple[str, str]]) -> Any:
    text = msgspec.json.encode(value).decode()
    # Whole names first (they contain hashes), uids before them, as they are replaced by names.
    for old, new in sorted(pairs, key=lambda pair: -len(pair[0])):
        text = text.replace(old, new)
    return msgspec.json.decode(_ADDRESS.sub("ADDRESS", _UID.sub("UID", _TIME.sub("TIME", text))))


def _trimmed(obj: Obj) -> Obj:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OWN_METADATA}
    metadata.pop("deletionTimestamp", None)
    metadata.pop("deletionGracePeriodSeconds", None)
    annotations = {key: value for key, value in annotations_of(obj).items() if key not in _NOISE}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    if is_deleting(obj):
        metadata["deleting"] = True
    plain = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    plain["metadata"] = metadata
    _trim_kind(obj, plain)
    status = plain.get("status")
    if isinstance(status, dict):
        plain["status"] = status = dict(status)
        if "observedGeneration" in status:
            status["observedGeneration"] = "current" if status["observedGeneration"] == generation_of(obj) else "old"
        if status.get("conditions"):
            status["conditions"] = sorted(status["conditions"], key=lambda condition: str(condition["type"]))
    return plain


_NOISE = frozenset({"endpoints.kubernetes.io/last-change-trigger-time", "pv.kubernetes.io/bind-completed"})


def _readiness(endpoint: Obj) -> bytes:
    return msgspec.json.encode([endpoint.get("conditions"), endpoint.get("hostname")], order="sorted")


def _ordered(subset: Obj) -> Obj:
    """The real one orders ports by a hash, and addresses by what the pods happened to get."""

    def pod_of(address: Obj) -> str:
        return str((address.get("targetRef") or {}).get("name", address.get("ip")))

    found = subset | {"ports": sorted(subset.get("ports") or [], key=lambda port: str(port.get("name")))}
    lists = [name for name in ("addresses", "notReadyAddresses") if name in subset]
    return found | {name: sorted(subset[name], key=pod_of) for name in lists}


def _trim_kind(obj: Obj, plain: Obj) -> None:
    match obj["kind"]:
        case "Pod":
            spec = {field: spec_of(obj)[field] for field in _POD_SPEC if field in spec_of(obj)}
            spec["images"] = [container["image"] for container in spec_of(obj)["containers"]]
            claims = [v for v in spec_of(obj).get("volumes") or [] if "persistentVolumeClaim" in v]
            plain["spec"] = spec | {"claims": claims}
            plain["status"] = {"phase": plain["status"].get("phase")}
        case "PersistentVolumeClaim":
            # Volumes are provided by whoever provides them; here it is about who owns the claims.
            plain.pop("status", None)
            plain["spec"] = {}
            plain["metadata"].pop("finalizers", None)
            plain["metadata"].pop("annotations", None)
        case "ControllerRevision":
            plain["data"] = "template"
        case "EndpointSlice":
            # One unnamed port may be spelled with or without its empty name; the order of endpoints says nothing.
            plain["metadata"].pop("generateName", None)
            plain["endpoints"] = sorted(plain.get("endpoints") or [], key=_readiness)
            plain["ports"] = sorted(plain.get("ports") or [], key=lambda port: str(port.get("name")))
        case "Endpoints":
            plain["subsets"] = [_ordered(subset) for subset in plain.get("subsets") or []]
        case "ReplicaSet" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job":
            plain["spec"] = {key: value for key, value in spec_of(obj).items() if key != "template"}
            plain["template labels"] = (spec_of(obj)["template"].get("metadata") or {}).get("labels")

"""What built-in objects must satisfy beyond their types: required values, consistency, immutability.

One small generator per kind; the texts are the API's. Kinds without a rule here are stored as they come.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any

from regional.kube.objects import Obj, spec_of
from regional.kube.schema import gojson
from regional.kube.schema.crd_rules import validate_crd
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import (
    forbidden,
    invalid,
    not_negative,
    one_of,
    required,
    too_long,
    unsupported,
)
from regional.kube.schema.names import config_key, dns_subdomain
from regional.kube.schema.network_rules import endpoint_slice, endpoints, ingress, network_policy, service
from regional.kube.schema.quantity import parse_quantity
from regional.kube.schema.registry import Kind
from regional.kube.schema.signing_rules import decision, signing_request
from regional.kube.schema.workload_rules import (
    autoscaler,
    cron_job,
    daemon_set,
    deployment,
    disruption_budget,
    job,
    pod,
    stateful_set,
    workload,
)

MAX_DATA = 1_048_576
Rule = Callable[[Obj, "Obj | None"], Iterator[FieldError]]

# How kinds refuse a change, where that is not `Invalid value: …: field is immutable`.
_FORBIDDEN_TEXT = {
    ("PriorityClass", "value"): "may not be changed in an update.",
    ("PriorityClass", "preemptionPolicy"): "may not be changed in an update.",
    ("StorageClass", "parameters"): "updates to parameters are forbidden.",
    ("StorageClass", "provisioner"): "updates to provisioner are forbidden.",
    ("StorageClass", "reclaimPolicy"): "updates to reclaimPolicy are forbidden.",
}
_ADMISSION = "admissionregistration.k8s.io"
_FROZEN_DATA = "field is immutable when `immutable` is set"


def validate_builtin(kind: Kind, obj: Obj, old: Obj | None, subresource: str = "") -> list[FieldError]:
    """Everything against a new (old None) or changed object; of writes to subresources, only decisions about
    certificates and the phase of namespaces are looked at."""
    if subresource:
        if (kind.group, kind.kind) == ("", "Namespace"):
            return list(_phase(obj))
        return list(decision(obj, old, subresource)) if old and kind.kind == "CertificateSigningRequest" else []
    rule = _RULES.get((kind.group, kind.kind))
    found = list(rule(obj, old)) if rule is not None else []
    kept = list(_immutable(kind, obj, old)) if old is not None else []
    # Workloads are looked at whole before they are compared with what they were.
    return found + kept if kind.group in ("apps", "batch") else kept + found


def _phase(namespace: Obj) -> Iterator[FieldError]:
    """A namespace ends by being deleted, and by nothing else: nobody could take a mere phase back."""
    ending = (namespace.get("metadata") or {}).get("deletionTimestamp")
    phase = (namespace.get("status") or {}).get("phase") or "Active"
    wanted, state = ("Terminating", "not empty") if ending else ("Active", "empty")
    if phase != wanted:
        yield invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {state}")


def _immutable(kind: Kind, obj: Obj, old: Obj) -> Iterator[FieldError]:
    for path in kind.immutable:
        value, before = _at(obj, path), _at(old, path)
        if value == before:
            continue
        if (kind.kind, path) in _FORBIDDEN_TEXT:
            yield forbidden(path, _FORBIDDEN_TEXT[kind.kind, path])
        elif path == "roleRef":  # printed as the internal Go struct, which has no names for JSON
            fields = {name: (value or {}).get(name[0].lower() + name[1:], "") for name in ("Kind", "Name")}
            fields = {"APIGroup": (value or {}).get("apiGroup", "")} | fields
            yield invalid(path, fields, "cannot change roleRef")
        else:
            yield invalid(path, value, "field is immutable")


def _at(obj: Any, path: str) -> Any:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


# --- configuration -------------------------------------------------------------------------------------------------


def _config_map(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    size = 0
    texts, binaries = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", texts), ("binaryData", binaries)):
        for key, value in values.items():
            for text in config_key(key):
                yield invalid(f"{field}[{key}]", key, text)
            size += len(value.encode()) if field == "data" else _decoded_size(value)
    for key in texts.keys() & binaries.keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if size > MAX_DATA:
        yield too_long("[]", MAX_DATA)
    yield from _frozen(obj, old, ("data", "binaryData"))


def _secret(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    size = 0
    data = obj.get("data") or {}
    for key, value in data.items():
        for text in config_key(key):
            yield invalid(f"data[{key}]", key, text)
        size += _decoded_size(value)
    if size > MAX_DATA:
        yield too_long("data", MAX_DATA)
    for key in _SECRET_KEYS.get(obj.get("type") or "", ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            problem = gojson.syntax_problem(base64.b64decode(data[key]))
            if problem:
                yield invalid(f"data[{key}]", "<secret contents redacted>", problem)
    if obj.get("type") == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
        yield required("data[password]")
    if obj.get("type") == "kubernetes.io/service-account-token":
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if not annotations.get("kubernetes.io/service-account.name"):
            yield required("metadata.annotations[kubernetes.io/service-account.name]")
    yield from _frozen(obj, old, ("data",))


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _decoded_size(value: str) -> int:
    try:
        return len(base64.b64decode(value))
    except (binascii.Error, ValueError):
        return len(value)


def _frozen(obj: Obj, old: Obj | None, fields: tuple[str, ...]) -> Iterator[FieldError]:
    if old is None or not old.get("immutable"):
        return
    if not obj.get("immutable"):
        yield forbidden("immutable", _FROZEN_DATA)
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield forbidden(field, _FROZEN_DATA)


# --- access --------------------------------------------------------------------------------------------------------


def _role(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    namespaced = bool((obj.get("metadata") or {}).get("namespace"))
    for index, rule in enumerate(obj.get("rules") or ()):
        where = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{where}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if namespaced:
                yield invalid(f"{where}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            continue
        if not rule.get("apiGroups"):
            yield required(f"{where}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{where}.resources", "resource rules must supply at least one resource")


def _binding(namespaced: bool) -> Rule:
    def check(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        reference = obj.get("roleRef") or {}
        kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
        yield from one_of("roleRef.kind", reference.get("kind") or "", kinds)
        if not reference.get("name"):
            yield required("roleRef.name")
        for index, subject in enumerate(obj.get("subjects") or ()):
            where = f"subjects[{index}]"
            if not subject.get("name"):
                yield required(f"{where}.name")
            yield from one_of(f"{where}.kind", subject.get("kind") or "", ("ServiceAccount", "User", "Group"))
            if subject.get("kind") == "ServiceAccount" and not subject.get("namespace") and not namespaced:
                yield required(f"{where}.namespace")

    return check


# --- the rest ------------------------------------------------------------------------------------------------------


def _node(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    for index, taint in enumerate(spec_of(obj).get("taints") or ()):
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        yield from one_of(f"metadata.taints[{index}].effect", taint.get("effect"), effects)
    before = spec_of(old or {}).get("podCIDRs")
    if before and spec_of(obj).get("podCIDRs") != before:
        yield forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')


_REVIEWS = ("v1", "v1beta1")


def _webhooks(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        where, name, client = f"webhooks[{index}]", webhook.get("name") or "", webhook.get("clientConfig") or {}
        problems = dns_subdomain(name)
        for text in problems:
            yield invalid(f"{where}.name", name, text)
        if not problems and name.count(".") < 2:
            text = "should be a domain with at least three segments separated by dots"
            yield invalid(f"{where}.name", name, text)
        if webhook.get("sideEffects") is None:
            yield required(f"{where}.sideEffects", "must specify one of None, NoneOnDryRun")
        elif old is None:
            yield from one_of(f"{where}.sideEffects", webhook["sideEffects"], ("None", "NoneOnDryRun"))
        if (client.get("url") is None) == (client.get("service") is None):
            yield required(f"{where}.clientConfig", "exactly one of url or service is required")
        versions = webhook.get("admissionReviewVersions") or []
        if not versions:
            yield required(f"{where}.admissionReviewVersions", f"must specify one of {', '.join(_REVIEWS)}")
        elif not set(_REVIEWS) & set(versions):
            text = f"must include at least one of {', '.join(_REVIEWS)}"
            yield invalid(f"{where}.admissionReviewVersions", versions, text)


def _event(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    reference = obj.get("involvedObject") or obj.get("regarding") or {}
    namespace = (obj.get("metadata") or {}).get("namespace")
    expected = reference.get("namespace") or "default"
    if namespace != expected:
        field = "involvedObject.namespace" if "involvedObject" in obj else "regarding.namespace"
        yield invalid(field, reference.get("namespace") or "", "does not match event.namespace")


def _new_event(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Events of events.k8s.io are held to more than the old ones, when they are made."""
    yield from _event(obj, old)
    if old is not None or obj.get("series"):
        return
    if not obj.get("eventTime"):
        yield required("eventTime")
    if obj.get("type") not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {obj.get('type') or ''}")


def _lease(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    seconds = spec_of(obj).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from not_negative("spec.leaseTransitions", spec_of(obj).get("leaseTransitions"))


_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _claim(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = spec_of(obj)
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    modes = spec.get("accessModes") or []
    for mode in modes:
        yield from one_of("spec.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required("spec.resources[storage]")
    elif parse_quantity(str(size)) <= 0:
        yield invalid("spec.resources[storage]", str(size), "must be greater than zero")
    if spec.get("storageClassName"):
        for text in dns_subdomain(spec["storageClassName"]):
            yield invalid("spec.storageClassName", spec["storageClassName"], text)
    yield from one_of("spec.volumeMode", spec.get("volumeMode"), ("Block", "Filesystem"))
    if old is not None and _settled_claim(obj, old) != _settled_claim(old, old):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", text)


def _settled_claim(claim: Obj, old: Obj) -> Obj:
    """What of a claim stays: its volume and class once they are known, its size until it is bound."""
    spec, before = dict(spec_of(claim)), spec_of(old)
    bound = (old.get("status") or {}).get("phase") == "Bound"
    for name in ("volumeName", "storageClassName"):
        if not before.get(name):
            spec.pop(name, None)
    for name in ("resources", "volumeAttributesClassName") if bound else ():
        spec.pop(name, None)
    return spec


def _volume(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = spec_of(obj)
    capacity = spec.get("capacity")
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    if not capacity:
        yield required("spec.capacity")
    if list(capacity or ()) != ["storage"]:
        yield unsupported("spec.capacity", capacity, ("storage",))
    sources = [name for name in spec if name[0].islower() and name not in _VOLUME_FIELDS and spec[name] is not None]
    if not sources:
        yield required("spec", "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"spec.{extra}", "may not specify more than 1 volume type")


_VOLUME_FIELDS = {
    *("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"),
    *("storageClassName", "volumeAttributesClassName", "volumeMode"),
}
_SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")


def _priority_class(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    name = (obj.get("metadata") or {}).get("name") or ""
    value = obj.get("value") or 0
    if name.startswith("system-") and name not in _SYSTEM_PRIORITIES:
        yield forbidden(
            "metadata.name",
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class",
        )
    if value > 1_000_000_000 and not name.startswith("system-"):
        yield forbidden("value", "maximum allowed value of a user defined priority is 1000000000")


def _storage_class(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if not obj.get("provisioner"):
        yield required("provisioner")


_RULES: dict[tuple[str, str], Rule] = {
    ("", "ConfigMap"): _config_map,
    ("", "Secret"): _secret,
    ("", "Pod"): pod,
    ("", "Node"): _node,
    ("", "Service"): service,
    ("", "Event"): _event,
    ("events.k8s.io", "Event"): _new_event,
    ("", "Endpoints"): endpoints,
    ("", "PersistentVolume"): _volume,
    (_ADMISSION, "MutatingWebhookConfiguration"): _webhooks,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _webhooks,
    ("", "PersistentVolumeClaim"): _claim,
    ("apps", "Deployment"): deployment,
    ("apps", "ReplicaSet"): workload("replicaset"),
    ("apps", "DaemonSet"): daemon_set,
    ("apps", "StatefulSet"): stateful_set,
    ("batch", "Job"): job,
    ("batch", "CronJob"): cron_job,
    ("policy", "PodDisruptionBudget"): disruption_budget,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaler,
    ("networking.k8s.io", "Ingress"): ingress,
    ("networking.k8s.io", "NetworkPolicy"): network_policy,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
    ("rbac.authorization.k8s.io", "Role"): _role,
    ("rbac.authorization.k8s.io", "ClusterRole"): _role,
    ("rbac.authorization.k8s.io", "RoleBinding"): _binding(True),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _binding(False),
    ("certificates.k8s.io", "CertificateSigningRequest"): signing_request,
    ("coordination.k8s.io", "Lease"): _lease,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): validate_crd,
}

"""What built-in objects must satisfy beyond their types: required values, consistency, immutability.

One small generator per kind; the texts are the API's. Kinds without a rule here are stored as they come.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.crd_rules import validate_crd
from regional.kube.schema.errors import FieldError
from regional.kube.schema.findings import (
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
    too_long,
)
from regional.kube.schema.names import config_key, dns_label
from regional.kube.schema.registry import Kind
from regional.kube.schema.workload_rules import (
    autoscaler,
    cron_job,
    disruption_budget,
    job,
    pod,
    stateful_set,
    workload,
)

MAX_DATA = 1_048_576
Rule = Callable[[Obj, "Obj | None"], Iterator[FieldError]]

_IMMUTABLE_TEXT = {"roleRef": "cannot change roleRef"}
_FROZEN_DATA = "field is immutable when `immutable` is set"


def validate_builtin(kind: Kind, obj: Obj, old: Obj | None, subresource: str = "") -> list[FieldError]:
    """Everything against a new (old None) or changed object; writes to a subresource are not held to these rules."""
    if subresource:
        return []
    found: list[FieldError] = []
    if old is not None:
        found.extend(_immutable(kind, obj, old))
    rule = _RULES.get((kind.group, kind.kind))
    if rule is not None:
        found.extend(rule(obj, old))
    return found


def _immutable(kind: Kind, obj: Obj, old: Obj) -> Iterator[FieldError]:
    for path in kind.immutable:
        value, before = _at(obj, path), _at(old, path)
        if value != before:
            yield invalid(path, value, _IMMUTABLE_TEXT.get(path, "field is immutable"))


def _at(obj: Any, path: str) -> Any:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


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


# --- network -------------------------------------------------------------------------------------------------------


def _service(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    kind = spec.get("type")
    yield from one_of("spec.type", kind, ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
    ports = spec.get("ports") or []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    yield from _service_ports(ports)
    yield from one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    if old is not None and "ExternalName" not in (kind, _spec(old).get("type")):
        before = _spec(old).get("clusterIPs") or []
        after = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
        if before and after[:1] != before[:1]:
            yield invalid("spec.clusterIPs[0]", after, "may not change once set")


def _service_ports(ports: list[Obj]) -> Iterator[FieldError]:
    names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        where = f"spec.ports[{index}]"
        number, name = port.get("port"), port.get("name")
        if not isinstance(number, int) or not 1 <= number <= 65535:
            yield invalid(f"{where}.port", number or 0, "must be between 1 and 65535, inclusive")
        if len(ports) > 1 and not name:
            yield required(f"{where}.name")
        if name:
            for text in dns_label(name):
                yield invalid(f"{where}.name", name, text)
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        yield from one_of(f"{where}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))
        identity = (number, port.get("protocol"))
        if identity in seen:
            yield duplicate(where, {"port": number, "protocol": port.get("protocol")})
        seen.add(identity)


def _ingress(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
    for index, rule in enumerate(spec.get("rules") or ()):
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            if not path.get("pathType"):
                yield required(f"spec.rules[{index}].http.paths[{number}].pathType", "pathType must be specified")


def _endpoint_slice(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if not obj.get("addressType"):
        yield required("addressType")
    else:
        yield from one_of("addressType", obj["addressType"], ("FQDN", "IPv4", "IPv6"))


# --- access --------------------------------------------------------------------------------------------------------


def _role(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    for index, rule in enumerate(obj.get("rules") or ()):
        where = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{where}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            yield required(f"{where}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{where}.resources", "resource rules must supply at least one resource")


def _binding(namespaced: bool) -> Rule:
    def check(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
        reference = obj.get("roleRef") or {}
        kinds = ("ClusterRole", "Role") if namespaced else ("ClusterRole",)
        yield from one_of("roleRef.kind", reference.get("kind") or "", kinds)
        if not reference.get("name"):
            yield required("roleRef.name")
        for index, subject in enumerate(obj.get("subjects") or ()):
            where = f"subjects[{index}]"
            if not subject.get("name"):
                yield required(f"{where}.name")
            yield from one_of(f"{where}.kind", subject.get("kind") or "", ("Group", "ServiceAccount", "User"))
            if subject.get("kind") == "ServiceAccount" and not subject.get("namespace") and not namespaced:
                yield required(f"{where}.namespace")

    return check


def _signing_request(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if old is not None:
        if spec != _spec(old):
            yield invalid("spec", spec, "field is immutable")
        return
    if not spec.get("request"):
        yield required("spec.request")
    if not spec.get("signerName"):
        yield required("spec.signerName")


# --- the rest ------------------------------------------------------------------------------------------------------


def _event(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    reference = obj.get("involvedObject") or obj.get("regarding") or {}
    namespace = (obj.get("metadata") or {}).get("namespace")
    expected = reference.get("namespace") or "default"
    if namespace != expected:
        field = "involvedObject.namespace" if "involvedObject" in obj else "regarding.namespace"
        yield invalid(field, reference.get("namespace") or "", "does not match event.namespace")


def _lease(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    seconds = _spec(obj).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")


def _claim(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = _spec(obj)
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        yield required("spec.resources[storage]")


def _priority_class(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    name = (obj.get("metadata") or {}).get("name") or ""
    value = obj.get("value") or 0
    if value > 1_000_000_000 and not name.startswith("system-"):
        yield forbidden("value", "maximum allowed value of a user defined priority is 1000000000")


def _storage_class(obj: Obj, old: Obj | None) -> Iterator[FieldError]:
    if not obj.get("provisioner"):
        yield required("provisioner")


_RULES: dict[tuple[str, str], Rule] = {
    ("", "ConfigMap"): _config_map,
    ("", "Secret"): _secret,
    ("", "Pod"): pod,
    ("", "Service"): _service,
    ("", "Event"): _event,
    ("events.k8s.io", "Event"): _event,
    ("", "PersistentVolumeClaim"): _claim,
    ("apps", "Deployment"): workload("deployment"),
    ("apps", "ReplicaSet"): workload("replicaset"),
    ("apps", "DaemonSet"): workload("daemonset"),
    ("apps", "StatefulSet"): stateful_set,
    ("batch", "Job"): job,
    ("batch", "CronJob"): cron_job,
    ("policy", "PodDisruptionBudget"): disruption_budget,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaler,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("rbac.authorization.k8s.io", "Role"): _role,
    ("rbac.authorization.k8s.io", "ClusterRole"): _role,
    ("rbac.authorization.k8s.io", "RoleBinding"): _binding(True),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _binding(False),
    ("certificates.k8s.io", "CertificateSigningRequest"): _signing_request,
    ("coordination.k8s.io", "Lease"): _lease,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): validate_crd,
}

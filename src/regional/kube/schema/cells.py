"""The cells that `kubectl get` shows for each built-in kind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cell_parts import NONE, UNSET, age_of, joined, name_of, selector_text, spec_of, status_of
from regional.kube.schema.columns import ADMISSION, RBAC
from regional.kube.schema.durations import age, between
from regional.kube.schema.pod_cells import pod_cells
from regional.kube.schema.workload_cells import (
    autoscaler_cells,
    cron_job_cells,
    daemon_set_cells,
    deployment_cells,
    disruption_budget_cells,
    job_cells,
    replica_set_cells,
    revision_cells,
    stateful_set_cells,
)

# --- network -------------------------------------------------------------------------------------------------------


def _service(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    ports = [
        f"{port.get('port')}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    address = spec.get("clusterIP") or NONE
    return [
        name_of(obj),
        spec.get("type"),
        address,
        _external_address(obj),
        joined(ports),
        age_of(obj, now),
        selector_text(spec.get("selector")),
    ]


def _external_address(obj: Obj) -> str:
    spec = spec_of(obj)
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or NONE
    given = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        entries = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
        given = [entry.get("ip") or entry.get("hostname") for entry in entries] + given
        return joined(given, "<pending>")
    return joined(given)


def _endpoints(obj: Obj, now: datetime) -> list[Any]:
    found = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or [{}]
        for port in ports:
            for address in subset.get("addresses") or ():
                number = f":{port['port']}" if port.get("port") else ""
                found.append(f"{address.get('ip')}{number}")
    return [name_of(obj), _shortened(found), age_of(obj, now)]


def _shortened(values: list[str], most: int = 3) -> str:
    if len(values) <= most:
        return joined(values)
    return f"{','.join(values[:most])} + {len(values) - most} more..."


def _endpoint_slice(obj: Obj, now: datetime) -> list[Any]:
    ports = [str(port.get("port")) if port.get("port") is not None else "*" for port in obj.get("ports") or ()]
    addresses = [address for entry in obj.get("endpoints") or () for address in entry.get("addresses") or ()]
    shown = _shortened(ports) if ports else UNSET
    return [
        name_of(obj),
        obj.get("addressType"),
        shown,
        _shortened(addresses) if addresses else UNSET,
        age_of(obj, now),
    ]


def _ingress(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    entries = (status_of(obj).get("loadBalancer") or {}).get("ingress") or ()
    address = joined((entry.get("ip") or entry.get("hostname") for entry in entries), "")
    ports = "80, 443" if spec.get("tls") else "80"
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        _shortened(hosts) if hosts else "*",
        address,
        ports,
        age_of(obj, now),
    ]


def _ingress_class(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    parameters = spec.get("parameters") or {}
    kind = (
        f"{parameters.get('kind')}.{parameters['apiGroup']}" if parameters.get("apiGroup") else parameters.get("kind")
    )
    shown = f"{kind}/{parameters.get('name')}" if parameters else NONE
    return [name_of(obj), spec.get("controller"), shown, age_of(obj, now)]


def _network_policy(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), selector_text(spec_of(obj).get("podSelector")), age_of(obj, now)]


# --- cluster and configuration -------------------------------------------------------------------------------------


def _node(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    ready = next((entry for entry in status.get("conditions") or () if entry.get("type") == "Ready"), None)
    state = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    labels = (obj.get("metadata") or {}).get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix)
    info = status.get("nodeInfo") or {}
    addresses = {entry.get("type"): entry.get("address") for entry in reversed(status.get("addresses") or ())}
    return [
        name_of(obj),
        state,
        joined(roles),
        age_of(obj, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _namespace(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), status_of(obj).get("phase") or "", age_of(obj, now)]


def _config_map(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


def _secret(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type"), len(obj.get("data") or ()), age_of(obj, now)]


def _just_age(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), age_of(obj, now)]


def _lease(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), spec_of(obj).get("holderIdentity") or "", age_of(obj, now)]


def _scale(obj: Obj, now: datetime) -> list[Any]:
    wanted, present = spec_of(obj).get("replicas") or 0, status_of(obj).get("replicas") or 0
    return [name_of(obj), wanted, present, age_of(obj, now)]


def _quota(obj: Obj, now: datetime) -> list[Any]:
    hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    pairs = {name: f"{name}: {used.get(name, '0')}/{amount}" for name, amount in sorted(hard.items())}
    limits = [text for name, text in pairs.items() if name.startswith("limits.")]
    requests = [text for name, text in pairs.items() if not name.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


def _event(obj: Obj, now: datetime) -> list[Any]:
    regarding = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    origin = [text for text in (component, source.get("host") or obj.get("reportingInstance")) if text]
    return [
        age(last, now),
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{str(regarding.get('kind') or '').lower()}/{regarding.get('name') or ''}",
        regarding.get("fieldPath") or "",
        ", ".join(origin),
        (obj.get("message") or obj.get("note") or "").strip(),
        age(first, now),
        series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1,
        name_of(obj),
    ]


def _volume(obj: Obj, now: datetime) -> list[Any]:
    spec, claim = spec_of(obj), spec_of(obj).get("claimRef") or {}
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage") or "",
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        "Terminating" if (obj.get("metadata") or {}).get("deletionTimestamp") else status_of(obj).get("phase") or "",
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        status_of(obj).get("reason") or "",
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    bound = bool(spec.get("volumeName"))
    return [
        name_of(obj),
        "Terminating" if (obj.get("metadata") or {}).get("deletionTimestamp") else status.get("phase") or "",
        spec.get("volumeName") or "",
        ((status.get("capacity") or {}).get("storage") or "") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        age_of(obj, now),
        spec.get("volumeMode") or UNSET,
    ]


def _access_modes(modes: Any) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(text for mode, text in short.items() if mode in (modes or ()))


def _storage_class(obj: Obj, now: datetime) -> list[Any]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    name = name_of(obj)
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name = f"{name} (default)"
    expandable = bool(obj.get("allowVolumeExpansion"))
    kept = [obj.get("provisioner"), obj.get("reclaimPolicy") or "Delete", obj.get("volumeBindingMode") or UNSET]
    return [name, *kept, expandable, age_of(obj, now)]


def _binding(obj: Obj, now: datetime) -> list[Any]:
    reference = obj.get("roleRef") or {}
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = str(subject.get("name"))
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace') or ''}/{name}"
        by_kind.setdefault(str(subject.get("kind")), []).append(name)
    listed = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{reference.get('kind')}/{reference.get('name')}", age_of(obj, now), *listed]


def _priority_class(obj: Obj, now: datetime) -> list[Any]:
    policy = obj.get("preemptionPolicy") or "PreemptLowerPriority"
    return [name_of(obj), obj.get("value") or 0, bool(obj.get("globalDefault")), age_of(obj, now), policy]


def _signing_request(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    seconds = spec.get("expirationSeconds")
    types = [entry.get("type") for entry in status_of(obj).get("conditions") or ()]
    states = [state for state in ("Approved", "Denied", "Failed") if state in types] or ["Pending"]
    if status_of(obj).get("certificate"):
        states.append("Issued")
    from_seconds = between("1970-01-01T00:00:00Z", _moment(seconds)) if seconds else NONE
    kept = [spec.get("signerName") or NONE, spec.get("username") or "", from_seconds]
    return [name_of(obj), age_of(obj, now), *kept, ",".join(states)]


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _api_service(obj: Obj, now: datetime) -> list[Any]:
    service = spec_of(obj).get("service")
    shown = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    conditions = status_of(obj).get("conditions") or ()
    available: Obj = next((entry for entry in conditions if entry.get("type") == "Available"), {})
    state = str(available.get("status") or "Unknown")
    if state not in ("True", "Unknown"):
        state = f"{state} ({available.get('reason')})"
    return [name_of(obj), shown, state, age_of(obj, now)]


def _policy(obj: Obj, now: datetime) -> list[Any]:
    kind = spec_of(obj).get("paramKind") or {}
    shown = f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET
    return [name_of(obj), len(spec_of(obj).get("validations") or ()), shown, age_of(obj, now)]


def _policy_binding(obj: Obj, now: datetime) -> list[Any]:
    reference = spec_of(obj).get("paramRef") or {}
    shown = UNSET
    if reference:
        place = f"{reference['namespace']}/" if reference.get("namespace") else ""
        shown = place + str(reference.get("name") or "*")
    return [name_of(obj), spec_of(obj).get("policyName") or "", shown, age_of(obj, now)]


def _storage_driver(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    audiences = [each.get("audience") or "" for each in spec.get("tokenRequests") or ()]
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        ",".join(audiences) if audiences else UNSET,
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ("Persistent",)),
        age_of(obj, now),
    ]


def _webhooks(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, now)]


BUILTIN_CELLS: dict[tuple[str, str], Callable[[Obj, datetime], list[Any]]] = {
    ("", "Pod"): pod_cells,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("", "Namespace"): _namespace,
    ("", "ConfigMap"): _config_map,
    ("", "Secret"): _secret,
    ("", "ServiceAccount"): _just_age,
    ("", "ResourceQuota"): _quota,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Node"): _node,
    ("", "Event"): _event,
    ("events.k8s.io", "Event"): _event,
    ("apps", "Deployment"): deployment_cells,
    ("apps", "StatefulSet"): stateful_set_cells,
    ("apps", "ReplicaSet"): replica_set_cells,
    ("apps", "DaemonSet"): daemon_set_cells,
    ("apps", "ControllerRevision"): revision_cells,
    ("batch", "Job"): job_cells,
    ("batch", "CronJob"): cron_job_cells,
    ("policy", "PodDisruptionBudget"): disruption_budget_cells,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaler_cells,
    ("autoscaling", "Scale"): _scale,
    ("coordination.k8s.io", "Lease"): _lease,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (RBAC, "RoleBinding"): _binding,
    (RBAC, "ClusterRoleBinding"): _binding,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("certificates.k8s.io", "CertificateSigningRequest"): _signing_request,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("storage.k8s.io", "CSIDriver"): _storage_driver,
    (ADMISSION, "ValidatingAdmissionPolicy"): _policy,
    (ADMISSION, "ValidatingAdmissionPolicyBinding"): _policy_binding,
    (ADMISSION, "MutatingWebhookConfiguration"): _webhooks,
    (ADMISSION, "ValidatingWebhookConfiguration"): _webhooks,
}

"""The values that built-in kinds take when a client leaves them out, as far as clients notice.

Each function fills in place and never overrides. Pod templates are reached wherever a kind holds one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.registry import Kind

RBAC = "rbac.authorization.k8s.io"
_FILE_MODE = 0o644


def default_builtin(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in object, in place."""
    fill = _DEFAULTS.get((kind.group, kind.kind))
    if fill is not None:
        fill(obj)


def _set(obj: Obj, **values: Any) -> None:
    for name, value in values.items():
        if obj.get(name) is None:
            obj[name] = value


def _objects(items: Any) -> list[Obj]:
    return [item for item in items or () if isinstance(item, dict)]


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        spec = obj["spec"] = {}
    return spec


# --- pods ----------------------------------------------------------------------------------------------------------


def _pod(obj: Obj) -> None:
    spec = _spec(obj)
    default_pod_spec(spec)
    _set(spec, enableServiceLinks=True)
    for container in _objects(spec.get("containers")) + _objects(spec.get("initContainers")):
        resources = container["resources"]
        if resources.get("limits"):
            # What is limited and not requested is requested in full.
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _template(spec: Obj) -> None:
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        default_pod_spec(template["spec"])


def default_pod_spec(spec: Obj) -> None:
    _set(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if spec.get("serviceAccountName"):
        # The old name of the field is still shown.
        spec["serviceAccount"] = spec["serviceAccountName"]
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in _objects(spec.get(field)):
            _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in _objects(spec.get("volumes")):
        _volume(volume)


def _container(container: Obj, *, host_network: bool) -> None:
    _set(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=_pull_policy(container.get("image") or ""),
    )
    for port in _objects(container.get("ports")):
        _set(port, protocol="TCP")
        if host_network:
            _set(port, hostPort=port.get("containerPort"))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if isinstance(probe, dict):
            _set(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            _handler(probe)
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _handler(handler)
    for variable in _objects(container.get("env")):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if isinstance(reference, dict):
            _set(reference, apiVersion="v1")
        _divisor(variable.get("valueFrom") or {})


def _divisor(source: Obj) -> None:
    """A quantity is never left out: that of nothing is 0."""
    if isinstance(source.get("resourceFieldRef"), dict):
        _set(source["resourceFieldRef"], divisor="0")


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    if "@" in image:
        return "IfNotPresent"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _handler(handler: Obj) -> None:
    if isinstance(handler.get("httpGet"), dict):
        _set(handler["httpGet"], path="/", scheme="HTTP")
    if isinstance(handler.get("grpc"), dict):
        _set(handler["grpc"], service="")


def _volume(volume: Obj) -> None:
    sources = [key for key, value in volume.items() if key != "name" and value is not None]
    if not sources:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        source = volume.get(name)
        if isinstance(source, dict):
            _set(source, defaultMode=_FILE_MODE)
            _field_references(source.get("items"))
            for projection in _objects(source.get("sources")):
                _projection(projection)
    if isinstance(volume.get("hostPath"), dict):
        _set(volume["hostPath"], type="")


def _projection(projection: Obj) -> None:
    if isinstance(projection.get("serviceAccountToken"), dict):
        _set(projection["serviceAccountToken"], expirationSeconds=3600)
    if isinstance(projection.get("downwardAPI"), dict):
        _field_references(projection["downwardAPI"].get("items"))


def _field_references(items: Any) -> None:
    for item in _objects(items):
        if isinstance(item.get("fieldRef"), dict):
            _set(item["fieldRef"], apiVersion="v1")
        _divisor(item)


# --- workloads -----------------------------------------------------------------------------------------------------


def _deployment(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    strategy = spec["strategy"]
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy, rollingUpdate={})
        _set(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
    _template(spec)


def _replica_set(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, replicas=1)
    _template(spec)


def _stateful_set(obj: Obj) -> None:
    spec = _spec(obj)
    _set(
        spec,
        replicas=1,
        revisionHistoryLimit=10,
        podManagementPolicy="OrderedReady",
        updateStrategy={},
        persistentVolumeClaimRetentionPolicy={},
    )
    _set(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _set(spec["updateStrategy"], rollingUpdate={})
        _set(spec["updateStrategy"]["rollingUpdate"], partition=0)
    _set(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    for claim in _objects(spec.get("volumeClaimTemplates")):
        _set(claim, apiVersion="v1", kind="PersistentVolumeClaim", status={})
        _set(claim["status"], phase="Pending")
        _claim(claim)
    _template(spec)


def _daemon_set(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, revisionHistoryLimit=10, updateStrategy={})
    _set(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _set(spec["updateStrategy"], rollingUpdate={})
        _set(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=1, maxSurge=0)
    _template(spec)


def _job(obj: Obj) -> None:
    spec = _spec(obj)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _set(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False, manualSelector=False)
    _set(spec, podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    _template(spec)


def _cron_job(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    job = (spec.get("jobTemplate") or {}).get("spec")
    if isinstance(job, dict):
        _template(job)


def _autoscaler(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


# --- network -------------------------------------------------------------------------------------------------------


def _service(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, type="ClusterIP", sessionAffinity="None")
    if spec["sessionAffinity"] == "ClientIP":
        _set(spec, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10800}})
    for port in _objects(spec.get("ports")):
        _set(port, protocol="TCP")
        if spec["type"] != "ExternalName" and port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port")
    if spec["type"] == "ExternalName":
        return
    _set(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _set(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _set(spec, allocateLoadBalancerNodePorts=True)


def _endpoints(obj: Obj) -> None:
    for subset in _objects(obj.get("subsets")):
        for port in _objects(subset.get("ports")):
            _set(port, protocol="TCP")


def _endpoint_slice(obj: Obj) -> None:
    for port in _objects(obj.get("ports")):
        _set(port, protocol="TCP", name="")


def _network_policy(obj: Obj) -> None:
    spec = _spec(obj)
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in _objects(spec.get("ingress")) + _objects(spec.get("egress")):
        for port in _objects(rule.get("ports")):
            _set(port, protocol="TCP")


# --- the rest ------------------------------------------------------------------------------------------------------


def _secret(obj: Obj) -> None:
    if not obj.get("type"):
        obj["type"] = "Opaque"


def _namespace(obj: Obj) -> None:
    metadata = obj.setdefault("metadata", {})
    if metadata.get("name"):
        labels = metadata.get("labels") or {}
        metadata["labels"] = {**labels, "kubernetes.io/metadata.name": metadata["name"]}


def _binding(obj: Obj) -> None:
    if isinstance(obj.get("roleRef"), dict) and not obj["roleRef"].get("apiGroup"):
        obj["roleRef"]["apiGroup"] = RBAC
    for subject in _objects(obj.get("subjects")):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = RBAC


def _priority_class(obj: Obj) -> None:
    _set(obj, preemptionPolicy="PreemptLowerPriority")


def _storage_class(obj: Obj) -> None:
    _set(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(obj: Obj) -> None:
    _set(
        _spec(obj),
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        volumeLifecycleModes=["Persistent"],
        requiresRepublish=False,
        seLinuxMount=False,
    )


def _volume_object(obj: Obj) -> None:
    _set(_spec(obj), volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain")
    if isinstance(obj["spec"].get("hostPath"), dict):
        _set(obj["spec"]["hostPath"], type="")


def _node(obj: Obj) -> None:
    spec, status = _spec(obj), obj.get("status") or {}
    single, several = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if single and several[:1] != [single]:
        spec["podCIDRs"] = [single]
    elif several and not single:
        spec["podCIDR"] = several[0]
    if status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])


def _limit_range(obj: Obj) -> None:
    for limit in _objects(_spec(obj).get("limits")):
        if limit.get("type") != "Container":
            continue
        most, least = limit.get("max") or {}, limit.get("min") or {}
        usual = {**most, **(limit.get("default") or {})}
        asked = {**least, **usual, **(limit.get("defaultRequest") or {})}
        limit |= {name: value for name, value in (("default", usual), ("defaultRequest", asked)) if value}


def _claim(obj: Obj) -> None:
    _set(_spec(obj), volumeMode="Filesystem")


def _webhooks(obj: Obj) -> None:
    for webhook in _objects(obj.get("webhooks")):
        _set(webhook, failurePolicy="Fail", timeoutSeconds=10)
        _match_resources(webhook)
        for rule in _objects(webhook.get("rules")):
            _set(rule, scope="*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if isinstance(service, dict):
            _set(service, port=443)


def _mutating_webhooks(obj: Obj) -> None:
    _webhooks(obj)
    for webhook in _objects(obj.get("webhooks")):
        _set(webhook, reinvocationPolicy="Never")


def _match_resources(obj: Obj) -> None:
    _set(obj, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})


def _admission_policy(obj: Obj) -> None:
    spec = _spec(obj)
    _set(spec, failurePolicy="Fail")
    constraints = spec.get("matchConstraints")
    if isinstance(constraints, dict):
        _match_resources(constraints)
        for rule in _objects(constraints.get("resourceRules")) + _objects(constraints.get("excludeResourceRules")):
            _set(rule, scope="*")


def _admission_binding(obj: Obj) -> None:
    resources = _spec(obj).get("matchResources")
    if isinstance(resources, dict):
        _match_resources(resources)


def _custom_resource_definition(obj: Obj) -> None:
    spec = _spec(obj)
    names = spec.get("names")
    if isinstance(names, dict) and names.get("kind"):
        if not names.get("singular"):
            names["singular"] = names["kind"].lower()
        if not names.get("listKind"):
            names["listKind"] = f"{names['kind']}List"
    _set(spec, conversion={})
    _set(spec["conversion"], strategy="None")


_DEFAULTS: dict[tuple[str, str], Callable[[Obj], None]] = {
    ("", "Pod"): _pod,
    ("", "Node"): _node,
    ("", "LimitRange"): _limit_range,
    ("", "Service"): _service,
    ("", "Secret"): _secret,
    ("", "Namespace"): _namespace,
    ("", "Endpoints"): _endpoints,
    ("", "PersistentVolume"): _volume_object,
    ("", "PersistentVolumeClaim"): _claim,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (RBAC, "RoleBinding"): _binding,
    (RBAC, "ClusterRoleBinding"): _binding,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _mutating_webhooks,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _admission_policy,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _admission_binding,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource_definition,
}

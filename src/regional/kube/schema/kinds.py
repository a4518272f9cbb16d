"""The built-in kinds, one row each. A new kind is a new row, not a new branch."""

from __future__ import annotations

from typing import Any

from regional.kube.schema.kind import SCALE, STATUS, STATUS_VERBS, Kind, Subresource

_SINGLE_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_READ_VERBS = ("get", "list", "watch")
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

# Where each group's definitions are in the packaged OpenAPI data.
_PACKAGES = {
    "": "io.k8s.api.core",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
    "apps": "io.k8s.api.apps",
    "authentication.k8s.io": "io.k8s.api.authentication",
    "authorization.k8s.io": "io.k8s.api.authorization",
    "autoscaling": "io.k8s.api.autoscaling",
    "batch": "io.k8s.api.batch",
    "certificates.k8s.io": "io.k8s.api.certificates",
    "coordination.k8s.io": "io.k8s.api.coordination",
    "discovery.k8s.io": "io.k8s.api.discovery",
    "events.k8s.io": "io.k8s.api.events",
    "networking.k8s.io": "io.k8s.api.networking",
    "policy": "io.k8s.api.policy",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac",
    "scheduling.k8s.io": "io.k8s.api.scheduling",
    "storage.k8s.io": "io.k8s.api.storage",
}


def _row(
    group_version: str,
    kind: str,
    plural: str,
    *,
    cluster: bool = False,
    status: bool = False,
    short: str = "",
    subresources: tuple[Subresource, ...] = (),
    **rest: Any,
) -> Kind:
    group, _, version = group_version.rpartition("/")
    if status:
        subresources = (*subresources, STATUS)
    rest.setdefault("store", (group, plural))
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=not cluster,
        short_names=tuple(short.split()),
        subresources=tuple(sorted(subresources, key=lambda entry: entry.name)),
        list_kind=f"{kind}List",
        definition=f"{_PACKAGES[group]}.{version}.{kind}",
        **rest,
    )


def _review(group_version: str, kind: str, plural: str, *, cluster: bool = True) -> Kind:
    """A kind that is answered and forgotten."""
    return _row(group_version, kind, plural, cluster=cluster, verbs=("create",), stored=False)


_ALL: dict[str, Any] = {"categories": ("all",)}
_EXTENSION: dict[str, Any] = {"categories": ("api-extensions",), "cluster": True}
# Objects whose writers compare before they set: no blind overwrite.
_CAREFUL: dict[str, Any] = {"unconditional_update": False}
_ADMISSION: dict[str, Any] = {**_EXTENSION, **_CAREFUL, "generation": True}
_WORKLOAD: dict[str, Any] = {**_ALL, "status": True, "generation": True}
_UPSERT: dict[str, Any] = {"create_on_update": True}

_ATTACH = Subresource("attach", ("create", "get"), kind="PodAttachOptions")
_BINDING = Subresource("binding", ("create",), kind="Binding")
_EVICTION = Subresource("eviction", ("create",), kind="Eviction", group="policy", version="v1")
_EXEC = Subresource("exec", ("create", "get"), kind="PodExecOptions")
_LOG = Subresource("log", ("get",))
_PORT_FORWARD = Subresource("portforward", ("create", "get"), kind="PodPortForwardOptions")
_TOKEN = Subresource("token", ("create",), kind="TokenRequest", group="authentication.k8s.io", version="v1")
_FINALIZE = Subresource("finalize", ("update",))
_APPROVAL = Subresource("approval", STATUS_VERBS)

_POD_FIELDS = (
    "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
    "status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
)  # fmt: skip
_CORE_EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in _REFERENCE),
    *("reason", "reportingComponent", "source", "type"),
)
_EVENT_FIELDS = (*(f"regarding.{name}" for name in _REFERENCE), "reason", "reportingController", "type")
_JOB_IMMUTABLE = ("spec.completions", "spec.selector", "spec.template", "spec.completionMode")
_CLASS_IMMUTABLE = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")

# fmt: off
BUILTINS: tuple[Kind, ...] = (
    _review("v1", "Binding", "bindings", cluster=False),
    _row("v1", "ConfigMap", "configmaps", short="cm"),
    _row("v1", "Endpoints", "endpoints", short="ep", **_UPSERT),
    _row("v1", "Event", "events", short="ev", selectable_fields=_CORE_EVENT_FIELDS, **_UPSERT),
    _row("v1", "LimitRange", "limitranges", short="limits", **_UPSERT),
    _row("v1", "Namespace", "namespaces", short="ns", cluster=True, status=True, verbs=_SINGLE_VERBS,
         subresources=(_FINALIZE,), selectable_fields=("status.phase",)),
    _row("v1", "Node", "nodes", short="no", cluster=True, status=True, selectable_fields=("spec.unschedulable",)),
    _row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", status=True),
    _row("v1", "PersistentVolume", "persistentvolumes", short="pv", cluster=True, status=True),
    _row("v1", "Pod", "pods", short="po", selectable_fields=_POD_FIELDS,
         subresources=(_ATTACH, _BINDING, _EVICTION, _EXEC, _LOG, _PORT_FORWARD), **_WORKLOAD),
    _row("v1", "ResourceQuota", "resourcequotas", short="quota", status=True),
    _row("v1", "Secret", "secrets", selectable_fields=("type",), immutable=("type",)),
    _row("v1", "ServiceAccount", "serviceaccounts", short="sa", subresources=(_TOKEN,)),
    _row("v1", "Service", "services", short="svc", status=True, selectable_fields=("spec.clusterIP", "spec.type"),
         **_ALL, **_UPSERT),

    _row("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
         **_ADMISSION),
    _row("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", status=True,
         **_ADMISSION),
    _row("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
         **_ADMISSION),
    _row("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
         **_ADMISSION),
    _row("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", short="crd crds",
         status=True, **_ADMISSION),
    _row("apiregistration.k8s.io/v1", "APIService", "apiservices", verbs=_READ_VERBS, status=True, **_EXTENSION,
         **_CAREFUL),

    _row("apps/v1", "ControllerRevision", "controllerrevisions", immutable=("data",)),
    _row("apps/v1", "DaemonSet", "daemonsets", short="ds", immutable=("spec.selector",), **_WORKLOAD),
    _row("apps/v1", "Deployment", "deployments", short="deploy", subresources=(SCALE,), immutable=("spec.selector",),
         **_WORKLOAD),
    _row("apps/v1", "ReplicaSet", "replicasets", short="rs", subresources=(SCALE,), immutable=("spec.selector",),
         **_WORKLOAD),
    _row("apps/v1", "StatefulSet", "statefulsets", short="sts", subresources=(SCALE,), **_WORKLOAD),

    _review("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews"),
    _review("authentication.k8s.io/v1", "TokenReview", "tokenreviews"),
    _review("authorization.k8s.io/v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", cluster=False),
    _review("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    _review("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    _review("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews"),

    _row("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", short="hpa", status=True, **_ALL),
    _row("batch/v1", "CronJob", "cronjobs", short="cj", **_WORKLOAD),
    _row("batch/v1", "Job", "jobs", selectable_fields=("status.successful",), immutable=_JOB_IMMUTABLE, **_WORKLOAD),
    _row("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", short="csr",
         cluster=True, status=True, subresources=(_APPROVAL,), selectable_fields=("spec.signerName",)),
    _row("coordination.k8s.io/v1", "Lease", "leases", **_UPSERT, **_CAREFUL),
    _row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", generation=True, immutable=("addressType",)),
    # The same objects as core Events, seen in another shape.
    _row("events.k8s.io/v1", "Event", "events", short="ev", store=("", "events"), selectable_fields=_EVENT_FIELDS,
         **_UPSERT),
    _row("networking.k8s.io/v1", "IngressClass", "ingressclasses", cluster=True, generation=True,
         immutable=("spec.controller",)),
    _row("networking.k8s.io/v1", "Ingress", "ingresses", short="ing", status=True, generation=True),
    _row("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", short="netpol", generation=True),
    _row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", status=True, generation=True,
         **_CAREFUL),
    _row("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", cluster=True,
         immutable=("roleRef",), **_UPSERT),
    _row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", cluster=True, **_UPSERT),
    _row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", immutable=("roleRef",), **_UPSERT),
    _row("rbac.authorization.k8s.io/v1", "Role", "roles", **_UPSERT),
    _row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", short="pc", cluster=True, generation=True,
         immutable=("value", "preemptionPolicy")),
    _row("storage.k8s.io/v1", "CSIDriver", "csidrivers", cluster=True, **_CAREFUL),
    _row("storage.k8s.io/v1", "StorageClass", "storageclasses", short="sc", cluster=True, immutable=_CLASS_IMMUTABLE),
)

# Bodies of subresources: they have a definition and a protobuf message, but no path of their own.
BODY_KINDS: tuple[Kind, ...] = (
    _review("authentication.k8s.io/v1", "TokenRequest", "tokenrequests", cluster=False),
    _review("autoscaling/v1", "Scale", "scales", cluster=False),
    _review("policy/v1", "Eviction", "evictions", cluster=False),
)
# fmt: on

"""The objects of one control plane on its Management Cluster. Pure functions: a HostedCluster in, manifests out.

One pod serves a hosted cluster: API, store (SQLite in etcd's place, on a claim) and controllers are one process, which
is what makes a control plane cost megabytes and not gigabytes. ControlPlaneComponents say so.
"""

from __future__ import annotations

import ipaddress

from regional.hypershift.names import (
    API_PORT,
    API_VERSION,
    CLUSTER,
    CONTROL_PLANE_LABEL,
    FINALIZER,
    KUBE_APISERVER,
    MANAGED,
    RELEASE_IMAGE,
    RESTART_DATE,
    SERVING_CERTIFICATE,
    control_plane_namespace,
    slashed,
)
from regional.hypershift.writing import mark
from regional.kube.objects import Obj, annotations_of, labels_of, name_of, spec_of

DATA = "/var/lib/kube-apiserver"
PKI = "/etc/kubernetes/pki"
GUEST_CONTROLLERS = "accounts,aggregation"
"""Besides the ends of namespaces and owners, which always run. Nodes are simulated, so nothing that makes pods runs."""
APP = {"app": KUBE_APISERVER}
COPIED = (
    "autoscaling",
    "channel",
    "configuration",
    "controllerAvailabilityPolicy",
    "dns",
    "etcd",
    "fips",
    "infrastructureAvailabilityPolicy",
    "issuerURL",
    "kubeAPIServerDNSName",
    "networking",
    "pausedUntil",
    "platform",
    "pullSecret",
    "secretEncryption",
    "services",
    "sshKey",
)


def namespace(hosted: Obj) -> Obj:
    labels = {CONTROL_PLANE_LABEL: "true"}
    return mark(_object("v1", "Namespace", control_plane_namespace(hosted), labels=labels), hosted)


def service_account(hosted: Obj) -> Obj:
    account = _object("v1", "ServiceAccount", KUBE_APISERVER, control_plane_namespace(hosted))
    return mark(account | {"automountServiceAccountToken": False}, hosted)


def service(hosted: Obj, address: str = "") -> Obj:
    """`address` asks for the one that the cluster's kubeconfigs already name, should the Service be made anew."""
    made = _object("v1", "Service", KUBE_APISERVER, control_plane_namespace(hosted), labels=APP)
    ports = [{"name": "https", "port": API_PORT, "protocol": "TCP", "targetPort": API_PORT}]
    made["spec"] = {"type": "ClusterIP", "selector": APP, "ports": ports} | ({"clusterIP": address} if address else {})
    return mark(made, hosted)


def config_map(hosted: Obj, name: str, data: dict[str, str]) -> Obj:
    return mark(_object("v1", "ConfigMap", name, control_plane_namespace(hosted)) | {"data": data}, hosted)


def service_network(hosted: Obj) -> str:
    return str(spec_of(hosted)["networking"]["serviceNetwork"][0]["cidr"])


def published_names(hosted: Obj) -> tuple[list[str], list[str]]:
    """DNS names and addresses under which this cluster's API is said to be reached, besides its Service."""
    spec = spec_of(hosted)
    found = {str(spec.get("kubeAPIServerDNSName") or "")}
    for entry in spec.get("services") or []:
        strategy = entry["servicePublishingStrategy"]
        if entry["service"] == "APIServer":
            found |= {str((strategy.get(kind) or {}).get("hostname") or "") for kind in ("route", "loadBalancer")}
            found.add(str((strategy.get("nodePort") or {}).get("address") or ""))
    advertised = (spec["networking"].get("apiServer") or {}).get("advertiseAddress")
    found.add(str(advertised or "172.20.0.1"))
    addresses = {name for name in found if _is_address(name)}
    return sorted(found - addresses - {""}), sorted(addresses)


def stateful_set(hosted: Obj, image: str, address: str, serving_certificate: str) -> Obj:
    """A new release, certificate or restart date is a new pod template: the controllers replace the pod."""
    volume = spec_of(hosted)["etcd"].get("managed", {}).get("storage", {}).get("persistentVolume", {})
    claim: Obj = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(volume.get("size") or "8Gi")}},
    }
    if volume.get("storageClassName"):
        claim["storageClassName"] = volume["storageClassName"]
    annotations = {
        RELEASE_IMAGE: str(spec_of(hosted)["release"]["image"]),
        SERVING_CERTIFICATE: serving_certificate,
    }
    if restart := annotations_of(hosted).get(RESTART_DATE):
        annotations[RESTART_DATE] = restart
    made = _object("apps/v1", "StatefulSet", KUBE_APISERVER, control_plane_namespace(hosted), labels=APP)
    made["spec"] = {
        "replicas": 1,
        "serviceName": KUBE_APISERVER,
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": APP},
        "template": {
            "metadata": {
                "labels": MANAGED | APP,
                # No request id: every request would replace the pod.
                "annotations": annotations | {CLUSTER: slashed(hosted)},
            },
            "spec": {
                "serviceAccountName": KUBE_APISERVER,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 10,
                "containers": [_container(hosted, image, address)],
                "volumes": [_pki_volume()],
            },
        },
        "volumeClaimTemplates": [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim}
        ],
    }
    return mark(made, hosted)


def _container(hosted: Obj, image: str, address: str) -> Obj:
    arguments = {
        "cluster": name_of(hosted),
        "data": DATA,
        "pki": PKI,
        "address": "$(POD_IP)",
        "advertise-address": address,
        "port": str(API_PORT),
        "service-cidr": service_network(hosted),
        "service-account-issuer": str(spec_of(hosted).get("issuerURL") or ""),
        "controllers": GUEST_CONTROLLERS,
    }
    return {
        "name": KUBE_APISERVER,
        "image": image,
        "command": ["regionctl", "serve", "kube-api"],
        "args": [f"--{flag}={value}" for flag, value in arguments.items() if value],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
        "ports": [{"name": "https", "containerPort": API_PORT, "protocol": "TCP"}],
        "readinessProbe": _probe("/readyz", period=10, failures=2),
        "livenessProbe": _probe("/livez", period=30, failures=3),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "pki", "mountPath": PKI, "readOnly": True},
        ],
    }


def _probe(path: str, *, period: int, failures: int) -> Obj:
    return {
        "httpGet": {"path": path, "port": API_PORT, "scheme": "HTTPS"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _pki_volume() -> Obj:
    """The contract's Secrets under the file names that `kube-api` reads."""

    def source(kind: str, name: str, files: dict[str, str]) -> Obj:
        return {kind: {"name": name, "items": [{"key": key, "path": path} for path, key in files.items()]}}

    account_keys = {"sa.key": "service-account.key", "sa.pub": "service-account.pub"}
    return {
        "name": "pki",
        "projected": {
            "sources": [
                source("secret", "root-ca", {"ca.crt": "ca.crt"}),
                source("secret", "kas-server-crt", {"apiserver.crt": "tls.crt", "apiserver.key": "tls.key"}),
                source("secret", "sa-signing-key", account_keys),
                source("configMap", "total-client-ca", {"client-ca.crt": "ca.crt"}),
            ],
            "defaultMode": 420,
        },
    }


def hosted_control_plane(hosted: Obj) -> Obj:
    spec = spec_of(hosted)
    shared = {name: value for name, value in labels_of(hosted).items() if name.startswith("api.openshift.com/")}
    made = _object(API_VERSION, "HostedControlPlane", name_of(hosted), control_plane_namespace(hosted), labels=shared)
    made["metadata"]["finalizers"] = [FINALIZER]
    made["spec"] = {name: spec[name] for name in COPIED if name in spec} | {
        "releaseImage": spec["release"]["image"],
        "clusterID": spec["clusterID"],
        "infraID": spec["infraID"],
    }
    return mark(made, hosted)


def component(hosted: Obj, name: str) -> Obj:
    made = _object(API_VERSION, "ControlPlaneComponent", name, control_plane_namespace(hosted))
    return mark(made | {"spec": {"componentName": name}}, hosted)


def _object(
    api_version: str, kind: str, name: str, namespace: str = "", *, labels: dict[str, str] | None = None
) -> Obj:
    metadata: Obj = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata | ({"labels": dict(labels)} if labels else {}),
    }


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

"""Names that others read: kinds, annotations, labels, Secrets, and where a control plane lives."""

from __future__ import annotations

import logging

from regional.kube.objects import Key, Obj, annotations_of, key_of, labels_of, name_of, namespace_of, spec_of

API_VERSION = "hypershift.openshift.io/v1beta1"
PREFIX = "hypershift.openshift.io/"

FINALIZER = f"{PREFIX}finalizer"
CLUSTER = f"{PREFIX}cluster"
"""On everything made for a HostedCluster: `<namespace>/<name>` of that."""
NODE_POOL = f"{PREFIX}nodePool"
CONTROL_PLANE_LABEL = f"{PREFIX}hosted-control-plane"
HAS_BEEN_AVAILABLE = f"{PREFIX}HasBeenAvailable"
RELEASE_IMAGE = f"{PREFIX}release-image"
RELEASE_VERSION = f"{PREFIX}release-version"
RESTART_DATE = f"{PREFIX}restart-date"
SERVING_CERTIFICATE = f"{PREFIX}serving-certificate"
SKIP_RELEASE_VALIDATION = f"{PREFIX}skip-release-image-validation"
KEEP_NAMESPACE = f"{PREFIX}skip-delete-hosted-controlplane-namespace"
FORCE_UPGRADE_TO = f"{PREFIX}force-upgrade-to"
CURRENT_CONFIG = f"{PREFIX}nodePoolCurrentConfig"
CURRENT_CONFIG_VERSION = f"{PREFIX}nodePoolCurrentConfigVersion"
REQUEST_ID = "regional.io/request-id"
SIMULATED = "regional.io/simulated"
RESOURCE_ID = "regional.io/resource-id"

MANAGED = {"app.kubernetes.io/managed-by": "hypershift"}
MANAGED_SELECTOR = "app.kubernetes.io/managed-by=hypershift"
FIELD_MANAGER = "hypershift-operator"

KUBE_APISERVER = "kube-apiserver"
API_PORT = 6443
NAMESPACE_LENGTH = 63


def control_plane_namespace(hosted: Obj) -> str:
    return f"{namespace_of(hosted)}-{name_of(hosted).replace('.', '-')}"


def admin_kubeconfig(hosted: Obj) -> str:
    return f"{name_of(hosted)}-admin-kubeconfig"


def kubeadmin_password(hosted: Obj) -> str:
    return f"{name_of(hosted)}-kubeadmin-password"


def slashed(obj: Obj) -> str:
    return "/".join(key_of(obj))


def cluster_of(obj: Obj) -> Key | None:
    """The HostedCluster that an object of a control plane was made for."""
    namespace, slash, name = annotations_of(obj).get(CLUSTER, "").partition("/")
    return (namespace, name) if slash and name else None


def request_of(obj: Obj) -> str:
    return annotations_of(obj).get(REQUEST_ID, "")


def resource_of(obj: Obj) -> str:
    """The id under which the region knows it; its own name if nobody of the region made it."""
    known = labels_of(obj).get(RESOURCE_ID) or spec_of(obj).get("clusterID")
    return str(known or slashed(obj))


class Traced(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines carry the object they are about and the request that it came with."""

    def __init__(self, logger: logging.Logger, obj: Obj) -> None:
        told = {obj.get("kind", "object").lower(): slashed(obj)}
        request = request_of(obj)
        super().__init__(logger, told | ({"request_id": request} if request else {}))

    def process(self, msg: object, kwargs: object) -> tuple[object, object]:  # type: ignore[override]
        assert isinstance(kwargs, dict)
        return msg, kwargs | {"extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}

"""What a cluster adds to or refuses in an object besides its own rules: namespaces that end, what a pod is given."""

from __future__ import annotations

import secrets

from regional.kube.apiserver.addresses import ServiceAddresses
from regional.kube.apiserver.authz import Authorizer
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import Catalogue, store_name
from regional.kube.apiserver.entries import Obj
from regional.kube.apiserver.errors import Cause, StatusError, forbidden, not_found
from regional.kube.apiserver.escalation import GUARDED, check_grant
from regional.kube.apiserver.store import Store
from regional.kube.schema.registry import Kind, by_plural

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
PROTECTED = frozenset(("default", "kube-system", "kube-public"))
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def suffix(length: int = 5) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


class Admission:
    def __init__(self, store: Store, catalogue: Catalogue, authorizer: Authorizer, addresses: ServiceAddresses) -> None:
        self._store = store
        self._catalogue = catalogue
        self._authorizer = authorizer
        self._addresses = addresses

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """New content needs a namespace that lives."""
        if not kind.namespaced:
            return
        entry = self._store.get("namespaces", "", namespace)
        if entry is None:
            namespaces = by_plural("", "v1", "namespaces")
            assert namespaces is not None
            raise not_found(namespaces, namespace)
        if entry.fields.get("status.phase") == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise forbidden(kind, name, why, [cause])

    def mutate(self, call: Call, obj: Obj, old: Obj | None) -> None:
        """Before validation. Raises to refuse."""
        if old is None and call.kind.group == "" and call.kind.kind == "Pod":
            self._equip_pod(call, obj)
        if store_name(call.kind) in GUARDED:
            check_grant(self._authorizer, call.user, call.kind, obj, old)
        custom = self._catalogue.custom(call.kind)
        if old is None and custom is not None and custom.deleting:
            raise StatusError(
                405, "MethodNotAllowed", "create not allowed while custom resource definition is terminating", {}
            )

    def allocate(self, call: Call, obj: Obj, old: Obj | None) -> None:
        """After validation, when nothing else can refuse the object."""
        if call.kind.group == "" and call.kind.kind == "Service":
            self._addresses.assign(call.kind, obj, old)

    def _equip_pod(self, call: Call, pod: Obj) -> None:
        spec, namespace = pod["spec"], pod["metadata"]["namespace"]
        if "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {}):
            return
        account_name = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = account_name
        account = self._store.get("serviceaccounts", namespace, account_name)
        if account is None:
            lost = f'serviceaccount "{account_name}" not found'
            why = f"error looking up service account {namespace}/{account_name}: {lost}"
            raise forbidden(call.kind, pod["metadata"]["name"], why)
        body = account.obj()
        if not spec.get("imagePullSecrets") and body.get("imagePullSecrets"):
            spec["imagePullSecrets"] = body["imagePullSecrets"]
        automount = spec.get("automountServiceAccountToken", body.get("automountServiceAccountToken", True))
        if automount:
            _mount_token(spec)
        self._prioritise(call, pod)
        tolerations = spec.setdefault("tolerations", [])
        for key in _TOLERATED:
            if not any(each.get("key") in (None, "", key) for each in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})

    def _prioritise(self, call: Call, pod: Obj) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if name:
            entry = self._store.get("priorityclasses.scheduling.k8s.io", "", name)
            if entry is None:
                why = f"no PriorityClass with name {name} was found"
                raise forbidden(call.kind, pod["metadata"]["name"], why)
            chosen = entry.obj()
            spec["priority"] = chosen.get("value", 0)
            spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _mount_token(spec: Obj) -> None:
    """The projected volume with token, CA and namespace, for every container that mounts nothing there itself."""
    volume = f"kube-api-access-{suffix()}"
    mounted = False
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            mounts.append({"name": volume, "readOnly": True, "mountPath": TOKEN_PATH})
            mounted = True
    if not mounted:
        return
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    spec.setdefault("volumes", []).append({"name": volume, "projected": {"sources": sources, "defaultMode": 420}})

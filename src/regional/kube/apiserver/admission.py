"""What a cluster adds to or refuses in an object besides its own rules: namespaces that end, what a pod is given."""

from __future__ import annotations

import secrets
from datetime import datetime

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver import signing_requests
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
PRIORITIES = "priorityclasses.scheduling.k8s.io"
PROTECTED = frozenset(("default", "kube-system", "kube-public"))
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def suffix(length: int = 5) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


class Admission:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        authorizer: Authorizer,
        addresses: ServiceAddresses,
        clock: Clock,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._authorizer = authorizer
        self._addresses = addresses
        self._clock = clock

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """New content needs a namespace that lives."""
        if not kind.namespaced:
            return
        entry = self._store.get("namespaces", "", namespace)
        if entry is None:
            namespaces = by_plural("", "v1", "namespaces")
            assert namespaces is not None
            raise not_found(namespaces, namespace)
        # An end that is decided and not on disk yet counts: whoever empties the namespace would not see this object.
        latest = self._store.decided("namespaces", "", namespace)
        if latest is None or latest.fields.get("status.phase") == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            raise forbidden(kind, name, why, [cause])

    def mutate(self, call: Call, obj: Obj, old: Obj | None) -> None:
        """Before validation. Raises to refuse."""
        if call.kind.group == "" and call.kind.kind == "Pod":
            if old is None:
                self._equip_pod(call, obj)
            elif not call.target.subresource:
                _tolerate(obj["spec"])
        if store_name(call.kind) in GUARDED:
            check_grant(self._authorizer, call.user, call.kind, obj, old)
        if store_name(call.kind) == PRIORITIES:
            self._check_sole_default(call, obj)
        if call.kind.kind == "CertificateSigningRequest" and call.kind.group == signing_requests.GROUP:
            signing_requests.admit(self._authorizer, call, obj, old, self._clock.now())
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
        if spec.get("schedulingGates"):
            pod["status"]["conditions"] = [_gated(self._clock.now())]
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
        _tolerate(spec)

    def _prioritise(self, call: Call, pod: Obj) -> None:
        """From its class, or the class for pods without one; nobody takes more than that."""
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if name:
            entry = self._store.get(PRIORITIES, "", name)
            if entry is None:
                why = f"no PriorityClass with name {name} was found"
                raise forbidden(call.kind, pod["metadata"]["name"], why)
            chosen = entry.obj()
        else:
            chosen = self._default_priority() or {}
            if chosen:
                spec["priorityClassName"] = chosen["metadata"]["name"]
        values = (
            ("integer", "priority", chosen.get("value", 0)),
            ("string", "preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority")),
        )
        for type_name, field, value in values:
            given = spec.get(field)
            if given is not None and given != value:
                told = field[0].upper() + field[1:] if type_name == "string" else field
                why = f"the {type_name} value of {told} ({given}) must not be provided in pod spec; "
                why += f"priority admission controller computed {value} from the given PriorityClass name"
                raise forbidden(call.kind, pod["metadata"]["name"], why)
            spec[field] = value

    def _default_priority(self) -> Obj | None:
        classes = (entry.obj() for entry in self._store.shelf(PRIORITIES).entries.values())
        defaults = [each for each in classes if each.get("globalDefault")]
        return min(defaults, key=lambda each: int(each.get("value", 0)), default=None)

    def _check_sole_default(self, call: Call, obj: Obj) -> None:
        known = self._default_priority() if obj.get("globalDefault") else None
        if known is not None and known["metadata"]["name"] != obj["metadata"]["name"]:
            why = f"PriorityClass {known['metadata']['name']} is already marked as default. Only one default can exist"
            raise forbidden(call.kind, obj["metadata"]["name"], why)


def _tolerate(spec: Obj) -> None:
    """Every pod bears a node's silence for five minutes, unless it says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATED:
        if not any(each.get("key") in (None, "", key) for each in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _gated(now: datetime) -> Obj:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _mount_token(spec: Obj) -> None:
    """The projected volume with token, CA and namespace, for every container that mounts nothing there itself."""
    volume = f"kube-api-access-{suffix()}"
    mounted = False
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
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

"""From what there is of a control plane to what its objects say. Pure functions."""

from __future__ import annotations

from datetime import datetime

import msgspec

from regional.core.clock import rfc3339
from regional.hypershift.conditions import Finding, Findings, false, read, true, unknown, well
from regional.hypershift.guest.report import GuestReport
from regional.hypershift.releases import Release
from regional.kube.objects import Obj, copied, generation_of, is_deleting, is_true, labels_of, spec_of, status_of

HISTORY = 100
_FROM_GUEST = ("Available", "Progressing", "ReleaseAccepted", "RetrievedUpdates", "Upgradeable")


class Component(msgspec.Struct, frozen=True):
    available: Finding
    rolled_out: Finding
    version: str = ""


class Observed(msgspec.Struct, kw_only=True):
    """One look at a control plane."""

    address: str = ""
    kubeconfig: bool = False
    stateful_set: Obj | None = None
    pod: Obj | None = None
    unreachable: str = "not asked yet"
    """Why the API does not answer through its Service; "" when it does."""
    store_problem: str = ""
    guest: GuestReport | None = None
    configured: str = "the guest's own objects are not written yet"
    """What is missing of the objects that the config operator keeps in the guest; "" when nothing is."""
    release: Release | None = None

    @property
    def serving(self) -> bool:
        return self.pod is not None and is_true(self.pod, "Ready")

    @property
    def rolled_out(self) -> bool:
        """The pod that serves is the one that is wanted. Its own label says so sooner than the StatefulSet's counts."""
        if self.stateful_set is None or self.pod is None or not self.serving:
            return False
        status, mark = status_of(self.stateful_set), labels_of(self.pod).get("controller-revision-hash", "")
        return (
            not is_deleting(self.pod)
            and status.get("observedGeneration") == generation_of(self.stateful_set)
            and bool(mark)
            # The label is the revision's whole name on some clusters and only its hash on others.
            and f"-{status.get('updateRevision')}".endswith(f"-{mark}")
        )


# -- components -------------------------------------------------------------------------------------------------------


def components(observed: Observed) -> dict[str, Component]:
    """What the control plane consists of, whoever plays the part."""
    kube_api = _kube_api(observed)
    etcd = _etcd(observed)
    inside = "runs inside the pod of StatefulSet kube-apiserver"
    pod = _rollout(observed)
    version = observed.release.version if observed.release is not None and pod.holds else ""
    configured = _configured(observed)
    return {
        "etcd": Component(msgspec.structs.replace(etcd, message=f"{etcd.message}; {inside}"), pod, version),
        "kube-apiserver": Component(kube_api, pod, version),
        "kube-controller-manager": Component(
            msgspec.structs.replace(kube_api, message=f"{kube_api.message}; {inside}"), pod, version
        ),
        "hosted-cluster-config-operator": Component(
            configured, true(message="The operator plays this part itself") if configured.holds else configured, version
        ),
    }


def _rollout(observed: Observed) -> Finding:
    if observed.rolled_out:
        return true(message="kube-apiserver is rolled out")
    return false("RolloutInProgress", "the pod of kube-apiserver is being replaced or started")


def _configured(observed: Observed) -> Finding:
    if not observed.serving:
        return false("WaitingForDependencies", "waiting for kube-apiserver")
    return false("ReconciliationError", observed.configured) if observed.configured else true()


def _kube_api(observed: Observed) -> Finding:
    if observed.stateful_set is None:
        return false("NotFound", "StatefulSet kube-apiserver does not exist yet")
    if not observed.serving:
        return false("WaitingForAvailable", f"kube-apiserver is not ready: {_why_not_ready(observed.pod)}")
    return true(message="kube-apiserver is available")


def _etcd(observed: Observed) -> Finding:
    if observed.stateful_set is None:
        return false("StatefulSetNotFound", "the store's StatefulSet does not exist yet")
    if not observed.serving:
        return false("EtcdWaitingForQuorum", f"the store is not served: {_why_not_ready(observed.pod)}")
    if observed.store_problem:
        return false("EtcdWaitingForQuorum", observed.store_problem)
    return Finding("True", "QuorumAvailable", "the store takes writes")


def _why_not_ready(pod: Obj | None) -> str:
    if pod is None:
        return "its pod does not exist yet"
    for container in status_of(pod).get("containerStatuses") or []:
        waiting = container["state"].get("waiting") or {}
        if waiting:
            return ": ".join(text for text in (waiting.get("reason"), waiting.get("message")) if text)
    for condition in status_of(pod).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or "not placed on a node")
    return f"its pod is {status_of(pod).get('phase', 'Pending')} and not ready"


# -- HostedControlPlane -----------------------------------------------------------------------------------------------


def control_plane_findings(observed: Observed, parts: dict[str, Component], *, was_available: bool) -> Findings:
    infrastructure = (
        true(message=f"The API is published at {observed.address}")
        if observed.address
        else false("WaitingOnInfrastructureReady", "Service kube-apiserver has no address yet")
    )
    etcd, kube_api = _etcd(observed), _kube_api(observed)
    findings = {
        "InfrastructureReady": infrastructure,
        "EtcdAvailable": etcd,
        "KubeAPIServerAvailable": kube_api,
        "ValidHostedControlPlaneConfiguration": true(message="Configuration passes validation"),
        "ValidReleaseInfo": true(message="All of the release is at hand"),
        "ConfigOperatorReconciliationSucceeded": _configured(observed),
        "ExternalDNSReachable": unknown(message="No external name is published on this machine"),
        "Degraded": _degraded(observed),
        **_connections(observed.guest),
        **_guest_findings(observed.guest),
    }
    hurdles = [infrastructure]
    if not observed.kubeconfig:
        hurdles.append(false("KubeconfigWaitingForCreate", "the admin kubeconfig does not exist yet"))
    hurdles += [etcd, kube_api]
    if observed.unreachable:
        hurdles.append(
            false("KASLoadBalancerNotReachable", f"the published API does not answer: {observed.unreachable}")
        )
    missing = [name for name, part in parts.items() if not part.available.holds]
    if missing and not was_available:
        hurdles.append(false("ComponentsNotAvailable", f"not available yet: {', '.join(missing)}"))
    failed = next((hurdle for hurdle in hurdles if not hurdle.holds), None)
    findings["Available"] = failed or true(message="The hosted control plane is available")
    return findings


def _degraded(observed: Observed) -> Finding:
    """By the one pod there is: the StatefulSet's own count of it comes a moment later."""
    if observed.stateful_set is not None and not observed.serving:
        return Finding("True", "UnavailableReplicas", "kube-apiserver has 1 unavailable replica")
    return well("The hosted control plane is not degraded")


def _connections(guest: GuestReport | None) -> Findings:
    kinds = ("DataPlaneConnectionAvailable", "ControlPlaneConnectionAvailable")
    if guest is None:
        return {kind: unknown() for kind in kinds}
    if not guest.ready_nodes:
        return {kind: unknown("NoWorkerNodesAvailable", "No worker nodes are available") for kind in kinds}
    return {kind: true(message=f"{guest.ready_nodes} simulated nodes are connected") for kind in kinds}


def _guest_findings(guest: GuestReport | None) -> Findings:
    live = guest.cluster_version if guest is not None else None
    if live is None:
        silent = unknown("FromClusterVersion", "The guest has not reported yet")
        return {f"ClusterVersion{kind}": silent for kind in (*_FROM_GUEST, "Succeeding")}
    found = {}
    for kind in _FROM_GUEST:
        finding = read(live, kind) or unknown("FromClusterVersion")
        found[f"ClusterVersion{kind}"] = msgspec.structs.replace(finding, reason=finding.reason or "FromClusterVersion")
    failing = read(live, "Failing")
    opposite = {"True": "False", "False": "True"}
    found["ClusterVersionSucceeding"] = Finding(
        opposite.get(failing.status, "Unknown") if failing is not None else "Unknown",  # type: ignore[arg-type]
        failing.reason if failing is not None and failing.reason else "FromClusterVersion",
        failing.message if failing is not None else "",
    )
    return found


# -- HostedCluster ----------------------------------------------------------------------------------------------------


def hosted_cluster_findings(
    hosted: Obj, gates: Findings, plane: Findings | None, blocked: str, guest: GuestReport | None
) -> Findings:
    """`plane` is None while there is no HostedControlPlane."""
    findings: dict[str, Finding] = dict(gates)
    if plane is None:
        silent = control_plane_findings(Observed(), {}, was_available=True)
        findings |= {kind: unknown(message="The hosted control plane is not found") for kind in silent}
        waiting = blocked or "waiting for the hosted control plane"
        findings["Available"] = false("WaitingForAvailable", waiting)
    else:
        findings |= plane
    findings["IgnitionEndpointAvailable"] = true(message="Nodes are simulated: they need no ignition")
    findings["Progressing"] = _progressing(hosted, blocked, guest)
    if spec_of(hosted)["platform"]["type"] == "AWS":
        findings["PlatformCredentialsFound"] = true(message="Nothing of the cloud is touched on this machine")
        findings["ValidAWSIdentityProvider"] = unknown(message="Roles are not assumed on this machine")
    if not (spec_of(hosted).get("secretEncryption") or {}).get("kms"):
        findings["ValidAWSKMSConfig"] = unknown(message="No KMS key is configured")
    return findings


def _progressing(hosted: Obj, blocked: str, guest: GuestReport | None) -> Finding:
    if blocked:
        return false("Blocked", blocked)
    wanted = spec_of(hosted)["release"]["image"]
    live = guest.cluster_version if guest is not None else None
    reported = ((status_of(live) if live is not None else {}).get("desired") or {}).get("image")
    if reported == wanted:
        return well("The cluster is at the release that is asked for")
    return Finding("True", "Progressing", f"rolling out {wanted}")


# -- versions ---------------------------------------------------------------------------------------------------------


def version(hosted: Obj, guest: GuestReport | None, generation: int, now: datetime) -> Obj:
    """A copy of the guest's ClusterVersion; before there is one, one open entry for what is asked for."""
    live = guest.cluster_version if guest is not None else None
    if live is not None:
        status = status_of(live)
        told = {name: status[name] for name in ("desired", "history", "conditionalUpdates") if status.get(name)}
        told |= {
            "observedGeneration": int(status.get("observedGeneration") or 0),
            "availableUpdates": status.get("availableUpdates"),
        }
        return copied(told)
    image = spec_of(hosted)["release"]["image"]
    known: Obj = status_of(hosted).get("version") or {}
    if (known.get("desired") or {}).get("image") == image:
        return known
    entry = {"state": "Partial", "startedTime": rfc3339(now), "completionTime": None, "version": "", "image": image}
    return {
        "desired": {"image": image, "version": ""},
        "history": [entry | {"verified": False}, *_closed(known.get("history") or [], now)][:HISTORY],
        "observedGeneration": generation,
        "availableUpdates": None,
    }


def control_plane_version(known: Obj, release: Release, rolled_out: bool, generation: int, now: datetime) -> Obj:
    """The Management Cluster's side alone: complete when every component has the version."""
    desired = {"image": release.image, "version": release.version}
    history = [dict(entry) for entry in known.get("history") or []]
    if not history or history[0]["image"] != release.image:
        first = {"state": "Partial", "startedTime": rfc3339(now), **desired}
        history = [first, *_closed(history, now)][:HISTORY]
    if rolled_out and history[0]["state"] == "Partial":
        history[0] |= {"state": "Completed", "completionTime": rfc3339(now)}
    return {"desired": desired, "history": history, "observedGeneration": generation}


def _closed(history: list[Obj], now: datetime) -> list[Obj]:
    """An entry that a newer one overtakes ends then, complete or not."""
    return [entry if entry.get("completionTime") else entry | {"completionTime": rfc3339(now)} for entry in history]

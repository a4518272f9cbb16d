"""The guest's ClusterVersion and ClusterOperators: what the cluster version operator and its flock would report."""

from __future__ import annotations

from datetime import datetime

import msgspec

from regional.core.clock import rfc3339
from regional.hypershift.guest.connection import CONFIG
from regional.hypershift.releases import Release
from regional.kube.objects import Obj, copied, set_condition, status_of

OPERATORS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "openshift-apiserver",
    "openshift-controller-manager",
    "operator-lifecycle-manager-packageserver",
)
HISTORY = 100


class Facts(msgspec.Struct, frozen=True):
    """What the inside of a guest depends on."""

    cluster_id: str
    channel: str
    release: Release
    rolled_out: bool
    """The control plane runs this release."""
    password: str
    """Of kubeadmin; "" where the cluster has identity providers of its own."""
    request_id: str = ""


def cluster_version(live: Obj | None, facts: Facts, ready_nodes: int, now: datetime) -> Obj:
    """Operators of the guest run on its nodes: without any, the version stays Partial."""
    release = facts.release
    complete = facts.rolled_out and ready_nodes > 0
    history = [dict(entry) for entry in status_of(live or {}).get("history") or []]
    if not history or history[0]["image"] != release.image:
        for entry in history[:1]:
            entry["completionTime"] = entry.get("completionTime") or rfc3339(now)
        first = {"state": "Partial", "startedTime": rfc3339(now), "completionTime": None, "verified": False}
        history = [first | {"version": release.version, "image": release.image}, *history][:HISTORY]
    if complete and history[0]["state"] == "Partial":
        history[0] |= {"state": "Completed", "completionTime": rfc3339(now)}
    made: Obj = {
        "apiVersion": CONFIG,
        "kind": "ClusterVersion",
        "metadata": {"name": "version"},
        "spec": {"clusterID": facts.cluster_id} | ({"channel": facts.channel} if facts.channel else {}),
        "status": {
            "desired": {"version": release.version, "image": release.image},
            "history": history,
            "observedGeneration": 1,
            "versionHash": "",
            "availableUpdates": None,
            "conditions": copied(status_of(live or {})).get("conditions") or [],
        },
    }
    done = history[0]["state"] == "Completed"
    waiting = f"Working towards {release.version}: " + (
        "waiting for worker nodes" if facts.rolled_out else "waiting for the control plane"
    )
    ever = any(entry["state"] == "Completed" for entry in history)
    told = f"Done applying {release.version}" if ever else ""
    set_condition(made, "Available", ever, "AsExpected" if ever else "WaitingForNodes", told, now=now)
    text = f"Cluster version is {release.version}" if done else waiting
    set_condition(made, "Progressing", not done, "AsExpected" if done else "Progressing", text, now=now)
    set_condition(made, "Failing", False, "AsExpected", "", now=now)
    loaded = f'Payload loaded version="{release.version}" image="{release.image}"'
    set_condition(made, "ReleaseAccepted", True, "PayloadLoaded", loaded, now=now)
    set_condition(made, "RetrievedUpdates", False, "NoUpdateService", "No update service is asked here", now=now)
    set_condition(made, "Upgradeable", True, "AsExpected", "", now=now)
    return made


def cluster_operator(name: str, live: Obj | None, facts: Facts, now: datetime) -> Obj:
    made: Obj = {
        "apiVersion": CONFIG,
        "kind": "ClusterOperator",
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "versions": [{"name": "operator", "version": facts.release.version}],
            "conditions": copied(status_of(live or {})).get("conditions") or [],
        },
    }
    for kind, value in (("Available", True), ("Progressing", False), ("Degraded", False), ("Upgradeable", True)):
        set_condition(made, kind, value, "AsExpected", "The hosted control plane provides it", now=now)
    return made

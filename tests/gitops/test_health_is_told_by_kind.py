from __future__ import annotations

from typing import Any

import pytest

from regional.gitops.health import Health, health_of, worst
from tests.gitops.harness import Obj


def obj(api_version: str, kind: str, status: Any = None, *, spec: Any = None, **metadata: Any) -> Obj:
    made: Obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 1} | metadata}
    return made | ({"spec": spec} if spec is not None else {}) | ({"status": status} if status is not None else {})


def condition(kind: str, status: str = "True", **more: str) -> Obj:
    return {"type": kind, "status": status} | more


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
HYPERSHIFT = "hypershift.openshift.io/v1beta1"


def budget(status: str, reason: str) -> Obj:
    return obj(
        "policy/v1", "PodDisruptionBudget", {"conditions": [condition("DisruptionAllowed", status, reason=reason)]}
    )


DONE = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("thing", "status"),
    [
        (obj("v1", "ConfigMap"), None),
        (obj("argoproj.io/v1alpha1", "Application", {"health": {"status": "Degraded"}}), None),
        (obj("demo.io/v1", "Widget", {"phase": "Broken"}), None),
        (obj("v1", "ConfigMap", deletionTimestamp="2026-01-01T00:00:00Z"), "Progressing"),
        (obj("policy/v1", "PodDisruptionBudget"), "Progressing"),
        (budget("True", "SufficientPods"), "Healthy"),
        (budget("False", "InsufficientPods"), "Healthy"),
        (budget("False", "SyncFailed"), "Degraded"),
        (obj("batch/v1", "CronJob"), "Progressing"),
        (obj("batch/v1", "CronJob", spec={"suspend": True}), "Healthy"),
        (obj("batch/v1", "CronJob", {"lastScheduleTime": LATE, "lastSuccessfulTime": LATE}), "Healthy"),
        (obj("batch/v1", "CronJob", {"lastScheduleTime": LATE, "lastSuccessfulTime": EARLY}), "Degraded"),
        (obj("batch/v1", "CronJob", {"lastScheduleTime": LATE}), "Healthy"),
        (obj(HYPERSHIFT, "HostedCluster"), "Progressing"),
        (obj(HYPERSHIFT, "HostedCluster", {"conditions": [condition("Available")]}), "Healthy"),
        (
            obj(HYPERSHIFT, "HostedCluster", {"conditions": [condition("Available"), condition("Degraded")]}),
            "Degraded",
        ),
        (obj(HYPERSHIFT, "NodePool", {"conditions": [condition("Ready", "False")]}), "Progressing"),
        (obj(HYPERSHIFT, "NodePool", {"conditions": [condition("Ready")]}), "Healthy"),
        (obj("apps/v1", "Deployment", DONE, spec={"replicas": 1}), "Healthy"),
        (obj("apps/v1", "Deployment", DONE, spec={"replicas": 0, "paused": True}), "Suspended"),
        (obj("apps/v1", "Deployment", DONE, spec={"replicas": 2}), "Progressing"),
        (obj("apps/v1", "Deployment", DONE | {"replicas": 2}, spec={"replicas": 1}), "Progressing"),
        (obj("apps/v1", "Deployment", DONE, spec={"replicas": 1}, generation=2), "Progressing"),
        (
            obj(
                "apps/v1",
                "Deployment",
                DONE | {"conditions": [condition("Progressing", "False", reason="ProgressDeadlineExceeded")]},
                spec={"replicas": 1},
            ),
            "Degraded",
        ),
        (obj("apps/v1", "StatefulSet", {}, spec={"replicas": 1}), "Progressing"),
        (
            obj(
                "apps/v1",
                "StatefulSet",
                {"observedGeneration": 1, "readyReplicas": 1, "updateRevision": "b", "currentRevision": "b"},
                spec={"replicas": 1},
            ),
            "Healthy",
        ),
        (obj("apps/v1", "DaemonSet", {"observedGeneration": 1, "desiredNumberScheduled": 1}), "Progressing"),
        (
            obj("apps/v1", "ReplicaSet", {"observedGeneration": 1, "availableReplicas": 1}, spec={"replicas": 1}),
            "Healthy",
        ),
        (obj("batch/v1", "Job", {"conditions": [condition("Failed", message="no")]}), "Degraded"),
        (obj("batch/v1", "Job", {"conditions": [condition("Complete")]}), "Healthy"),
        (obj("batch/v1", "Job", {"active": 1}), "Progressing"),
        (obj("v1", "PersistentVolumeClaim", {"phase": "Lost"}), "Degraded"),
        (obj("v1", "PersistentVolumeClaim", {"phase": "Bound"}), "Healthy"),
        (obj("v1", "Service", spec={"type": "LoadBalancer"}), "Progressing"),
        (
            obj("v1", "Service", {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, spec={"type": "LoadBalancer"}),
            "Healthy",
        ),
        (obj("v1", "Service", spec={"type": "ClusterIP"}), "Healthy"),
        (obj("networking.k8s.io/v1", "Ingress"), "Progressing"),
        (obj("v1", "Pod", {"phase": "Running", "conditions": [condition("Ready")]}), "Healthy"),
        (
            obj(
                "v1",
                "Pod",
                {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            ),
            "Degraded",
        ),
        (obj("v1", "Pod", {"phase": "Failed"}), "Degraded"),
        (obj("v1", "Pod", {"phase": "Odd"}), "Unknown"),
        (
            obj(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                {"conditions": [condition("NamesAccepted"), condition("Established")]},
            ),
            "Healthy",
        ),
        (
            obj(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                {"conditions": [condition("NamesAccepted", "False")]},
            ),
            "Degraded",
        ),
        (obj("argoproj.io/v1alpha1", "ApplicationSet"), "Progressing"),
        (obj("argoproj.io/v1alpha1", "ApplicationSet", {"conditions": [condition("ErrorOccurred")]}), "Degraded"),
        (obj("argoproj.io/v1alpha1", "ApplicationSet", {"conditions": [condition("ResourcesUpToDate")]}), "Healthy"),
        (obj("apps/v1", "Deployment", "not a map", spec={"replicas": 1}), "Unknown"),
    ],
)
def test_health(thing: Obj, status: str | None) -> None:
    found = health_of(thing)
    assert (found.status if found else None) == status


def test_the_worst_counts() -> None:
    found = worst([Health("Healthy"), Health("Progressing", "p"), Health("Degraded", "d"), Health("Suspended")])
    assert found == Health("Degraded", "d")
    assert worst([]).status == "Healthy"

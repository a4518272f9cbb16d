"""Health of an object by its kind, as Argo CD defines it. None means that the kind has no health of its own: it counts
neither for nor against its Application."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from regional.gitops.manifests import group_of
from regional.kube.objects import Obj, condition_of, finalizers_of, generation_of, is_deleting, spec_of, status_of

HEALTHY = "Healthy"
SUSPENDED = "Suspended"
PROGRESSING = "Progressing"
MISSING = "Missing"
DEGRADED = "Degraded"
UNKNOWN = "Unknown"
ORDER = (HEALTHY, SUSPENDED, PROGRESSING, MISSING, DEGRADED, UNKNOWN)


class Health(msgspec.Struct, frozen=True):
    status: str
    message: str = ""

    def fields(self) -> Obj:
        return {"status": self.status} | ({"message": self.message} if self.message else {})


def worst(healths: Iterable[Health]) -> Health:
    found = Health(HEALTHY)
    for health in healths:
        if ORDER.index(health.status) > ORDER.index(found.status):
            found = health
    return found


def has_health(group: str, kind: str) -> bool:
    """Whether a missing object of this kind makes its Application Missing."""
    return (group, kind) in _CHECKS


def health_of(obj: Obj) -> Health | None:
    if is_deleting(obj):
        waiting = finalizers_of(obj)
        return Health(
            PROGRESSING, "Pending deletion" + (f"; blocked by finalizers: {', '.join(waiting)}" if waiting else "")
        )
    check = _CHECKS.get((group_of(obj), obj.get("kind", "")))
    if check is None:
        return None
    try:
        return check(obj)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        return Health(UNKNOWN, f"status cannot be read: {error}")


def _deployment(obj: Obj) -> Health:
    spec, status = spec_of(obj), status_of(obj)
    if spec.get("paused"):
        return Health(SUSPENDED, "Deployment is paused")
    if generation_of(obj) > status.get("observedGeneration", 0):
        return Health(
            PROGRESSING, "Waiting for rollout to finish: observed deployment generation less than desired generation"
        )
    progressing = condition_of(obj, "Progressing") or {}
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Health(DEGRADED, f'Deployment "{obj["metadata"]["name"]}" exceeded its progress deadline')
    wanted = spec.get("replicas", 1)
    updated, replicas = status.get("updatedReplicas", 0), status.get("replicas", 0)
    available = status.get("availableReplicas", 0)
    if updated < wanted:
        return Health(
            PROGRESSING, f"Waiting for rollout to finish: {updated} out of {wanted} new replicas have been updated..."
        )
    if replicas > updated:
        return Health(
            PROGRESSING, f"Waiting for rollout to finish: {replicas - updated} old replicas are pending termination..."
        )
    if available < updated:
        return Health(
            PROGRESSING, f"Waiting for rollout to finish: {available} of {updated} updated replicas are available..."
        )
    return Health(HEALTHY)


def _stateful_set(obj: Obj) -> Health:
    spec, status = spec_of(obj), status_of(obj)
    observed = status.get("observedGeneration", 0)
    if observed == 0 or generation_of(obj) > observed:
        return Health(PROGRESSING, "Waiting for statefulset spec update to be observed...")
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    if ready < wanted:
        return Health(PROGRESSING, f"Waiting for {wanted - ready} pods to be ready...")
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    updated = status.get("updatedReplicas", 0)
    if strategy.get("type", "RollingUpdate") == "RollingUpdate" and partition:
        if updated < wanted - partition:
            part = f"{updated} out of {wanted - partition} new pods have been updated..."
            return Health(PROGRESSING, f"Waiting for partitioned roll out to finish: {part}")
        return Health(HEALTHY, f"partitioned roll out complete: {updated} new pods have been updated...")
    if strategy.get("type") == "OnDelete":
        return Health(HEALTHY, f"statefulset has {ready} ready pods")
    target, current = status.get("updateRevision", ""), status.get("currentRevision", "")
    if target != current:
        waiting = f"{updated} pods at revision {target}..."
        return Health(PROGRESSING, f"waiting for statefulset rolling update to complete {waiting}")
    done = f"{status.get('currentReplicas', 0)} pods at revision {current}..."
    return Health(HEALTHY, f"statefulset rolling update complete {done}")


def _replica_set(obj: Obj) -> Health:
    spec, status = spec_of(obj), status_of(obj)
    if generation_of(obj) > status.get("observedGeneration", 0):
        return Health(
            PROGRESSING, "Waiting for rollout to finish: observed replica set generation less than desired generation"
        )
    failure = condition_of(obj, "ReplicaFailure")
    if failure and failure.get("status") == "True":
        return Health(DEGRADED, failure.get("message", ""))
    wanted, available = spec.get("replicas", 1), status.get("availableReplicas", 0)
    if available < wanted:
        return Health(
            PROGRESSING, f"Waiting for rollout to finish: {available} out of {wanted} new replicas are available..."
        )
    return Health(HEALTHY)


def _daemon_set(obj: Obj) -> Health:
    spec, status = spec_of(obj), status_of(obj)
    if generation_of(obj) > status.get("observedGeneration", 0):
        return Health(
            PROGRESSING, "Waiting for rollout to finish: observed daemon set generation less than desired generation"
        )
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return Health(HEALTHY, "daemon set has observed its generation")
    wanted = status.get("desiredNumberScheduled", 0)
    updated, available = status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)
    if updated < wanted:
        return Health(
            PROGRESSING,
            f"Waiting for daemon set rollout to finish: {updated} out of {wanted} new pods have been updated...",
        )
    if available < wanted:
        return Health(
            PROGRESSING,
            f"Waiting for daemon set rollout to finish: {available} of {wanted} updated pods are available...",
        )
    return Health(HEALTHY)


def _job(obj: Obj) -> Health:
    for condition in status_of(obj).get("conditions") or []:
        if condition.get("status") != "True":
            continue
        if condition["type"] == "Failed":
            return Health(DEGRADED, condition.get("message", ""))
        if condition["type"] == "Complete":
            return Health(HEALTHY, condition.get("message", ""))
        if condition["type"] == "Suspended":
            return Health(SUSPENDED, condition.get("message", ""))
    return Health(PROGRESSING)


def _pod(obj: Obj) -> Health:
    spec, status = spec_of(obj), status_of(obj)
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    if spec.get("restartPolicy", "Always") == "Always":
        for container in containers:
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason.startswith("Err") or reason.endswith(("Error", "BackOff")):
                return Health(DEGRADED, waiting.get("message", ""))
    phase = status.get("phase", "")
    if phase == "Pending":
        return Health(PROGRESSING, status.get("message", ""))
    if phase == "Succeeded":
        return Health(HEALTHY, status.get("message", ""))
    if phase == "Failed":
        return Health(DEGRADED, status.get("message") or _exit_message(containers))
    if phase == "Running":
        if spec.get("restartPolicy", "Always") != "Always":
            return Health(PROGRESSING, status.get("message", ""))
        ready = condition_of(obj, "Ready") or {}
        if ready.get("status") == "True":
            return Health(HEALTHY, status.get("message", ""))
        if any((container.get("lastState") or {}).get("terminated") for container in containers):
            return Health(DEGRADED, status.get("message", ""))
        return Health(PROGRESSING, status.get("message", ""))
    return Health(UNKNOWN, status.get("message", ""))


def _exit_message(containers: Iterable[Obj]) -> str:
    for container in containers:
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return (
                ended.get("message") or f"container {container.get('name')!r} failed with exit code {ended['exitCode']}"
            )
    return ""


def _claim(obj: Obj) -> Health:
    phases = {"Lost": DEGRADED, "Pending": PROGRESSING, "Bound": HEALTHY}
    return Health(phases.get(status_of(obj).get("phase", ""), UNKNOWN))


def _service(obj: Obj) -> Health:
    if spec_of(obj).get("type") == "LoadBalancer" and not (status_of(obj).get("loadBalancer") or {}).get("ingress"):
        return Health(PROGRESSING)
    return Health(HEALTHY)


def _ingress(obj: Obj) -> Health:
    return Health(HEALTHY if (status_of(obj).get("loadBalancer") or {}).get("ingress") else PROGRESSING)


def _autoscaler(obj: Obj) -> Health:
    for kind in ("ScalingActive", "AbleToScale"):
        condition = condition_of(obj, kind)
        if condition and condition.get("status") == "False" and condition.get("reason", "").startswith("Failed"):
            return Health(DEGRADED, condition.get("message", ""))
    able = condition_of(obj, "AbleToScale")
    if able and able.get("status") == "True":
        return Health(HEALTHY, able.get("message", ""))
    return Health(PROGRESSING, "Waiting to Autoscale")


def _api_service(obj: Obj) -> Health:
    available = condition_of(obj, "Available")
    if available is None:
        return Health(PROGRESSING, "Waiting to be processed")
    message = f"{available.get('reason', '')}: {available.get('message', '')}"
    return Health(HEALTHY if available.get("status") == "True" else PROGRESSING, message)


def _definition(obj: Obj) -> Health:
    if not status_of(obj).get("conditions"):
        return Health(PROGRESSING, "Status conditions not found")
    names, established = condition_of(obj, "NamesAccepted"), condition_of(obj, "Established")
    if names and names.get("status") == "False":
        return Health(DEGRADED, f"CRD names have not been accepted: {names.get('message', '')}")
    if not established or established.get("status") != "True":
        return Health(DEGRADED, "CRD is not established")
    schema = condition_of(obj, "NonStructuralSchema")
    if schema and schema.get("status") == "True":
        return Health(DEGRADED, f"Schema violations found: {schema.get('message', '')}")
    return Health(HEALTHY, "CRD is healthy")


def _application_set(obj: Obj) -> Health:
    for kind, bad in (("ErrorOccurred", "True"), ("ResourcesUpToDate", "False")):
        condition = condition_of(obj, kind)
        if condition and condition.get("status") == bad:
            return Health(DEGRADED, condition.get("message", ""))
    current = condition_of(obj, "ResourcesUpToDate")
    if current:
        return Health(HEALTHY, current.get("message", ""))
    return Health(PROGRESSING, "Waiting for the status to be reported")


def _disruption_budget(obj: Obj) -> Health:
    """Too few pods is no fault of the budget: one replica with a budget of one is a choice."""
    found = Health(PROGRESSING, "Waiting for status")
    for condition in status_of(obj).get("conditions") or []:
        message = f"PodDisruptionBudget has {condition['reason']}"
        if condition["status"] == "False" and condition["reason"] != "InsufficientPods":
            return Health(DEGRADED, message)
        found = Health(HEALTHY, message)
    return found


def _cron_job(obj: Obj) -> Health:
    status = status_of(obj)
    if spec_of(obj).get("suspend"):
        return Health(HEALTHY, "CronJob is Suspended")
    if not status:
        return Health(PROGRESSING, "Waiting for CronJob")
    scheduled, succeeded = status.get("lastScheduleTime"), status.get("lastSuccessfulTime")
    if not scheduled:
        return Health(HEALTHY, "CronJob has not been scheduled yet")
    if not succeeded:
        return Health(HEALTHY, "The CronJob never completed successfully. It may not be healthy")
    if status.get("active"):
        return Health(HEALTHY, "The job is running. Its last execution may not have been successful")
    if succeeded < scheduled:
        return Health(DEGRADED, "CronJob has not completed its last execution successfully")
    return Health(HEALTHY, "CronJob has completed its last execution successfully")


def _hosted_cluster(obj: Obj) -> Health:
    """Argo CD has no script for HyperShift's kinds, and would count one that never comes up as well."""
    degraded, available = condition_of(obj, "Degraded"), condition_of(obj, "Available")
    if degraded and degraded.get("status") == "True":
        return Health(DEGRADED, degraded.get("message", ""))
    if available and available.get("status") == "True":
        return Health(HEALTHY, available.get("message", ""))
    return Health(PROGRESSING, (available or {}).get("message", "") or "Waiting for the control plane")


def _node_pool(obj: Obj) -> Health:
    ready = condition_of(obj, "Ready")
    if ready and ready.get("status") == "True":
        return Health(HEALTHY, ready.get("message", ""))
    return Health(PROGRESSING, (ready or {}).get("message", "") or "Waiting for nodes")


_CHECKS: dict[tuple[str, str], Callable[[Obj], Health | None]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("policy", "PodDisruptionBudget"): _disruption_budget,
    ("", "Pod"): _pod,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Service"): _service,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("argoproj.io", "ApplicationSet"): _application_set,
    ("hypershift.openshift.io", "HostedCluster"): _hosted_cluster,
    ("hypershift.openshift.io", "HostedControlPlane"): _hosted_cluster,
    ("hypershift.openshift.io", "NodePool"): _node_pool,
}

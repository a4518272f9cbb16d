"""What a Deployment says about itself: the numbers and conditions that `kubectl rollout status` waits for."""

from __future__ import annotations

from datetime import datetime, timedelta

from regional.core.clock import rfc3339
from regional.kube.controllers import rollout
from regional.kube.objects import (
    Obj,
    condition_of,
    copied,
    generation_of,
    name_of,
    parse_time,
    set_condition,
    spec_of,
    status_of,
)


def report(
    deployment: Obj, new: Obj | None, old: list[Obj], now: datetime, *, made: bool = False
) -> tuple[Obj, float | None, bool]:
    """(the deployment with its present status, seconds until the deadline must be looked at, rollout complete).

    `made`: the new ReplicaSet was made in this very pass.
    """
    changed = copied(deployment)
    status = changed.setdefault("status", {})
    before = dict(status_of(deployment))
    everyone = [*old, new] if new is not None else old
    _count(status, deployment, new, everyone)
    _set_available(changed, deployment, now)
    complete = (
        new is not None
        and status.get("updatedReplicas", 0) == rollout.desired(deployment)
        and status.get("replicas", 0) == rollout.desired(deployment)
        and status.get("availableReplicas", 0) == rollout.desired(deployment)
    )
    again = None
    if spec_of(deployment).get("progressDeadlineSeconds") is None:
        _drop(changed, "Progressing")
    else:
        if made and new is not None:
            _stamped(
                changed, "Progressing", True, "NewReplicaSetCreated", f'Created new replica set "{name_of(new)}"', now
            )
        again = _set_progressing(changed, deployment, new, before, complete, now)
    _set_failure(changed, new, old, now)
    return changed, again, complete


def _count(status: Obj, deployment: Obj, new: Obj | None, everyone: list[Obj]) -> None:
    def sum_of(field: str) -> int:
        return sum(int(status_of(replicaset).get(field) or 0) for replicaset in everyone)

    status["observedGeneration"] = generation_of(deployment)
    numbers = {
        "replicas": sum_of("replicas"),
        "updatedReplicas": int(status_of(new).get("replicas") or 0) if new is not None else 0,
        "readyReplicas": sum_of("readyReplicas"),
        "availableReplicas": sum_of("availableReplicas"),
    }
    status["terminatingReplicas"] = sum_of("terminatingReplicas")
    numbers["unavailableReplicas"] = max(0, rollout.total(everyone) - numbers["availableReplicas"])
    for name, number in numbers.items():
        if number:
            status[name] = number
        else:
            status.pop(name, None)


def _stamped(obj: Obj, kind: str, value: bool | str, reason: str, message: str, now: datetime) -> None:
    """Deployment conditions also tell when they were last updated; the progress deadline counts from there."""
    if set_condition(obj, kind, value, reason, message, now=now):
        condition = condition_of(obj, kind)
        if condition is not None:
            condition["lastUpdateTime"] = rfc3339(now)


def _set_available(changed: Obj, deployment: Obj, now: datetime) -> None:
    least = rollout.desired(deployment) - rollout.bounds(deployment).unavailable
    if int(status_of(changed).get("availableReplicas") or 0) >= least:
        _stamped(changed, "Available", True, "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    else:
        message = "Deployment does not have minimum availability."
        _stamped(changed, "Available", False, "MinimumReplicasUnavailable", message, now)


def _set_failure(changed: Obj, new: Obj | None, old: list[Obj], now: datetime) -> None:
    failures = [condition_of(rs, "ReplicaFailure") for rs in ([new] if new is not None else []) + old]
    failure = next((condition for condition in failures if condition and condition.get("status") == "True"), None)
    if failure is not None:
        _stamped(changed, "ReplicaFailure", True, failure.get("reason", ""), failure.get("message", ""), now)
    else:
        _drop(changed, "ReplicaFailure")


def _drop(changed: Obj, kind: str) -> None:
    conditions = changed["status"].get("conditions") or []
    changed["status"]["conditions"] = [condition for condition in conditions if condition.get("type") != kind]


def _set_progressing(
    changed: Obj, deployment: Obj, new: Obj | None, before: Obj, complete: bool, now: datetime
) -> float | None:
    reason = (condition_of(changed, "Progressing") or {}).get("reason")
    if spec_of(deployment).get("paused"):
        if reason != "ProgressDeadlineExceeded":
            _stamped(changed, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now)
        return None
    if reason == "DeploymentPaused":
        _stamped(changed, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now)
    elif reason is None and new is not None:
        message = f'Found new replica set "{name_of(new)}"'
        _stamped(changed, "Progressing", True, "FoundNewReplicaSet", message, now)
    status = status_of(changed)
    if reason == "NewReplicaSetAvailable" and status.get("replicas", 0) == status.get("updatedReplicas", 0):
        # Pods that die after a finished rollout do not make it unfinished again.
        return None
    named = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    if complete:
        message = f"{named} has successfully progressed."
        _stamped(changed, "Progressing", True, "NewReplicaSetAvailable", message, now)
        return None
    if _moved(before, status):
        _stamped(changed, "Progressing", True, "ReplicaSetUpdated", f"{named} is progressing.", now)
        condition = condition_of(changed, "Progressing")
        if condition is not None:
            condition["lastUpdateTime"] = rfc3339(now)
    return _check_deadline(changed, deployment, named, now)


def _check_deadline(changed: Obj, deployment: Obj, named: str, now: datetime) -> float | None:
    condition = condition_of(changed, "Progressing")
    if condition is None or condition.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    since = parse_time(condition.get("lastUpdateTime")) or now
    left = (since + timedelta(seconds=int(spec_of(deployment)["progressDeadlineSeconds"])) - now).total_seconds()
    if left > 0:
        return left + 0.5
    message = f"{named} has timed out progressing."
    _stamped(changed, "Progressing", False, "ProgressDeadlineExceeded", message, now)
    return None


def _moved(before: Obj, after: Obj) -> bool:
    """Progress is a new pod of the new template, one more ready or available, or an old one gone."""

    def old_replicas(status: Obj) -> int:
        return int(status.get("replicas") or 0) - int(status.get("updatedReplicas") or 0)

    grown = any(
        int(after.get(name) or 0) > int(before.get(name) or 0)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return grown or old_replicas(after) < old_replicas(before)

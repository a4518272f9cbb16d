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


def report(deployment: Obj, new: Obj | None, old: list[Obj], now: datetime) -> tuple[Obj, float | None, bool]:
    """(the deployment with its present status, seconds until the deadline must be looked at, rollout complete)."""
    changed = copied(deployment)
    status = changed.setdefault("status", {})
    before = dict(status_of(deployment))
    everyone = [*old, new] if new is not None else old
    _count(status, deployment, new, everyone)
    _set_available(changed, deployment, now)
    _set_failure(changed, new, old, now)
    complete = (
        new is not None
        and status.get("updatedReplicas", 0) == rollout.desired(deployment)
        and status.get("replicas", 0) == rollout.desired(deployment)
        and status.get("availableReplicas", 0) == rollout.desired(deployment)
    )
    again = _set_progressing(changed, deployment, new, before, complete, now)
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
    wanted = max(rollout.total(everyone), rollout.desired(deployment) if new is None else 0)
    numbers["unavailableReplicas"] = max(0, wanted - numbers["availableReplicas"])
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
        _stamped(changed, "Available", True, "MinimumReplicasAvailable", "Enough replicas are available.", now)
    else:
        message = f"Fewer than {least} replicas are available."
        _stamped(changed, "Available", False, "MinimumReplicasUnavailable", message, now)


def _set_failure(changed: Obj, new: Obj | None, old: list[Obj], now: datetime) -> None:
    failures = [condition_of(rs, "ReplicaFailure") for rs in ([new] if new is not None else []) + old]
    failure = next((condition for condition in failures if condition and condition.get("status") == "True"), None)
    if failure is not None:
        _stamped(changed, "ReplicaFailure", True, failure.get("reason", ""), failure.get("message", ""), now)
    else:
        conditions = changed["status"].get("conditions") or []
        changed["status"]["conditions"] = [c for c in conditions if c.get("type") != "ReplicaFailure"]


def _set_progressing(
    changed: Obj, deployment: Obj, new: Obj | None, before: Obj, complete: bool, now: datetime
) -> float | None:
    deadline = spec_of(deployment).get("progressDeadlineSeconds")
    present = condition_of(deployment, "Progressing") or {}
    reason = present.get("reason")
    if spec_of(deployment).get("paused"):
        if reason != "NewReplicaSetAvailable" and deadline is not None:
            _stamped(changed, "Progressing", "Unknown", "DeploymentPaused", "The rollout is paused.", now)
        return None
    if reason == "DeploymentPaused":
        _stamped(changed, "Progressing", "Unknown", "DeploymentResumed", "The rollout goes on.", now)
        present = condition_of(changed, "Progressing") or {}
    named = f'ReplicaSet "{name_of(new)}"' if new is not None else f'Deployment "{name_of(deployment)}"'
    if complete:
        _stamped(changed, "Progressing", True, "NewReplicaSetAvailable", f"{named} is fully rolled out.", now)
        return None
    observed = int(before.get("observedGeneration") or 0)
    finished_before = reason == "NewReplicaSetAvailable" and observed == generation_of(deployment)
    if finished_before:
        # Pods that die after a finished rollout do not make it unfinished again.
        return None
    if not present or (reason == "NewReplicaSetAvailable"):
        _stamped(changed, "Progressing", True, "NewReplicaSetCreated", f"{named} is being rolled out.", now)
    elif _moved(before, status_of(changed)):
        _stamped(changed, "Progressing", True, "ReplicaSetUpdated", f"{named} is progressing.", now)
        condition = condition_of(changed, "Progressing")
        if condition is not None:
            condition["lastUpdateTime"] = rfc3339(now)
    if deadline is None:
        return None
    condition = condition_of(changed, "Progressing") or {}
    since = parse_time(condition.get("lastUpdateTime")) or now
    left = (since + timedelta(seconds=int(deadline)) - now).total_seconds()
    if left > 0:
        return left + 0.5
    _stamped(changed, "Progressing", False, "ProgressDeadlineExceeded", f"{named} has made no progress in time.", now)
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

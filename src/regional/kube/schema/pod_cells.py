"""What `kubectl get pods` says about a pod: the STATUS column sums up phase, conditions and container states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.durations import age, parse_time

NONE = "<none>"


def pod_cells(obj: Obj, now: datetime) -> list[Any]:
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    statuses = status.get("containerStatuses") or []
    sidecars = _sidecar_statuses(spec, status)
    ready = sum(bool(entry.get("ready")) for entry in [*statuses, *sidecars])
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    addresses = [entry.get("ip") for entry in status.get("podIPs") or ()]
    return [
        metadata.get("name"),
        f"{ready}/{total}",
        pod_status(obj),
        _restarts(status, [*statuses, *sidecars], now),
        age(metadata.get("creationTimestamp"), now),
        (addresses[0] if addresses else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def _sidecars(spec: Obj) -> set[str]:
    return {str(c.get("name")) for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}


def _sidecar_statuses(spec: Obj, status: Obj) -> list[Obj]:
    names = _sidecars(spec)
    return [entry for entry in status.get("initContainerStatuses") or () if entry.get("name") in names]


def pod_status(obj: Obj) -> str:
    """Pending, Running, Init:0/1, CrashLoopBackOff, Completed, Terminating …"""
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    text = status.get("reason") or status.get("phase") or "Pending"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    waiting = _initialising(spec, status)
    if waiting is not None:
        text = waiting
    else:
        text = _running(status, text)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(text)


def _initialising(spec: Obj, status: Obj) -> str | None:
    total = len(spec.get("initContainers") or ())
    sidecars = _sidecars(spec)
    for index, entry in enumerate(status.get("initContainerStatuses") or ()):
        state = entry.get("state") or {}
        ended, waits = state.get("terminated"), state.get("waiting")
        if ended is not None and ended.get("exitCode") == 0:
            continue
        if entry.get("name") in sidecars and entry.get("started"):
            continue
        if ended is not None:
            return f"Init:{_end(ended)}"
        if waits is not None and waits.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waits['reason']}"
        return f"Init:{index}/{total}"
    return None


def _end(ended: Obj) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode') or 0}"


def _running(status: Obj, text: str) -> str:
    alive = False
    for entry in reversed(status.get("containerStatuses") or []):
        state = entry.get("state") or {}
        waits, ended = state.get("waiting"), state.get("terminated")
        if waits is not None and waits.get("reason"):
            text = waits["reason"]
        elif ended is not None:
            text = _end(ended)
        elif entry.get("ready") and state.get("running") is not None:
            alive = True
    if text == "Completed" and alive:
        ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
        text = "Running" if ready else "NotReady"
    return text


def _restarts(status: Obj, statuses: list[Obj], now: datetime) -> str:
    count = sum(entry.get("restartCount") or 0 for entry in statuses)
    ends = [((entry.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for entry in statuses]
    moments = [moment for moment in map(parse_time, ends) if moment is not None]
    if not count or not moments:
        return str(count)
    return f"{count} ({age(max(moments).isoformat(), now)} ago)"


def _gates(spec: Obj, status: Obj) -> str:
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    if not gates:
        return NONE
    true = {entry.get("type") for entry in status.get("conditions") or () if entry.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}"

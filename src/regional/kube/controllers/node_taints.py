"""Taints: how a node's condition reaches the scheduler (NoSchedule) and the pods that are there (NoExecute).

When no node at all is well, the trouble is most likely ours, and nobody is sent away: there would be nowhere to go.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from regional.core.clock import rfc3339
from regional.kube.controllers.placement import tolerates
from regional.kube.objects import Obj, condition_of, parse_time, spec_of

PREFIX = "node.kubernetes.io/"
NOT_READY, UNREACHABLE, UNSCHEDULABLE = f"{PREFIX}not-ready", f"{PREFIX}unreachable", f"{PREFIX}unschedulable"
PRESSURES = {
    "MemoryPressure": f"{PREFIX}memory-pressure",
    "DiskPressure": f"{PREFIX}disk-pressure",
    "PIDPressure": f"{PREFIX}pid-pressure",
    "NetworkUnavailable": f"{PREFIX}network-unavailable",
}
OURS = {
    *((key, "NoSchedule") for key in (NOT_READY, UNREACHABLE, UNSCHEDULABLE, *PRESSURES.values())),
    *((key, "NoExecute") for key in (NOT_READY, UNREACHABLE)),
}


def wanted_taints(node: Obj, now: datetime, *, sends_away: bool) -> list[Obj]:
    """The node's taints as they should be: ours by its condition, everybody else's as they are."""
    present = spec_of(node).get("taints") or []
    asked = dict.fromkeys(_asked(node, sends_away=sends_away))
    kept = [taint for taint in present if _place(taint) not in OURS or _place(taint) in asked]
    known = {_place(taint) for taint in kept}
    return kept + [_taint(*place, now) for place in asked if place not in known]


def _asked(node: Obj, *, sends_away: bool) -> list[tuple[str, str]]:
    ready = (condition_of(node, "Ready") or {}).get("status", "True")
    asked: list[tuple[str, str]] = []
    if ready != "True":
        key = NOT_READY if ready == "False" else UNREACHABLE
        asked.append((key, "NoSchedule"))
        if sends_away:
            asked.append((key, "NoExecute"))
    for kind, key in PRESSURES.items():
        if (condition_of(node, kind) or {}).get("status") == "True":
            asked.append((key, "NoSchedule"))
    if spec_of(node).get("unschedulable"):
        asked.append((UNSCHEDULABLE, "NoSchedule"))
    return asked


def _place(taint: Obj) -> tuple[str, str]:
    return (taint.get("key", ""), taint.get("effect", ""))


def _taint(key: str, effect: str, now: datetime) -> Obj:
    return {"key": key, "effect": effect, "timeAdded": rfc3339(now)}


def seconds_to_stay(pod: Obj, node: Obj, now: datetime) -> float | None:
    """How long a pod may stay on a node with NoExecute taints: 0 not at all, None for ever."""
    shortest: float | None = None
    for taint in spec_of(node).get("taints") or []:
        if taint.get("effect") != "NoExecute":
            continue
        bearing = [each for each in spec_of(pod).get("tolerations") or [] if tolerates([each], taint)]
        if not bearing:
            return 0.0
        limits = [float(each["tolerationSeconds"]) for each in bearing if each.get("tolerationSeconds") is not None]
        if not limits:
            continue
        since = parse_time(taint.get("timeAdded")) or now
        left = (since + timedelta(seconds=max(0.0, min(limits))) - now).total_seconds()
        shortest = left if shortest is None else min(shortest, left)
    return None if shortest is None else max(0.0, shortest)

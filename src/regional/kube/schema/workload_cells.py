"""The cells of the kinds that make pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.cell_parts import NONE, UNSET, age_of, joined, name_of, selector_text, spec_of, status_of
from regional.kube.schema.durations import age, between


def _containers(template: Obj) -> list[str]:
    containers = (template.get("spec") or {}).get("containers") or []
    names = (str(container.get("name")) for container in containers)
    images = (str(container.get("image")) for container in containers)
    return [",".join(names), ",".join(images)]


def _workload(spec: Obj) -> list[str]:
    return [*_containers(spec.get("template") or {}), selector_text(spec.get("selector"))]


def deployment_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    counts = [status.get("updatedReplicas") or 0, status.get("availableReplicas") or 0]
    return [name_of(obj), ready, *counts, age_of(obj, now), *_workload(spec)]


def stateful_set_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [name_of(obj), ready, age_of(obj, now), *_containers(spec.get("template") or {})]


def replica_set_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    counts = [spec.get("replicas") or 0, status.get("replicas") or 0, status.get("readyReplicas") or 0]
    return [name_of(obj), *counts, age_of(obj, now), *_workload(spec)]


def daemon_set_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    fields = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    counts = [status.get(field) or 0 for field in (*fields, "numberAvailable")]
    pod = (spec.get("template") or {}).get("spec") or {}
    return [name_of(obj), *counts, selector_text(pod.get("nodeSelector")), age_of(obj, now), *_workload(spec)]


def revision_cells(obj: Obj, now: datetime) -> list[Any]:
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((entry for entry in owners if entry.get("controller")), None)
    controller = f"{str(owner.get('kind')).lower()}.apps/{owner.get('name')}" if owner else NONE
    return [name_of(obj), controller, obj.get("revision") or 0, age_of(obj, now)]


def job_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    done = status.get("succeeded") or 0
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    start, end = status.get("startTime"), status.get("completionTime")
    duration = "" if not start else (between(start, end) if end else age(start, now))
    return [name_of(obj), _job_state(obj), completions, duration or "", age_of(obj, now), *_workload(spec)]


def _job_state(obj: Obj) -> str:
    true = [entry.get("type") for entry in status_of(obj).get("conditions") or () if entry.get("status") == "True"]
    for state, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if state in true:
            return text
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if state in true:
            return state
    return "Running"


def cron_job_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    last = status.get("lastScheduleTime")
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        name_of(obj),
        spec.get("schedule"),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(obj, now),
        *_workload(template),
    ]


def disruption_budget_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = spec_of(obj)
    bounds = ["N/A" if spec.get(name) is None else str(spec[name]) for name in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *bounds, status_of(obj).get("disruptionsAllowed") or 0, age_of(obj, now)]


def autoscaler_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = spec_of(obj), status_of(obj)
    target = spec.get("scaleTargetRef") or {}
    least = str(spec["minReplicas"]) if spec.get("minReplicas") is not None else UNSET
    wanted = joined((_metric_target(metric) for metric in spec.get("metrics") or ()), NONE)
    counts = [spec.get("maxReplicas") or 0, status.get("currentReplicas") or 0]
    return [name_of(obj), f"{target.get('kind')}/{target.get('name')}", wanted, least, *counts, age_of(obj, now)]


def _metric_target(metric: Obj) -> str:
    resource = metric.get("resource") or {}
    goal = (resource.get("target") or {}).get("averageUtilization")
    return f"{resource.get('name')}: <unknown>/{goal}%" if goal is not None else "<unknown>"

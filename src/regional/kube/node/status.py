"""A pod's status out of what its containers are doing: pure functions, no clock of their own, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from regional.kube.node.containers import Container, Waiting
from regional.kube.node.layout import Termination
from regional.kube.objects import Obj, copied, generation_of, set_condition, spec_of, status_of

_OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class Verdict(msgspec.Struct, frozen=True):
    """A phase that does not follow from the containers: a deadline has passed, somebody has evicted the pod."""

    phase: str
    reason: str = ""
    message: str = ""


def restarts(policy: str, container: Container) -> bool:
    """Whether this container, having ended, is to be started again."""
    ended = container.ended
    if ended is None:
        return False
    if container.sidecar:
        return True
    if container.init:
        return ended.code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and ended.code != 0)


def initialized(init: Sequence[Container]) -> bool:
    return all(c.started and c.running if c.sidecar else _succeeded(c) for c in init)


def _succeeded(container: Container) -> bool:
    return container.ended is not None and container.ended.code == 0


def phase_of(pod: Obj, init: Sequence[Container], main: Sequence[Container], *, stopping: bool = False) -> str:
    policy = spec_of(pod).get("restartPolicy") or "Always"
    once = [c for c in init if not c.sidecar]
    if any(c.ended and c.ended.code and policy == "Never" for c in once):
        return "Failed"
    if any(c.record is None for c in main):
        return "Pending"
    if any(c.running for c in main):
        return "Running"
    if not stopping and any(restarts(policy, c) for c in main):
        return "Running"
    if any(c.ended is None for c in main):
        return "Pending" if all(c.attempts == 0 for c in main) else "Running"
    return "Succeeded" if all(_succeeded(c) for c in main) else "Failed"


def build_status(
    pod: Obj,
    init: Sequence[Container],
    main: Sequence[Container],
    *,
    pod_address: str,
    host_address: str,
    now: datetime,
    started_at: str,
    problem: Waiting | None = None,
    stopping: bool = False,
    verdict: Verdict | None = None,
) -> Obj:
    """`problem` is why no container could be started at all (a volume, an address)."""
    phase = verdict.phase if verdict else phase_of(pod, init, main, stopping=stopping)
    over = phase in ("Succeeded", "Failed")
    ready = phase == "Running" and not stopping and all(c.ready for c in (*main, *(c for c in init if c.sidecar)))
    done_init = initialized(init) or any(c.record is not None for c in main)
    built: Obj = {
        "metadata": {},
        "status": {"conditions": [copied(c) for c in status_of(pod).get("conditions") or []]},
    }
    generation = generation_of(pod) or None
    unready = _unready_message(init, main) if not over else ""

    def condition(kind: str, value: bool, reason: str = "", message: str = "") -> None:
        set_condition(built, kind, value, reason, "" if value else message, now=now, generation=generation)

    begun = any(c.record is not None for c in (*init, *main))  # what runs goes on, whatever a refresh of files says
    condition("PodReadyToStartContainers", bool(pod_address) and (begun or not problem) and not (over or stopping))
    if phase == "Succeeded":
        condition("Initialized", True, "PodCompleted")
    elif done_init:
        condition("Initialized", True)
    else:
        condition("Initialized", False, "ContainersNotInitialized", _incomplete_message(init))
    why_not = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    shut = _shut_gates(pod, built) if ready else ""
    if shut:
        condition("Ready", False, "ReadinessGatesNotReady", shut)
    else:
        condition("Ready", ready, "" if ready else why_not, unready)
    condition("ContainersReady", ready, "" if ready else why_not, unready)
    condition("PodScheduled", True)
    for entry in built["status"]["conditions"]:
        # Kubernetes leaves these two out when they say nothing.
        for field in ("reason", "message"):
            if entry.get("type") in _OURS and not entry.get(field):
                entry.pop(field, None)
    first = "PodInitializing" if init else "ContainerCreating"
    status: Obj = {
        "phase": phase,
        "conditions": built["status"]["conditions"],
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": started_at,
        "qosClass": status_of(pod).get("qosClass") or "BestEffort",
        "containerStatuses": [container_status(c, problem, stopping, first) for c in main],
    }
    if verdict is not None:
        said = {"reason": verdict.reason, "message": verdict.message}
        status |= {key: text for key, text in said.items() if text}
    if init:
        status["initContainerStatuses"] = [container_status(c, problem, stopping, "PodInitializing") for c in init]
    if pod_address:
        status |= {"podIP": pod_address, "podIPs": [{"ip": pod_address}]}
    if generation:
        status["observedGeneration"] = generation
    return status


def status_patch(wanted: Obj, current: Obj) -> Obj:
    """A strategic merge patch: conditions that others keep (readiness gates) are left alone, whoever writes first."""
    changed = {key: value for key, value in wanted.items() if current.get(key) != value}
    if "conditions" in changed:
        known = current.get("conditions") or []
        ours = [c for c in wanted["conditions"] if c["type"] in _OURS and c not in known]
        # Merged field by field: what a condition no longer says must be taken away by name.
        changed["conditions"] = [{"reason": None, "message": None} | c for c in ours]
        if not ours:
            del changed["conditions"]
    return changed


def container_status(container: Container, problem: Waiting | None, stopping: bool, first: str) -> Obj:
    """`first` is what a container waits for that nobody has tried to start yet."""
    record = container.record
    state: Obj
    last: Termination | None = record.last if record else None
    if container.running and record is not None:
        state = {"running": {"startedAt": record.asked}}
    elif container.waiting is not None and not stopping:
        state = {"waiting": _waiting(container.waiting)}
        last = container.ended or last
    elif container.ended is not None:
        state = {"terminated": _terminated(container.ended)}
    else:
        state = {"waiting": _waiting(Waiting(first, problem.message if problem else ""))}
    done = container.init and not container.sidecar and _succeeded(container)
    status: Obj = {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "ready": done or (container.running and container.ready and not stopping),
        "restartCount": container.attempts,
        "started": container.running and container.started,
        "state": state,
        "lastState": {"terminated": _terminated(last)} if last else {},
    }
    identity = container.identity or (container.ended.process if container.ended else "")
    return status | ({"containerID": identity} if identity else {})


def _waiting(waiting: Waiting) -> Obj:
    return {"reason": waiting.reason} | ({"message": waiting.message} if waiting.message else {})


def _terminated(ended: Termination) -> Obj:
    told: Obj = {
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": ended.started,
        "finishedAt": ended.finished,
        "containerID": ended.process,
        "signal": ended.signal,
        "message": ended.message,
    }
    return {key: value for key, value in told.items() if value or key == "exitCode"}


def _shut_gates(pod: Obj, built: Obj) -> str:
    """What the pod's readiness gates wait for, in kubelet's words."""
    said = {c["type"]: c["status"] for c in built["status"]["conditions"]}
    texts = []
    for gate in spec_of(pod).get("readinessGates") or []:
        kind = gate["conditionType"]
        if kind not in said:
            texts.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif said[kind] != "True":
            texts.append(f'the status of pod readiness gate "{kind}" is not "True", but {said[kind]}')
    return ", ".join(texts)


def _unready_message(init: Sequence[Container], main: Sequence[Container]) -> str:
    names = [c.name for c in (*(c for c in init if c.sidecar), *main) if not c.ready]
    return f"containers with unready status: [{' '.join(names)}]" if names else ""


def _incomplete_message(init: Sequence[Container]) -> str:
    names = [c.name for c in init if not (c.started if c.sidecar else _succeeded(c))]
    return f"containers with incomplete status: [{' '.join(names)}]" if names else ""

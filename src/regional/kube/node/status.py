"""A pod's status out of what its containers are doing: pure functions, no clock of their own, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from regional.kube.node.containers import Container, Waiting
from regional.kube.node.layout import Termination
from regional.kube.objects import Obj, copied, generation_of, set_condition, spec_of, status_of

_OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


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
) -> Obj:
    """`problem` is why no container could be started at all (a volume, an address)."""
    phase = phase_of(pod, init, main, stopping=stopping)
    over = phase in ("Succeeded", "Failed")
    ready = phase == "Running" and not stopping and all(c.ready for c in (*main, *(c for c in init if c.sidecar)))
    done_init = initialized(init) or any(c.record is not None for c in main)
    built: Obj = {
        "metadata": {},
        "status": {"conditions": [copied(c) for c in status_of(pod).get("conditions") or []]},
    }
    generation = generation_of(pod) or None
    unready = _unready_message(main) if not over else ""

    def condition(kind: str, value: bool, reason: str = "", message: str = "") -> None:
        set_condition(
            built, kind, value, "" if value else reason, "" if value else message, now=now, generation=generation
        )

    condition("PodScheduled", True)
    condition("Initialized", done_init or phase == "Succeeded", "ContainersNotInitialized", _incomplete_message(init))
    why_not = "PodCompleted" if over else "ContainersNotReady"
    condition("ContainersReady", ready, why_not, unready)
    gates = [gate["conditionType"] for gate in spec_of(pod).get("readinessGates") or []]
    open_gates = [
        g for g in gates if not any(c["type"] == g and c["status"] == "True" for c in built["status"]["conditions"])
    ]
    if ready and open_gates:
        condition("Ready", False, "ReadinessGatesNotReady", f"waiting for {', '.join(open_gates)}")
    else:
        condition("Ready", ready, why_not, unready)
    for entry in built["status"]["conditions"]:
        # Kubernetes leaves these two out when they say nothing.
        for field in ("reason", "message"):
            if entry.get("type") in _OURS and not entry.get(field):
                entry.pop(field, None)
    status: Obj = {
        "phase": phase,
        "conditions": built["status"]["conditions"],
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": started_at,
        "qosClass": status_of(pod).get("qosClass") or "BestEffort",
        "containerStatuses": [container_status(c, problem, stopping) for c in main],
    }
    if init:
        status["initContainerStatuses"] = [container_status(c, problem, stopping) for c in init]
    if pod_address:
        status |= {"podIP": pod_address, "podIPs": [{"ip": pod_address}]}
    if generation:
        status["observedGeneration"] = generation
    return status


def container_status(container: Container, problem: Waiting | None, stopping: bool) -> Obj:
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
        state = {
            "waiting": _waiting(problem or Waiting("PodInitializing" if not container.init else "ContainerCreating"))
        }
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


def _unready_message(main: Sequence[Container]) -> str:
    names = [c.name for c in main if not c.ready]
    return f"containers with unready status: [{' '.join(names)}]" if names else ""


def _incomplete_message(init: Sequence[Container]) -> str:
    names = [c.name for c in init if not (c.started if c.sidecar else _succeeded(c))]
    return f"containers with incomplete status: [{' '.join(names)}]" if names else ""

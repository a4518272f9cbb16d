"""The arithmetic of a Job, apart from everything that talks to an API: indexes, retries, verdicts on failed pods."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from regional.kube.controllers.pods import is_finished, phase_of, restarts_of
from regional.kube.objects import (
    Obj,
    annotations_of,
    condition_of,
    is_deleting,
    name_of,
    namespace_of,
    parse_time,
    spec_of,
    status_of,
)

INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0
DEFAULT_RETRIES = 6


class Verdict(NamedTuple):
    """How a job ends, and the words for it."""

    condition: str
    reason: str
    message: str


def is_indexed(job: Obj) -> bool:
    return spec_of(job).get("completionMode") == "Indexed"


def index_of(pod: Obj) -> int | None:
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdigit() else None


def parse_indexes(text: str | None, completions: int) -> set[int]:
    """`0-2,5`; what lies beyond the completions that are asked for now does not count."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first), completions - 1) + 1))
    return {index for index in found if index < completions}


def written_indexes(indexes: Iterable[int]) -> str:
    """Runs of three or more are written first-last, as every reader of `completedIndexes` expects."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = []
    for run in runs:
        parts += [str(index) for index in run] if len(run) == 1 else [_span(run)]
    return ",".join(parts)


def _span(run: list[int]) -> str:
    return f"{run[0]},{run[1]}" if len(run) == 2 else f"{run[0]}-{run[-1]}"


def replaces_only_ended(job: Obj) -> bool:
    """Whether a pod that is on its way out still holds its place (`podReplacementPolicy: Failed`)."""
    return spec_of(job).get("podReplacementPolicy") == "Failed"


def has_failed(job: Obj, pod: Obj) -> bool:
    if phase_of(pod) == "Failed":
        return True
    return is_deleting(pod) and not is_finished(pod) and not replaces_only_ended(job)


def too_many_restarts(job: Obj, pods: Iterable[Obj]) -> bool:
    """With `restartPolicy: OnFailure` it is the node that tries again, and its tries count."""
    if (spec_of(job).get("template") or {}).get("spec", {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(restarts_of(pod) for pod in pods if not is_finished(pod))
    return restarts > 0 and restarts >= retries(job)


def retries(job: Obj) -> int:
    limit = spec_of(job).get("backoffLimit")
    return DEFAULT_RETRIES if limit is None else int(limit)


def time_left(job: Obj, now: datetime) -> float | None:
    deadline = spec_of(job).get("activeDeadlineSeconds")
    if deadline is None:
        return None
    started = parse_time(status_of(job).get("startTime"))
    return ((started or now) + timedelta(seconds=int(deadline)) - now).total_seconds()


def pause_after_failures(pods: list[Obj], now: datetime) -> float:
    """Each failure since the last success doubles the wait for the next try, counted from the last failed pod's end."""
    ends = [end for pod in pods if phase_of(pod) == "Failed" and (end := ended_at(pod)) is not None]
    good = [end for pod in pods if phase_of(pod) == "Succeeded" and (end := ended_at(pod)) is not None]
    since = [end for end in ends if not good or end > max(good)]
    if not since:
        return 0.0
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(len(since), 16) - 1))
    return max(0.0, (max(since) + timedelta(seconds=pause) - now).total_seconds())


def ended_at(pod: Obj) -> datetime | None:
    moments = []
    for container in status_of(pod).get("containerStatuses") or []:
        terminated = (container.get("state") or {}).get("terminated") or {}
        if moment := parse_time(terminated.get("finishedAt")):
            moments.append(moment)
    if moments:
        return max(moments)
    return parse_time((condition_of(pod, "Ready") or {}).get("lastTransitionTime"))


# -- podFailurePolicy ----------------------------------------------------------------------------------------------


def judged(job: Obj, pod: Obj) -> tuple[str, str]:
    """(action, message) of the first rule that a failed pod meets; ("Count", "") when none does."""
    for position, rule in enumerate((spec_of(job).get("podFailurePolicy") or {}).get("rules") or []):
        action = str(rule.get("action") or "Count")
        if rule.get("onExitCodes"):
            met = _met_exit_code(pod, rule["onExitCodes"])
            if met is not None:
                container, code = met
                where = f"pod {namespace_of(pod)}/{name_of(pod)}"
                words = f"Container {container} for {where} failed with exit code {code}"
                return action, f"{words} matching {action} rule at index {position}"
        elif met_type := _met_condition(pod, rule.get("onPodConditions") or []):
            words = f"Pod {namespace_of(pod)}/{name_of(pod)} has condition {met_type}"
            return action, f"{words} matching {action} rule at index {position}"
    return "Count", ""


def _met_exit_code(pod: Obj, requirement: Obj) -> tuple[str, int] | None:
    status = status_of(pod)
    values = requirement.get("values") or []
    for container in (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or []):
        if requirement.get("containerName") not in (None, "", container.get("name")):
            continue
        terminated = (container.get("state") or {}).get("terminated") or {}
        code = int(terminated.get("exitCode") or 0)
        if code and (code in values) == (requirement.get("operator") == "In"):
            return str(container.get("name")), code
    return None


def _met_condition(pod: Obj, patterns: list[Obj]) -> str:
    for pattern in patterns:
        condition = condition_of(pod, str(pattern.get("type")))
        if condition is not None and condition.get("status") == (pattern.get("status") or "True"):
            return str(pattern["type"])
    return ""

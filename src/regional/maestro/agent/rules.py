"""Condition rules: what a bundle calls a condition of one of its objects, by CEL or by names that kinds are known for.

A rule that cannot be evaluated makes its condition false and says why; it never keeps a manifest from being applied.
Engine and functions are those of CRD rules, with the object as `object` and, in messages, the outcome as `result`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from cel_expr_python import cel

from regional.kube.objects import Obj
from regional.kube.schema.cel_functions import environment_with
from regional.maestro.protocol.bundles import SAID_BY_AGENTS, ConditionRule

COMPLETE = "Complete"
EVALUATED = "ConditionRuleEvaluated"
INVALID = "ConditionRuleInvalid"
EXPRESSION_ERROR = "ConditionRuleExpressionError"
PREFIX = "ConditionRule"
LONGEST_MESSAGE = 1024
LONGEST_AGGREGATE = 256
MOST_RULES = 20

Verdict = tuple[str, str, str]
"""(status, reason, message)"""


class _Failed(Exception):
    pass


@functools.cache
def _environment() -> Any:
    return environment_with({"object": cel.Type.DYN, "result": cel.Type.BOOL})


@functools.lru_cache(maxsize=512)
def _program(expression: str) -> Any:
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        raise _Failed(_plain(str(error))) from None


def _plain(text: str) -> str:
    """Without the engine's own words and the picture of the expression."""
    return re.sub(r"^[A-Z_]+: ", "", text).removesuffix(" [INVALID_ARGUMENT]").split("\n |")[0].strip()


def conditions_of(live: Obj, rules: Sequence[ConditionRule], generation: int) -> list[Obj]:
    """One condition for each rule that has something to say about this kind of object; times are set by the caller."""
    found: dict[str, Obj] = {}
    for rule in rules[:MOST_RULES]:
        verdict = _verdict(live, rule) if rule.condition not in SAID_BY_AGENTS else None
        if verdict is None:
            continue
        status, reason, message = verdict
        found[rule.condition] = {
            "type": rule.condition,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": "",
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
        }
    return list(found.values())


def _verdict(live: Obj, rule: ConditionRule) -> Verdict | None:
    match rule.type:
        case "CEL":
            return _by_expressions(live, rule)
        case "WellKnownConditions":
            known = _WELL_KNOWN.get((live.get("apiVersion", ""), live.get("kind", ""), rule.condition))
            if known is None:
                return None
            holds, said = known(live)
            return _told(live, rule, holds, said)
    return "Unknown", INVALID, f"unrecognized condition rule type {rule.type[:80]}"


def _by_expressions(live: Obj, rule: ConditionRule) -> Verdict:
    try:
        holds = all(_holds(expression, live) for expression in rule.cel_expressions)
    except _Failed as error:
        return "False", EXPRESSION_ERROR, str(error)
    said = f"Manifest is {rule.condition}" if holds else f"Manifest is not {rule.condition}"
    return _told(live, rule, holds, said)


def _holds(expression: str, live: Obj) -> bool:
    value = _value(expression, {"object": live})
    if not isinstance(value, bool):
        raise _Failed(f"expected bool result, got {type(value).__name__}")
    return value


def _value(expression: str, data: dict[str, Any]) -> Any:
    try:
        outcome = _program(expression).eval(data=data)
    except (RuntimeError, ValueError) as error:  # the latter of the engine's functions, at the end of their means
        raise _Failed(_plain(str(error))) from None
    if outcome.type() == cel.Type.ERROR:
        raise _Failed(_plain(str(outcome.value())))
    return outcome.value()


def _told(live: Obj, rule: ConditionRule, holds: bool, said: str) -> Verdict:
    status = "True" if holds else "False"
    if rule.message_expression:
        try:
            message = _value(rule.message_expression, {"object": live, "result": holds})
        except _Failed as error:
            return status, EVALUATED, str(error)
        if isinstance(message, str) and message:
            return status, EVALUATED, message
        if not isinstance(message, str):
            wrong = f"expected message expression to have a string result, got {type(message).__name__}"
            return status, EVALUATED, wrong
    return status, EVALUATED, rule.message or said


def _job_is_over(job: Obj) -> tuple[bool, str]:
    conditions = (job.get("status") or {}).get("conditions") or []
    over = any(found.get("type") in ("Complete", "Failed") and found.get("status") == "True" for found in conditions)
    return over, "Job is finished" if over else "Job is not finished"


def _pod_is_over(pod: Obj) -> tuple[bool, str]:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    return phase in ("Succeeded", "Failed"), f"Pod is in phase {phase}"


_WELL_KNOWN: dict[tuple[str, str, str], Callable[[Obj], tuple[bool, str]]] = {
    ("batch/v1", "Job", COMPLETE): _job_is_over,
    ("v1", "Pod", COMPLETE): _pod_is_over,
}


def aggregated(resources: Sequence[Obj], generation: int) -> list[Obj]:
    """The work's own conditions from those of its manifests: false wins, then unknown; for Progressing, true wins."""
    by_type: dict[str, list[Obj]] = {}
    for resource in resources:
        for found in resource["conditions"]:
            if str(found["reason"]).startswith(PREFIX):
                by_type.setdefault(found["type"], []).append(found)
    return [_aggregate(kind, by_type[kind], generation) for kind in sorted(by_type)[:MOST_RULES]]


def _aggregate(kind: str, found: list[Obj], generation: int) -> Obj:
    states = {one["status"] for one in found}
    order = ("True", "Unknown", "False") if kind == "Progressing" else ("False", "Unknown", "True")
    message = found[0]["message"][:LONGEST_AGGREGATE] if len(found) == 1 else ""
    return {
        "type": kind,
        "status": next(status for status in order if status in states),
        "observedGeneration": generation,
        "lastTransitionTime": "",
        "reason": "ConditionRulesAggregated",
        "message": message or f"Aggregated from {len(found)} manifest conditions",
    }

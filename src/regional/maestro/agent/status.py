"""A work's status as the server gets it: conditions by the contract's reasons and texts, and feedback. Pure.

Conditions keep their transition times as long as their status stays, so that an unchanged status hashes to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from regional.kube.objects import Obj
from regional.maestro.agent import rules
from regional.maestro.agent.feedback import FeedbackFailed, values_of
from regional.maestro.agent.options import Option
from regional.maestro.agent.works import Outcome, Ref, Result

LONGEST_FAULT = 1024
CONDITIONS_ROOM = 14 * 1024
"""For the work's own conditions: four, the longest of them bounded like a fault, and those of its rules."""

Look = Callable[[Ref], tuple[bool, Obj | None]]
"""(whether anything is known about the object, the object)"""


def condition(kind: str, status: str, reason: str, message: str, generation: int | None = None) -> Obj:
    """Fields in the order of Kubernetes' own type; the transition time is set by `kept`."""
    found: Obj = {"type": kind, "status": status}
    if generation is not None:
        found["observedGeneration"] = generation
    return found | {"lastTransitionTime": "", "reason": reason, "message": message}


def kept(former: Sequence[Obj], wanted: Obj, now: str, *, restamp: bool = False) -> Obj:
    before = next((found for found in former if found["type"] == wanted["type"]), None)
    unmoved = before is not None and before["status"] == wanted["status"] and not restamp
    return wanted | {"lastTransitionTime": before["lastTransitionTime"] if before and unmoved else now}


def manifest_status(
    ordinal: int,
    result: Result,
    option: Option,
    generation: int,
    former: Obj | None,
    look: Look,
    now: str,
    largest: int,
) -> Obj:
    ref = result.ref
    before = (former or {}).get("conditions") or []
    values: list[dict[str, Any]] = []
    # What the bundle's executor may not read is not told either.
    known, live = (False, None) if result.denied else look(ref)
    if live is not None and option.feedback:
        try:
            values = values_of(live, option.feedback, largest)
            feedback = condition("StatusFeedbackSynced", "True", "StatusFeedbackSynced", "")
        except FeedbackFailed as error:
            values = error.values
            said = f"Sync status feedback failed with error {error}"
            feedback = condition("StatusFeedbackSynced", "False", "StatusFeedbackSyncFailed", said)
    else:
        feedback = condition("StatusFeedbackSynced", "True", "NoStatusFeedbackSynced", "")
    ruled = rules.conditions_of(live, option.condition_rules, generation) if live is not None else []
    earlier = ((former or {}).get("statusFeedback") or {}).get("values") or []
    return {
        "resourceMeta": _meta(ordinal, ref),
        "statusFeedback": {"values": values} if values else {},
        "conditions": [
            kept(before, _applied(result, generation), now),
            kept(before, _available(ref, known, live), now),
            kept(before, feedback, now, restamp=values != earlier),
            *(kept(before, found, now) for found in ruled or _said_before(before, live, option)),
        ],
    }


def _said_before(before: Sequence[Obj], live: Obj | None, option: Option) -> list[Obj]:
    """An object that is gone keeps what its rules said last: a Job that cleans itself up stays complete."""
    names = {rule.condition for rule in option.condition_rules}
    return [found for found in before if live is None and found["type"] in names and _is_ruled(found)]


def _is_ruled(found: Obj) -> bool:
    return str(found["reason"]).startswith(rules.PREFIX)


def _meta(ordinal: int, ref: Ref) -> Obj:
    return {
        "ordinal": ordinal,
        "group": ref.group,
        "version": ref.version,
        "kind": ref.kind,
        "resource": ref.resource,
        "name": ref.name,
        "namespace": ref.namespace,
    }


def _applied(result: Result, generation: int) -> Obj:
    if result.fault:
        said = f"Failed to apply manifest: {result.fault}"[:LONGEST_FAULT]
        return condition("Applied", "False", "AppliedManifestFailed", said, generation)
    return condition("Applied", "True", "AppliedManifestComplete", "Apply manifest complete", generation)


def _available(ref: Ref, known: bool, live: Obj | None) -> Obj:
    if not ref.resource:
        return condition("Available", "Unknown", "IncompleteResourceMeta", "Resource meta is incomplete")
    if not known:
        return condition("Available", "Unknown", "FetchingResourceFailed", "Resource is not fetched yet")
    if live is None:
        return condition("Available", "False", "ResourceNotAvailable", "Resource is not available")
    return condition("Available", "True", "ResourceAvailable", "Resource is available")


def work_conditions(outcome: Outcome, resources: Sequence[Obj], former: Sequence[Obj], now: str) -> list[Obj]:
    generation = outcome.generation
    if outcome.complete:
        said = "Apply manifest work complete"
        applied = condition("Applied", "True", "AppliedManifestWorkComplete", said, generation)
    else:
        faults = [f"{result.ref}: {result.fault}" for result in outcome.results if result.fault]
        said = f"Failed to apply manifest work: {'; '.join(faults)}"[:LONGEST_FAULT]
        applied = condition("Applied", "False", "AppliedManifestWorkFailed", said, generation)
    states = [_state(found, "Available") for found in resources]
    total = len(states)
    if unknown := states.count("Unknown"):
        said = f"{unknown} of {total} resources have unknown status"
        available = condition("Available", "Unknown", "ResourcesStatusUnknown", said, generation)
    elif missing := states.count("False"):
        said = f"{missing} of {total} resources are not available"
        available = condition("Available", "False", "ResourcesNotAvailable", said, generation)
    else:
        available = condition("Available", "True", "ResourcesAvailable", "All resources are available", generation)
    ruled = rules.aggregated(resources, generation)
    return [kept(former, found, now) for found in (applied, available, *ruled)]


def _state(found: Obj, kind: str) -> str:
    return next((str(c["status"]) for c in found["conditions"] if c["type"] == kind), "Unknown")


def deleting(former: Sequence[Obj], now: str) -> list[Obj]:
    wanted = condition("Deleting", "True", "WorkDeleting", "ManifestWork is being deleted")
    return [*(c for c in former if c["type"] != "Deleting"), kept(former, wanted, now)]


def deleted(former: Sequence[Obj], consumer: str, now: str) -> list[Obj]:
    said = f"The manifests are deleted from the cluster {consumer}"
    wanted = condition("Deleted", "True", "ManifestsDeleted", said)
    return [*(c for c in former if c["type"] != "Deleted"), kept(former, wanted, now)]


def fitting(resources: Sequence[Obj], former: Sequence[Obj], largest: int, now: str) -> list[Obj]:
    """As much as one message carries: first the values go, then those manifests that have nothing to complain about.

    The work's own conditions speak of all manifests in any case.
    """
    room = largest - CONDITIONS_ROOM
    if _size(resources) <= room:
        return list(resources)
    lean = without_feedback(resources, former, largest, now)
    if _size(lean) <= room:
        return lean
    chosen: list[Obj] = []
    for found in sorted(lean, key=lambda r: all(c["status"] == "True" for c in r["conditions"])):
        room -= _size(found) + 1
        if room < 0:
            break
        chosen.append(found)
    return sorted(chosen, key=lambda r: int(r["resourceMeta"]["ordinal"]))


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def without_feedback(resources: Sequence[Obj], former: Sequence[Obj], limit: int, now: str) -> list[Obj]:
    """A status that no message can carry goes without its values, and says so."""
    said = f"Sync status feedback failed with error the status is larger than the {limit} bytes that a message carries"
    failed = condition("StatusFeedbackSynced", "False", "StatusFeedbackSyncFailed", said)
    before = {found["resourceMeta"]["ordinal"]: found["conditions"] for found in former}
    return [
        found | {"statusFeedback": {}, "conditions": _replaced(found, before, failed, now)}
        if found["statusFeedback"]
        else found
        for found in resources
    ]


def _replaced(found: Obj, before: dict[int, list[Obj]], failed: Obj, now: str) -> list[Obj]:
    former = before.get(found["resourceMeta"]["ordinal"], [])
    return [kept(former, failed, now) if c["type"] == failed["type"] else c for c in found["conditions"]]

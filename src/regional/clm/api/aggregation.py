"""From what adapters reported to the conditions of a resource. Pure: no clock, no database.

The reference time is the resource's `updated_time`, so that the same reports always give the same conditions.
`Reconciled` speaks of the current generation; `LastKnownReconciled` sticks to the generation that last worked, so that
an update in progress does not look like an outage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

RECONCILED = "Reconciled"
LAST_KNOWN = "LastKnownReconciled"
MANDATORY = ("Available", "Applied", "Health")


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition of a resource."""

    type: str
    status: Literal["True", "False"]
    observed_generation: int
    created_time: datetime
    last_updated_time: datetime
    last_transition_time: datetime
    reason: str | None = None
    message: str | None = None


class Observation(msgspec.Struct, frozen=True):
    """What one adapter last said, as far as aggregation needs it."""

    adapter: str
    generation: int
    time: datetime
    available: str  # True, False or Unknown
    finalized: bool = False
    reason: str | None = None
    message: str | None = None


class Subject(msgspec.Struct, frozen=True):
    """The resource that the observations are about."""

    generation: int
    updated_time: datetime
    deleting: bool
    has_children: bool
    required: tuple[str, ...]


def aggregate(
    subject: Subject, observations: Iterable[Observation], previous: Sequence[Condition] = ()
) -> list[Condition]:
    """`Reconciled`, `LastKnownReconciled`, then one condition for each required adapter that has reported."""
    before = {condition.type: condition for condition in previous}
    usable = {
        seen.adapter: seen
        for seen in observations
        if seen.adapter in subject.required
        and seen.generation <= subject.generation
        and seen.available in ("True", "False")
    }
    return [
        _reconciled(subject, usable, before.get(RECONCILED)),
        _last_known(subject, usable, before.get(LAST_KNOWN)),
        *(
            _successful(subject, usable[adapter], before.get(successful_type(adapter)))
            for adapter in subject.required
            if adapter in usable
        ),
    ]


def all_finalized(subject: Subject, observations: Iterable[Observation]) -> bool:
    """Whether nothing of the resource is left anywhere; a report of an earlier generation does not count."""
    finalized = {seen.adapter for seen in observations if seen.finalized and seen.generation == subject.generation}
    return finalized.issuperset(subject.required)


def successful_type(adapter: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9]+", adapter) if word]
    return "".join(word[0].upper() + word[1:] for word in words) + "Successful"


def _reconciled(subject: Subject, usable: dict[str, Observation], before: Condition | None) -> Condition:
    wanted = "Finalized" if subject.deleting else "Available"
    missing = [
        adapter
        for adapter in subject.required
        if adapter not in usable
        or usable[adapter].generation != subject.generation
        or not (usable[adapter].finalized if subject.deleting else usable[adapter].available == "True")
    ]
    met = bool(subject.required) and not missing
    if met and subject.deleting and subject.has_children:
        reason = "ReconciledWaitingForChildren"
        message = "Deletion in progress. All required adapters reported Finalized=True but child resources still exist"
    elif met:
        reason = "ReconciledAll"
        message = "All required adapters reported Available=True or Finalized=True at the current generation"
    else:
        reason = "ReconciledMissingAdapters"
        message = (
            f"Required adapters not reporting {wanted}=True: [{', '.join(sorted(missing))}]."
            f" Currently reporting: [{', '.join(sorted(usable))}]"
        )
    status: Literal["True", "False"] = "True" if reason == "ReconciledAll" else "False"
    current = [seen.time for seen in usable.values() if seen.generation == subject.generation]
    updated = min(current, default=subject.updated_time)
    if before is None:
        transition = updated
    elif before.status == status:
        transition = before.last_transition_time
    elif before.status == "True" and subject.generation > before.observed_generation:
        transition = subject.updated_time
    else:
        transition = updated
    return Condition(
        RECONCILED, status, subject.generation, _created(subject, before), updated, transition, reason, message
    )


def _last_known(subject: Subject, usable: dict[str, Observation], before: Condition | None) -> Condition:
    reported = [usable[adapter] for adapter in subject.required if adapter in usable]
    complete = len(reported) == len(subject.required)
    all_true = complete and all(seen.available == "True" for seen in reported)
    uniform = len({seen.generation for seen in reported}) <= 1
    was_true = before is not None and before.status == "True"
    holds = (uniform or was_true) if all_true else _sticks(reported, before)
    status: Literal["True", "False"] = "True" if subject.required and complete and holds else "False"

    generation = 1
    if subject.required:
        highest = max((seen.generation for seen in reported), default=0)
        if status == "True" and all_true and uniform:
            generation = reported[0].generation
        elif status == "False" and highest:
            generation = highest
        elif before is not None:
            generation = before.observed_generation

    updated = _last_known_updated(subject, reported, before, status, generation, all_true and uniform)
    transition = before.last_transition_time if before is not None and before.status == status else updated
    reason, message = _why_last_known(subject, reported, status, complete)
    return Condition(LAST_KNOWN, status, generation, _created(subject, before), updated, transition, reason, message)


def _sticks(reported: Sequence[Observation], before: Condition | None) -> bool:
    """It stays True while no adapter fails at the very generation that was known to work."""
    return (
        before is not None
        and before.status == "True"
        and not any(seen.available == "False" and seen.generation == before.observed_generation for seen in reported)
    )


def _last_known_updated(
    subject: Subject,
    reported: Sequence[Observation],
    before: Condition | None,
    status: str,
    generation: int,
    agreed: bool,
) -> datetime:
    if not subject.required:
        return subject.updated_time
    if agreed:
        return min(seen.time for seen in reported)
    there = [seen for seen in reported if seen.generation == generation]
    if status == "False" and any(seen.available == "False" for seen in there):
        return min(seen.time for seen in there)
    return before.last_updated_time if before is not None else subject.updated_time


def _why_last_known(subject: Subject, reported: Sequence[Observation], status: str, complete: bool) -> tuple[str, str]:
    if status == "True":
        return "AllAdaptersReconciled", "All required adapters report Available=True for the tracked generation"
    if not subject.required or not complete:
        return "AdaptersMissingReports", "Required adapters have not yet reported status"
    if any(seen.available == "False" for seen in reported):
        return "AdapterReportedNotAvailable", "One or more required adapters report Available=False"
    return "AdaptersNotAtSameGeneration", "Required adapters do not report a consistent Available state"


def _successful(subject: Subject, seen: Observation, before: Condition | None) -> Condition:
    status: Literal["True", "False"] = "True" if seen.available == "True" else "False"
    same = before is not None and before.status == status
    return Condition(
        successful_type(seen.adapter),
        status,
        seen.generation,
        _created(subject, before),
        seen.time,
        before.last_transition_time if before is not None and same else seen.time,
        seen.reason,
        seen.message,
    )


def _created(subject: Subject, before: Condition | None) -> datetime:
    return before.created_time if before is not None else subject.updated_time

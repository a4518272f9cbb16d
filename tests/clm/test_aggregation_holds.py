"""From reports to conditions: laws that hold for any reports, beside the cases that the contract names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regional.clm.api.aggregation import Condition, Observation, Subject, aggregate, all_finalized, successful_type

START = datetime(2026, 1, 1, tzinfo=UTC)
ADAPTERS = ("validation", "dns", "hypershift")


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def said(adapter: str, generation: int, available: str = "True", seconds: int = 10, **more: Any) -> Observation:
    return Observation(adapter, generation, at(seconds), available, **more)


def subject(generation: int = 1, required: tuple[str, ...] = ADAPTERS[:2], **more: Any) -> Subject:
    return Subject(generation, START, more.get("deleting", False), more.get("has_children", False), required)


def told(conditions: list[Condition]) -> dict[str, tuple[str, int, str | None]]:
    return {found.type: (found.status, found.observed_generation, found.reason) for found in conditions}


# -- the contract's cases --------------------------------------------------------------------------------------------


def test_before_any_report_both_are_false() -> None:
    found = aggregate(subject(), [])
    assert told(found) == {
        "Reconciled": ("False", 1, "ReconciledMissingAdapters"),
        "LastKnownReconciled": ("False", 1, "AdaptersMissingReports"),
    }
    assert found[0].message == (
        "Required adapters not reporting Available=True: [dns, validation]. Currently reporting: []"
    )
    assert {found[0].last_updated_time, found[0].last_transition_time, found[0].created_time} == {START}


def test_all_true_at_the_current_generation_is_reconciled_since_the_earliest_report() -> None:
    found = aggregate(subject(), [said("dns", 1, seconds=20), said("validation", 1, seconds=30)])
    assert told(found)["Reconciled"] == ("True", 1, "ReconciledAll")
    assert found[0].last_updated_time == found[0].last_transition_time == at(20)
    assert [condition.type for condition in found] == [
        "Reconciled", "LastKnownReconciled", "ValidationSuccessful", "DnsSuccessful"
    ]  # fmt: skip


def test_a_new_generation_is_not_reconciled_but_the_last_known_one_still_is() -> None:
    seen = [said("dns", 1), said("validation", 1)]
    before = aggregate(subject(1), seen)
    changed = Subject(2, at(50), False, False, ADAPTERS[:2])
    found = aggregate(changed, seen, before)
    assert told(found)["Reconciled"] == ("False", 2, "ReconciledMissingAdapters")
    assert found[0].last_transition_time == at(50)  # when the generation changed, not when somebody looked
    assert told(found)["LastKnownReconciled"] == ("True", 1, "AllAdaptersReconciled")


def test_a_failure_at_the_new_generation_does_not_unmake_the_last_known_one() -> None:
    before = aggregate(subject(1), [said("dns", 1), said("validation", 1)])
    found = aggregate(subject(2), [said("dns", 2, "False"), said("validation", 1)], before)
    assert told(found)["LastKnownReconciled"] == ("True", 1, "AllAdaptersReconciled")
    failed = aggregate(subject(1), [said("dns", 1, "False", 40), said("validation", 1)], before)
    assert told(failed)["LastKnownReconciled"] == ("False", 1, "AdapterReportedNotAvailable")


def test_mixed_generations_are_known_to_work_only_if_they_were_before() -> None:
    mixed = [said("dns", 2), said("validation", 1)]
    assert told(aggregate(subject(2), mixed))["LastKnownReconciled"] == ("False", 2, "AdaptersNotAtSameGeneration")
    before = aggregate(subject(1), [said("dns", 1), said("validation", 1)])
    assert told(aggregate(subject(2), mixed, before))["LastKnownReconciled"][:2] == ("True", 1)


def test_deleting_is_reconciled_when_all_have_finalized_and_no_child_is_left() -> None:
    seen = [said("dns", 2, "False", finalized=True), said("validation", 2, "False", finalized=True)]
    found = aggregate(subject(2, deleting=True), seen)
    assert told(found)["Reconciled"] == ("True", 2, "ReconciledAll")
    waiting = aggregate(subject(2, deleting=True, has_children=True), seen)
    assert told(waiting)["Reconciled"] == ("False", 2, "ReconciledWaitingForChildren")
    missing = aggregate(subject(2, deleting=True), seen[:1])
    assert missing[0].message == (
        "Required adapters not reporting Finalized=True: [validation]. Currently reporting: [dns]"
    )


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [("dns", "DnsSuccessful"), ("my-adapter", "MyAdapterSuccessful"), ("a_b.c", "ABCSuccessful")],
)
def test_the_conditions_of_adapters_are_named_after_them(adapter: str, expected: str) -> None:
    assert successful_type(adapter) == expected


# -- laws ------------------------------------------------------------------------------------------------------------

_observations = st.lists(
    st.builds(
        said,
        st.sampled_from([*ADAPTERS, "stranger"]),
        st.integers(1, 4),
        st.sampled_from(["True", "False", "Unknown"]),
        st.integers(0, 100),
        finalized=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda found: found.adapter,
)
_subjects = st.builds(
    Subject,
    st.integers(1, 4),
    st.integers(0, 100).map(at),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(ADAPTERS), unique=True).map(tuple),
)
_steps = st.lists(st.tuples(_subjects, _observations), min_size=1, max_size=5)


@given(_subjects, _observations)
def test_reconciled_means_that_every_required_adapter_says_so_now(one: Subject, seen: list[Observation]) -> None:
    by_name = {found.adapter: found for found in seen}

    def agrees(adapter: str) -> bool:
        found = by_name.get(adapter)
        if found is None or found.generation != one.generation or found.available == "Unknown":
            return False
        return found.finalized if one.deleting else found.available == "True"

    expected = bool(one.required) and all(agrees(name) for name in one.required)
    expected = expected and not (one.deleting and one.has_children)
    assert (aggregate(one, seen)[0].status == "True") == expected


@given(_subjects, _observations, st.randoms())
def test_the_order_of_reports_does_not_matter(one: Subject, seen: list[Observation], chance: Any) -> None:
    shuffled = list(seen)
    chance.shuffle(shuffled)
    assert aggregate(one, shuffled) == aggregate(one, seen)


@given(_subjects, _observations)
def test_saying_the_same_again_changes_nothing(one: Subject, seen: list[Observation]) -> None:
    once = aggregate(one, seen)
    assert aggregate(one, seen, once) == once


@given(_subjects, _observations)
def test_strangers_have_no_say(one: Subject, seen: list[Observation]) -> None:
    known = [found for found in seen if found.adapter in one.required]
    assert aggregate(one, seen) == aggregate(one, known)


@given(_steps)
def test_a_transition_is_a_change_of_status(steps: list[tuple[Subject, list[Observation]]]) -> None:
    before: list[Condition] = []
    for one, seen in steps:
        after = aggregate(one, seen, before)
        known = {found.type: found for found in before}
        for found in after:
            earlier = known.get(found.type)
            if earlier is not None and earlier.status == found.status:
                assert found.last_transition_time == earlier.last_transition_time
            if earlier is not None:
                assert found.created_time == earlier.created_time
        before = after


@given(_steps)
def test_conditions_survive_being_stored(steps: list[tuple[Subject, list[Observation]]]) -> None:
    stored: list[Condition] = []
    plain: list[Condition] = []
    for one, seen in steps:
        plain = aggregate(one, seen, plain)
        stored = msgspec.json.decode(msgspec.json.encode(aggregate(one, seen, stored)), type=list[Condition])
    assert stored == plain


@given(_subjects, _observations)
def test_nothing_is_finished_by_an_older_generation(one: Subject, seen: list[Observation]) -> None:
    if one.required and all_finalized(one, seen):
        by_name = {found.adapter: found for found in seen}
        assert all(by_name[name].finalized and by_name[name].generation == one.generation for name in one.required)


@given(_steps)
def test_the_last_known_generation_was_once_agreed_upon(steps: list[tuple[Subject, list[Observation]]]) -> None:
    before: list[Condition] = []
    agreed: set[int] = set()
    for one, seen in steps:
        usable = [
            found
            for found in seen
            if found.adapter in one.required and found.generation <= one.generation and found.available == "True"
        ]
        if len(usable) == len(one.required) and len({found.generation for found in usable}) == 1:
            agreed.add(usable[0].generation)
        before = aggregate(one, seen, before)
        if before[1].status == "True":
            assert before[1].observed_generation in agreed

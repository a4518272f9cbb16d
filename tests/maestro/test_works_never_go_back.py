"""Duplicates, reordering and late messages: the newest spec stays, and what was deleted stays deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regional.maestro.agent.works import GRAVE_SECONDS, Taken, Works
from regional.maestro.protocol.bundles import spec_event
from regional.maestro.protocol.events import Event, MalformedEvent, timestamp

START = datetime(2026, 1, 1, tzinfo=UTC)


def spec(version: int, *, at: float = 0.0, deletion: bool = False, bundle: str = "b") -> Event:
    moment = timestamp(START + timedelta(seconds=at))
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"v{version}"}}
    return spec_event(
        "update_request",
        source="maestro",
        consumer="mc01",
        resource_id=bundle,
        version=version,
        data=msgspec.json.encode({"manifests": [manifest]}),
        deletion=moment if deletion else "",
        time=moment,
    )


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_any_order_and_any_repetition_ends_with_the_newest_version(versions: list[int]) -> None:
    works = Works()
    for version in versions:
        works.take(spec(version), 0.0)
    work = works.get("b")
    assert work is not None and work.bundle is not None
    assert work.generation == max(versions)
    assert work.bundle.manifests[0]["metadata"]["name"] == f"v{max(versions)}"


@given(st.lists(st.integers(1, 3), max_size=10), st.lists(st.integers(1, 6), max_size=10))
def test_nothing_takes_back_a_deletion(before: list[int], after: list[int]) -> None:
    works = Works()
    for version in before:
        works.take(spec(version), 0.0)
    assert works.take(spec(3, deletion=True), 0.0) is Taken.DELETION
    for version in after:
        assert works.take(spec(version), 0.0) is Taken.OUTDATED
    work = works.get("b")
    assert work is not None and work.deletion


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=12))
def test_only_the_deletion_of_what_is_there_or_of_something_newer_ends_it(events: list[tuple[int, bool]]) -> None:
    works = Works()
    newest, ended = 0, False
    for version, deletion in events:
        taken = works.take(spec(version, deletion=deletion), 0.0)
        if deletion and not ended:
            ended = version >= newest
            assert taken is (Taken.DELETION if ended else Taken.OUTDATED)
        newest = max(newest, version) if deletion is ended else newest
    work = works.get("b")
    assert (work is not None and bool(work.deletion)) is ended


def test_a_deletion_that_names_no_version_is_carried_out() -> None:
    works = Works()
    works.take(spec(4), 0.0)
    assert works.take(spec(0, deletion=True), 0.0) is Taken.DELETION


def test_a_repeated_spec_only_asks_for_the_status_again() -> None:
    works = Works()
    assert works.take(spec(2), 0.0) is Taken.NEWS
    assert works.take(spec(2), 0.0) is Taken.REPEATED
    work = works.get("b")
    assert work is not None and work.status_due


def test_a_late_spec_does_not_bring_back_what_is_gone() -> None:
    works = Works()
    works.take(spec(2, at=1), 0.0)
    works.take(spec(2, at=5, deletion=True), 0.0)
    work = works.get("b")
    assert work is not None
    works.gone(work, 10.0)
    assert works.take(spec(2, at=1), 11.0) is Taken.OUTDATED
    assert works.get("b") is None


@pytest.mark.parametrize(
    ("again", "when"),
    [
        (spec(3, at=1), 11.0),  # it goes on counting
        (spec(1, at=6), 11.0),  # it starts again at 1, as other servers do, but later than the deletion
        (spec(1, at=1), 11.0 + GRAVE_SECONDS),  # clocks disagree; late is better than never
    ],
)
def test_a_bundle_made_anew_under_its_old_id_is_taken(again: Event, when: float) -> None:
    works = Works()
    works.take(spec(2, at=5, deletion=True), 0.0)
    work = works.get("b")
    assert work is not None
    works.gone(work, 10.0)
    assert works.take(again, when) is Taken.NEWS


def test_an_event_needs_no_more_than_it_must_have() -> None:
    bare = spec(1)
    bare = msgspec.structs.replace(
        bare, time="", extensions={"clustername": "mc01", "resourceid": "b", "resourceversion": "1"}
    )
    works = Works()
    assert works.take(bare, 0.0) is Taken.NEWS
    work = works.get("b")
    assert work is not None and work.name == "b"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"manifests":[]}',
        b'{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"x"}}]}',
        b'{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","generateName":"x"}}]}',
        b'{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}],"x":"' + b"y" * 512_000 + b'"}',
    ],
)
def test_a_bundle_that_cannot_be_applied_changes_nothing(data: bytes) -> None:
    works = Works()
    works.take(spec(1), 0.0)
    with pytest.raises(MalformedEvent):
        works.take(msgspec.structs.replace(spec(2), data=data), 0.0)
    work = works.get("b")
    assert work is not None and work.generation == 1


def test_a_work_keeps_the_name_of_its_record() -> None:
    """Its objects are recorded on the cluster under it; another name would leave that record behind."""
    works = Works()
    for version, name in ((1, "first"), (2, "second"), (3, "")):
        event = spec(version)
        metadata = msgspec.json.encode({"name": name}).decode()
        works.take(msgspec.structs.replace(event, extensions=event.extensions | {"metadata": metadata}), 0.0)
    work = works.get("b")
    assert work is not None and (work.generation, work.name) == (3, "first")

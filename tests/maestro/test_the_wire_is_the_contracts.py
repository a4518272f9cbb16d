"""Bytes, names and numbers that other implementations compute too."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regional.maestro.protocol import bundles, topics
from regional.maestro.protocol.canonical import NO_STATUS, go_json, status_hash
from regional.maestro.protocol.events import (
    JSON,
    Event,
    MalformedEvent,
    decode,
    encode,
    event_type,
    moment,
    timestamp,
)
from regional.maestro.protocol.identity import hub_hash, resource_uid
from regional.maestro.protocol.sequence import EPOCH_MS, SequenceIds, parts
from regional.maestro.protocol.tracing import log_tracing, request_id_of

names = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=20)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)


def test_the_hash_of_a_status_is_the_one_that_go_computes() -> None:
    moved = "2025-12-16T06:00:17Z"
    work = {"type": "Applied", "status": "True", "observedGeneration": 1, "lastTransitionTime": moved}
    work |= {"reason": "AppliedManifestWorkComplete", "message": "Apply manifest work complete"}
    manifest = {"type": "Applied", "status": "True", "lastTransitionTime": moved}
    manifest |= {"reason": "AppliedManifestComplete", "message": "Apply manifest complete"}
    meta = {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments"}
    meta |= {"name": "maestro-e2e-upgrade-test", "namespace": "default"}
    resources = [{"resourceMeta": meta, "statusFeedback": {}, "conditions": [manifest]}]
    assert status_hash([work], resources) == "6170884280acbd9d5e69ac59a00ef7cf84d50669621643782e7a3f1ab05836cf"


def test_without_resources_the_hashed_object_still_has_a_place_for_them() -> None:
    text = b'{"conditions":[],"resourceStatus":{}}'
    assert status_hash([], []) == hashlib.sha256(text).hexdigest()
    assert NO_STATUS.startswith("e3b0c442") and NO_STATUS.endswith("b855")


def test_json_is_escaped_as_go_escapes_it() -> None:
    assert go_json({"b": "<a>&\u2028é", "a": [1, True, None]}) == (
        b'{"a":[1,true,null],"b":"\\u003ca\\u003e\\u0026\\u2028' + "é".encode() + b'"}'
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | values,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    )
)
def test_canonical_json_means_the_same_and_does_not_depend_on_order(value: object) -> None:
    text = go_json(value)
    assert json.loads(text) == value
    assert go_json(json.loads(text)) == text
    assert not set(b"<>&") & set(text)


def test_ids_are_the_ones_of_other_clients() -> None:
    consumer, work = "7ff1a8f4-8811-49b4-8c19-9271bc51975e", "e44ec579-9646-549a-b679-db8d19d6da37"
    assert resource_uid("mw-client-example", consumer, work) == "55c61e54-a3f6-563d-9fec-b1fe297bdfdb"
    assert hub_hash("maestro-mqtt-agent.maestro:1883").startswith("f1d8a1049b93")


def test_a_sequence_id_tells_when_it_was_made() -> None:
    made, node, step = parts(2000808179721572352)
    assert (made, node, step) == (datetime(2025, 12, 16, 6, 0, 17, 921000, UTC), 1, 0)


@given(st.lists(st.integers(-5000, 5000), min_size=1, max_size=200))
def test_sequence_ids_only_grow_even_if_the_clock_goes_back(steps: list[int]) -> None:
    now = EPOCH_MS + 10_000_000

    def clock() -> int:
        return now

    ids = SequenceIds(clock)
    made = []
    for step in steps:
        now = max(EPOCH_MS, now + step)
        made.append(ids.next())
    assert made == sorted(set(made))
    assert {parts(found)[1] for found in made} == {1}


def test_more_ids_than_a_millisecond_has_go_into_the_next() -> None:
    ids = SequenceIds(lambda: EPOCH_MS + 1000)
    made = [ids.next() for _ in range(9000)]
    assert made == sorted(set(made))


@given(st.integers(-(10**9), 10**9))
def test_a_sequence_goes_on_above_what_the_server_has(ahead: int) -> None:
    now = EPOCH_MS + 10**12
    theirs = SequenceIds(lambda: now + ahead).next()
    ids = SequenceIds(lambda: now)
    ids.above(theirs)
    assert ids.next() > theirs


def test_a_sequence_from_the_far_future_does_not_carry_us_there() -> None:
    now = EPOCH_MS + 10**12
    ids = SequenceIds(lambda: now)
    ids.above((1 << 63) - 1)
    assert parts(ids.next())[0] == parts(SequenceIds(lambda: now).next())[0]


def test_a_sequence_goes_on_above_a_floor() -> None:
    floor = SequenceIds(lambda: EPOCH_MS + 10_000).next()
    assert SequenceIds(lambda: EPOCH_MS + 1000, floor).next() > floor


extensions = st.dictionaries(names.filter(lambda n: n not in ("id", "source", "type", "time", "specversion")), values)


@given(names, extensions, st.binary(max_size=50))
def test_an_event_survives_the_wire(source: str, more: dict[str, str], data: bytes) -> None:
    event = Event(id="1", source=source, type=event_type("spec", "create_request"), extensions=more, data=data)
    message = encode(event)
    assert all(name.startswith("ce-") for name, _ in message.properties)
    assert message.content_type == (JSON if data else "")
    assert decode(reversed(message.properties), message.content_type, message.payload) == event


def test_attributes_are_found_whatever_their_case_and_the_structured_form_is_understood() -> None:
    kind = event_type("status", "update_request")
    properties = [("ce-SpecVersion", "1.0"), ("ce-ID", "1"), ("ce-source", "a"), ("ce-type", kind), ("other", "x")]
    assert decode(properties, "", b"").type == kind
    document = {"specversion": "1.0", "id": "1", "source": "a", "type": kind, "resourceversion": 3, "data": {"a": [1]}}
    event = decode([], "application/cloudevents+json; charset=utf-8", msgspec.json.encode(document))
    assert (event.version, event.data) == (3, b'{"a":[1]}')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ce-id": ""}, "no id"),
        ({"ce-specversion": "0.3"}, "specversion"),
        ({"ce-type": "io.open-cluster-management.works.v1alpha1.manifests.spec.create_request"}, "type"),
        ({"ce-type": "io.open-cluster-management.works.v1alpha1.manifestbundles.spec"}, "type"),
    ],
)
def test_what_is_no_event_of_ours_is_named(change: dict[str, str], said: str) -> None:
    good = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "a", "ce-type": event_type("spec", "create_request")}
    with pytest.raises(MalformedEvent, match=said):
        decode((good | change).items(), "", b"")


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda found: found.replace(tzinfo=UTC)))
def test_times_keep_their_microseconds(found: datetime) -> None:
    assert moment(timestamp(found)) == found


def test_times_of_go_are_understood() -> None:
    assert moment("2025-12-16T06:00:17.921082037Z") == datetime(2025, 12, 16, 6, 0, 17, 921082, UTC)
    assert moment("2025-12-16T08:00:17.5+02:00") - moment("2025-12-16T06:00:17Z") == timedelta(seconds=0.5)
    with pytest.raises(MalformedEvent):
        moment("yesterday")


def test_a_topic_names_its_consumer() -> None:
    configured = "$share/statussubscribers/sources/maestro/consumers/+/agentevents"
    assert topics.checked(configured)
    assert topics.for_consumer(configured, "mc01") == "sources/maestro/consumers/mc01/agentevents"
    assert topics.consumer_of("sources/maestro/consumers/mc01/agentevents") == "mc01"
    assert topics.consumer_of("sources/maestro/consumers/mc01/else/agentevents") == ""
    with pytest.raises(ValueError, match="topic"):
        topics.checked("sources/maestro/consumers/#")


def test_an_empty_resync_is_one_message_with_an_empty_list() -> None:
    (spec,) = bundles.spec_resync_events("mc01-work-agent", "mc01", [])
    assert (spec.data, spec.extensions) == (b'{"resourceVersions":[]}', {"clustername": "mc01", "originalsource": ""})
    (status,) = bundles.status_resync_events("maestro", "mc01", [])
    assert status.data == b'{"statusHashes":[]}'


@given(st.integers(0, 500), st.integers(500, 3000))
def test_resyncs_fit_into_messages_and_their_parts_cover_every_id(count: int, limit: int) -> None:
    works = [(f"{number:08x}-0000-4000-8000-000000000000", number + 1) for number in range(count)]
    events = list(bundles.spec_resync_events("agent", "mc01", works, limit))
    assert all(len(event.data) <= limit for event in events)
    found: list[tuple[str, int]] = []
    reached = ""
    for event in events:
        listed = msgspec.json.decode(event.data, type=bundles.ResourceVersions).resource_versions or []
        assert event.extensions.get("resyncfrom", "") == reached
        reached = event.extensions.get("resyncuntil", "")
        found += [(entry.resource_id, entry.version) for entry in listed]
        assert all(not reached or entry.resource_id < reached for entry in listed)
    assert (found, reached) == (works, "")


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=30))
def test_the_request_travels_in_logtracing_or_in_an_annotation(request_id: str) -> None:
    assert request_id_of({"logtracing": log_tracing(request_id)}) == request_id
    metadata = json.dumps({"annotations": {"regional.io/request-id": request_id}})
    assert request_id_of({"logtracing": "{}", "metadata": metadata}) == request_id
    assert request_id_of({"logtracing": "[", "metadata": "3"}) == ""

"""What goes over the wire: our server as an agent of another make sees it, and our agent as another server does."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from regional import __version__
from regional.core.mqtt import NotPublished
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.canonical import NO_STATUS, status_hash
from regional.maestro.protocol.events import Event, event_type, moment
from regional.maestro.protocol.sequence import SequenceIds, parts
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import (
    Document,
    Maestro,
    Wire,
    condition,
    config_for,
    config_map,
    connect,
    eventually,
    gone,
)

PREFIX = "io.open-cluster-management.works.v1alpha1.manifestbundles"
sequence = SequenceIds()


def properties(wire: Wire, event: Event) -> Document:
    for packet in wire.packets:
        found = {prop.name: prop.value for prop in packet.user_properties or ()}
        if found["ce-id"] == event.id and found["ce-type"] == event.type:
            return found
    raise AssertionError("no such packet")


def conditions(*kinds: str) -> list[Document]:
    moved = "2026-01-01T00:00:00Z"
    return [
        {"type": kind, "status": "True", "lastTransitionTime": moved, "reason": "R", "message": ""} for kind in kinds
    ]


def status(spec: Event, *kinds: str, version: int | None = None, **more: Any) -> Event:
    """As an agent that knows nothing but the contract would answer."""
    made = protocol.status_event(
        source="mc01-work-agent",
        consumer="mc01",
        original_source=spec.source,
        resource_id=spec.resource_id,
        version=spec.version if version is None else version,
        sequence=sequence.next(),
        hash=status_hash(conditions(*kinds), []),
        conditions=conditions(*kinds),
        resource_status=[],
        metadata="{}",
    )
    extensions = made.extensions | more
    return Event(source=made.source, type=made.type, extensions=extensions, data=made.data)


def resync(*works: tuple[str, int]) -> Event:
    (event,) = protocol.spec_resync_events("mc01-work-agent", "mc01", works)
    return event


# -- our server ------------------------------------------------------------------------------------------------------


async def test_specs_and_deletes_have_the_contracts_properties(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        metadata = {"name": "mine", "labels": {"a": "b"}}
        option = {"propagationPolicy": "Orphan"}
        made = await client.create_bundle(
            "mc01", [config_map("a")], metadata=metadata, delete_option=option, manifest_configs=[config_for("a")]
        )
        event = await agent.next(subresource="spec")
        found = properties(agent, event)
        assert agent.packets[-1].topic == "sources/maestro/consumers/mc01/sourceevents"
        assert agent.packets[-1].content_type == "application/json"
        assert set(found) == {
            *("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"),
            *("ce-clustername", "ce-originalsource", "ce-resourceid", "ce-resourceversion"),
            *("ce-metadata", "ce-logtracing"),
        }
        assert (found["ce-specversion"], found["ce-source"]) == ("1.0", "maestro")
        assert found["ce-type"] == f"{PREFIX}.spec.create_request"
        assert (found["ce-clustername"], found["ce-originalsource"]) == ("mc01", "")
        assert (found["ce-resourceid"], found["ce-resourceversion"]) == (made["id"], "1")
        assert uuid.UUID(found["ce-id"]) and moment(found["ce-time"]) and found["ce-logtracing"] == "{}"
        sent = json.loads(found["ce-metadata"])
        assert (sent["name"], sent["labels"]) == (made["id"], {"a": "b"}) and sent["creationTimestamp"]
        assert json.loads(event.data) == {
            "manifests": [config_map("a")],
            "deleteOption": option,
            "manifestConfigs": [config_for("a")],
        }

        await client.patch_bundle(made["id"], manifests=[config_map("b")], request_id="req-7")
        found = properties(agent, await agent.next(action="update_request"))
        assert (found["ce-type"], found["ce-resourceversion"]) == (f"{PREFIX}.spec.update_request", "2")
        assert json.loads(found["ce-logtracing"]) == {"logging.open-cluster-management.io/op-id": "req-7"}

        await client.delete_bundle(made["id"])
        found = properties(agent, await agent.next(action="delete_request"))
        assert (found["ce-type"], found["ce-resourceversion"]) == (f"{PREFIX}.spec.delete_request", "2")
        assert moment(found["ce-deletiontimestamp"])
        assert json.loads(found["ce-metadata"])["deletionTimestamp"]


async def test_an_agent_of_another_make_is_served_from_create_to_delete(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await agent.next(subresource="spec")
        answer = status(spec, "Applied", "Available")
        await agent.send(answer)

        async def shown() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Applied") == "True" else None

        bundle = await eventually(shown)
        assert bundle["status"]["ObservedVersion"] == 1
        assert bundle["status"]["SequenceID"] == answer.extensions["sequenceid"]
        assert parts(int(bundle["status"]["SequenceID"]))[1] == 1
        await client.delete_bundle(made["id"])
        end = await agent.next(action="delete_request")
        await agent.send(status(end, "Applied", "Deleting"))
        await agent.send(status(end, "Applied", "Deleting", "Deleted"))
        await gone(client, made["id"])


async def test_a_spec_resync_gets_what_is_newer_what_is_deleted_and_the_end_of_what_is_unknown(
    maestro: Maestro,
) -> None:
    async with maestro.server(keep_unknown_works=False) as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        known, newer, deleted, missing = [
            await client.create_bundle("mc01", [config_map(name)]) for name in ("known", "newer", "deleted", "missing")
        ]
        await client.patch_bundle(newer["id"], manifests=[config_map("newer", {"a": "2"})])
        await client.delete_bundle(deleted["id"])
        expected = {(known["id"], 1), (newer["id"], 2), (deleted["id"], 1), (missing["id"], 1)}
        while expected:
            event = await agent.next(subresource="spec")
            expected.discard((event.resource_id, event.version))
        await not_due(maestro)
        await agent.settle()

        works = [(known["id"], 1), (newer["id"], 1), (deleted["id"], 1), ("never-heard-of", 4)]
        await agent.send(resync(*works))
        answers = [await agent.next(action="resync_response") for _ in range(4)]
        told = {event.resource_id: event for event in answers}
        assert set(told) == {newer["id"], deleted["id"], missing["id"], "never-heard-of"}
        assert (told[newer["id"]].version, told[missing["id"]].version) == (2, 1)
        assert "deletiontimestamp" in told[deleted["id"]].extensions
        stranger = told["never-heard-of"]
        assert (stranger.version, stranger.data) == (4, b"") and stranger.extensions["deletiontimestamp"]
        await agent.nothing()


async def not_due(maestro: Maestro) -> None:
    """What nobody has confirmed is sent again after some seconds: not in this test."""
    connection = await connect(maestro.database)
    try:
        await connection.execute("UPDATE resources SET due_at = now() + interval '1 hour' WHERE due_at IS NOT NULL")
    finally:
        await connection.close()


async def test_a_server_without_any_bundle_of_a_consumer_ends_nothing(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        await agent.send(resync(("somebody-elses", 1)))
        await agent.nothing()


async def test_what_was_deleted_for_good_is_ended_even_without_any_bundle(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await agent.next(subresource="spec")
        await client.delete_bundle(made["id"])
        end = await agent.next(action="delete_request")
        await agent.send(status(end, "Deleted"))
        await gone(client, made["id"])
        await agent.send(resync((made["id"], 1)))
        assert (await agent.next(action="resync_response")).extensions["deletiontimestamp"]
        await agent.send(status(end, "Applied"))  # a late message has brought it back to life over there
        assert (await agent.next(action="delete_request")).resource_id == made["id"]


async def test_what_is_being_deleted_at_an_agent_is_not_ended_again(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await agent.next(subresource="spec")
        await client.delete_bundle(made["id"])
        end = await agent.next(action="delete_request")
        await agent.send(status(end, "Deleted"))
        await gone(client, made["id"])
        await agent.settle()
        for _ in range(3):  # as an agent answers whose delete came twice
            await agent.send(status(end, "Applied", "Deleting"))
            await agent.send(status(end, "Applied", "Deleting", "Deleted"))
        await agent.nothing()


async def test_a_server_asks_for_statuses_when_it_comes(maestro: Maestro) -> None:
    async with maestro.wire("mc01") as agent:
        async with maestro.server() as client:
            await client.create_consumer("mc01")
            made = await client.create_bundle("mc01", [config_map("a")])
            silent = await client.create_bundle("mc01", [config_map("b")])
            specs: dict[str, Event] = {}  # what is not confirmed within seconds comes once more
            while set(specs) != {made["id"], silent["id"]}:
                spec = await agent.next(subresource="spec")
                specs[spec.resource_id] = spec
            answer = status(specs[made["id"]], "Applied")
            await agent.send(answer)

            async def shown() -> bool:
                return condition(await client.get_bundle(made["id"]), "Applied") == "True"

            await eventually(shown)
        await not_due(maestro)
        await agent.settle()
        wanted = {made["id"]: answer.extensions["statushash"], silent["id"]: NO_STATUS}
        async with maestro.server():
            asked, sent = False, set()  # all of it, in any order; what the former one has asked is passed by
            # What nobody has confirmed is sent again at once, and what this agent, were it new, could not know of.
            while not asked or sent != {made["id"], silent["id"]}:
                event = await agent.next()
                if event.subresource == "spec":
                    sent.add(event.resource_id)
                    continue
                assert event.action == "resync_request"
                assert event.extensions == {"clustername": "mc01", "originalsource": ""}
                named = {entry["resourceID"]: entry["statusHash"] for entry in json.loads(event.data)["statusHashes"]}
                asked = asked or named == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"clustername": "mc02"},
        {"originalsource": "another"},
        {"resourceversion": "2"},
        {"resourceversion": "many"},
        {"sequenceid": "later"},
    ],
)
async def test_a_status_that_breaks_a_rule_changes_nothing(maestro: Maestro, wrong: dict[str, str]) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await agent.next(subresource="spec")
        await agent.send(status(spec, "Applied", **wrong), "mc01")
        await agent.send(status(spec, "Available"))

        async def heard() -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Available") == "True" else None

        bundle = await eventually(heard)
        assert condition(bundle, "Applied") == ""


async def test_an_agent_cannot_speak_for_another(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc02") as other:
        await client.create_consumer("mc01")
        await client.create_consumer("mc02")
        made = await client.create_bundle("mc01", [config_map("a")])
        event = status(
            protocol.spec_event("create_request", source="maestro", consumer="mc01", resource_id=made["id"], version=1),
            "Applied",
        )
        with pytest.raises(NotPublished):  # the broker's rule: not on its topic
            await other.send(event, "mc01")

        async def sent() -> bool:
            try:
                return await other.send(event, "mc02") == 0  # the server's: the topic's consumer is the one that counts
            except NotPublished:
                return False  # the broker has thrown it out for the first

        await eventually(sent)
        extensions = event.extensions | {"clustername": "mc02"}
        await other.send(Event(source="x", type=event.type, extensions=extensions, data=event.data), "mc02")
        await other.nothing()
        bundle = await client.get_bundle(made["id"])
        assert "status" not in bundle and bundle["delivery"]["state"] == "pending"


async def test_noise_on_a_topic_does_not_stop_the_server(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        topic = "sources/maestro/consumers/mc01/agentevents"
        kind = event_type("status", "update_request")
        for payload, attributes in (
            (b"\xff\xfe", []),
            (b"[" * 100_000, [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "x"), ("ce-type", kind)]),
            (b"{}", [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "x"), ("ce-type", "a.b.c")]),
        ):
            await agent.broker.publish(topic, payload, attributes, "application/json")
        deep = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "x"), ("ce-type", kind)]
        deep += [("ce-clustername", "mc01"), ("ce-originalsource", "maestro"), ("ce-resourceid", "x")]
        await agent.broker.publish(topic, b"[" * 100_000, deep, "application/json")
        await agent.broker.publish(topic, b"[" * 100_000, [], "application/cloudevents+json")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await agent.next(subresource="spec")
        assert spec.resource_id == made["id"]


# -- our agent -------------------------------------------------------------------------------------------------------


def spec(resource_id: str, version: int, data: bytes = b"", **extensions: str) -> Event:
    """With no more than another server must send."""
    found = {"clustername": "mc01", "resourceid": resource_id, "resourceversion": str(version)} | extensions
    return Event(source="maestro", type=event_type("spec", "create_request"), extensions=found, data=data)


def content(*manifests: Document, **more: Any) -> bytes:
    return json.dumps({"manifests": list(manifests), **more}).encode()


async def test_our_agent_is_served_by_a_server_of_another_make(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        asked = await server.next(subresource="spec", action="resync_request")
        assert json.loads(asked.data) == {"resourceVersions": []}
        own = {"agentversion", "agentcertificate", "clusterunreachable"}  # other servers pass them by
        assert {name: value for name, value in asked.extensions.items() if name not in own} == {
            "clustername": "mc01",
            "originalsource": "",
        }
        assert asked.extensions["agentversion"] == f"regional/{__version__}"
        assert len(asked.extensions["agentcertificate"]) == 64
        assert server.packets[-1].topic == "sources/maestro/consumers/mc01/agentevents"

        await server.send(
            spec("b1", 1, content(config_map("a"), manifestConfigs=[config_for("a", ("k", ".data.key"))]))
        )
        answer = await server.next(subresource="status")
        found = properties(server, answer)
        assert set(found) == {
            *("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"),
            *("ce-clustername", "ce-originalsource", "ce-resourceid", "ce-resourceversion"),
            *("ce-sequenceid", "ce-statushash", "ce-metadata", "ce-logtracing"),
        }
        assert found["ce-type"] == f"{PREFIX}.status.update_request"
        assert (found["ce-source"], found["ce-originalsource"]) == ("mc01-work-agent", "maestro")
        assert (found["ce-resourceid"], found["ce-resourceversion"]) == ("b1", "1")
        assert parts(int(found["ce-sequenceid"]))[1] == 1
        data = json.loads(answer.data)
        assert found["ce-statushash"] == status_hash(data["conditions"], data["resourceStatus"])
        assert {c["type"]: c["status"] for c in data["conditions"]} == {"Applied": "True", "Available": "True"}
        (resource,) = data["resourceStatus"]
        assert resource["resourceMeta"] == {
            "ordinal": 0,
            "group": "",
            "version": "v1",
            "kind": "ConfigMap",
            "resource": "configmaps",
            "name": "a",
            "namespace": "default",
        }
        applied, available, synced = resource["conditions"]
        assert (applied["observedGeneration"], applied["reason"]) == (1, "AppliedManifestComplete")
        assert "observedGeneration" not in available and "observedGeneration" not in synced

        await server.send(spec("b1", 1, deletiontimestamp="2026-01-01T00:00:00.000001Z"))
        first, second = [await server.next(subresource="status") for _ in range(2)]
        kinds = [[c["type"] for c in json.loads(event.data)["conditions"]] for event in (first, second)]
        assert kinds == [
            ["Applied", "Available", "Deleting"],
            ["Applied", "Available", "Deleting", "Deleted"],
        ]
        assert json.loads(second.data)["resourceStatus"] == json.loads(first.data)["resourceStatus"]
        order = [int(event.extensions["sequenceid"]) for event in (answer, first, second)]
        assert order == sorted(order)
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None


async def test_a_deletion_of_an_unknown_work_is_answered(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await server.send(spec("never-seen", 3, deletiontimestamp="2026-01-01T00:00:00Z"))
        answer = await server.next(subresource="status")
        assert [c["type"] for c in json.loads(answer.data)["conditions"]] == ["Deleted"]
        assert "resourceStatus" not in json.loads(answer.data) and answer.version == 3
        await server.nothing(subresource="status")


async def test_our_agent_answers_a_status_resync(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        for name in ("one", "two"):
            await server.send(spec(name, 1, content(config_map(name))))
            await server.next(subresource="status")

        def asks(known: list[tuple[str, str]]) -> Event:
            (event,) = protocol.status_resync_events("maestro", "mc01", known)
            return event

        async def answers() -> Event:
            # Statuses that nobody asked for may still be on their way.
            return await server.next(subresource="status", action="resync_response")

        await server.send(asks([]))
        told = [await answers() for _ in range(2)]
        hashes = {event.resource_id: event.extensions["statushash"] for event in told}
        assert hashes.keys() == {"one", "two"}
        await server.send(asks([("one", hashes["one"]), ("two", NO_STATUS), ("three", NO_STATUS)]))
        assert (await answers()).resource_id == "two"
        # A server that asks has just come, so it is asked in turn; what was asked before the works came is passed by.
        versions: dict[str, int] = {}
        while versions != {"one": 1, "two": 1}:
            again = await server.next(subresource="spec", action="resync_request")
            versions = {e["resourceID"]: e["resourceVersion"] for e in json.loads(again.data)["resourceVersions"]}


async def test_a_spec_sent_twice_is_answered_twice_and_applied_once(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await server.send(spec("b", 2, content(config_map("a", {"v": "2"}))))
        first = await server.next(subresource="status")
        before = await cluster.client.get("v1", "ConfigMap", "a", "default")
        await server.send(spec("b", 2, content(config_map("a", {"v": "2"}))))
        second = await server.next(subresource="status")
        assert first.extensions["statushash"] == second.extensions["statushash"]
        assert int(first.extensions["sequenceid"]) < int(second.extensions["sequenceid"])
        await server.send(spec("b", 1, content(config_map("a", {"v": "1"}))))
        await server.nothing(subresource="status")
        assert await cluster.client.get("v1", "ConfigMap", "a", "default") == before


async def test_noise_does_not_stop_the_agent(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        deep = b'{"manifests":[' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"]}"
        for data in (b"", b"{}", b"[" * 100_000, deep, b'{"manifests":[1]}', b'{"manifests":[{"metadata":"x"}]}'):
            await server.send(spec("noise", 1, data))
        await server.send(spec("noise", 1, content(config_map("a")), metadata='{"labels":[1]}'))
        await server.send(spec("for-another", 1, content(config_map("a")), clustername="mc02"), "mc01")
        await asyncio.sleep(0.1)
        await server.send(spec("fine", 1, content(config_map("a"))))
        answer = await server.next(subresource="status")
        assert answer.resource_id == "fine"

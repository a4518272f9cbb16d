"""Statuses in the order and with the words in which an agent of the Go Maestro was seen to send them."""

from __future__ import annotations

import uuid
from typing import Any

from regional.clm.adapter.transport import as_work
from regional.maestro.client import MaestroClient
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.events import Event
from regional.maestro.protocol.sequence import SequenceIds
from tests.maestro.harness import Document, Maestro, Wire, condition, config_map, connect, eventually

SECONDS = 60.0
MOVED = "2026-01-01T00:00:00Z"
sequence = SequenceIds()


def said(kind: str, status: str, generation: int | None, message: str = "") -> Document:
    found: Document = {"type": kind, "status": status, "lastTransitionTime": MOVED, "reason": "R", "message": message}
    return found | ({} if generation is None else {"observedGeneration": generation})


def status(spec: Event, conditions: list[Document], *resources: Document) -> Event:
    number = sequence.next()
    return protocol.status_event(
        source="mc01-work-agent",
        consumer="mc01",
        original_source=spec.source,
        resource_id=spec.resource_id,
        version=spec.version,
        sequence=number,
        hash=str(number),
        conditions=conditions,
        resource_status=resources,
        metadata="{}",
    )


async def spec_of(agent: Wire, bundle_id: str, version: int) -> Event:
    while True:
        event = await agent.next(subresource="spec", seconds=SECONDS)
        if (event.resource_id, event.version) == (bundle_id, version):
            return event


async def stored(client: MaestroClient, bundle_id: str, event: Event) -> Any:
    async def shown() -> Document | None:
        bundle = await client.get_bundle(bundle_id)
        found = (bundle.get("status") or {}).get("SequenceID")
        return bundle if found == event.extensions["sequenceid"] else None

    return await eventually(shown, SECONDS)


async def test_a_new_version_is_not_applied_because_the_former_was(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await spec_of(agent, made["id"], 1)
        event = status(spec, [said("Applied", "True", 1), said("Available", "True", 1)])
        await agent.send(event)
        assert (await stored(client, made["id"], event))["delivery"] == {"state": "applied", "reason": ""}

        await client.patch_bundle(made["id"], manifests=[config_map("a", {"key": "other"})])
        spec = await spec_of(agent, made["id"], 2)
        # It has the new spec and has looked at the objects again, but not applied them yet.
        event = status(spec, [said("Applied", "True", 1), said("Available", "True", 2)])
        await agent.send(event)
        bundle = await stored(client, made["id"], event)
        waits = {"state": "delivered", "reason": "the agent has not tried to apply it yet"}
        assert bundle["delivery"] == waits
        assert (as_work(bundle)["observedVersion"], bundle["version"]) == (1, 2)

        event = status(spec, [said("Applied", "True", 2), said("Available", "True", 2)])
        await agent.send(event)
        bundle = await stored(client, made["id"], event)
        assert bundle["delivery"] == {"state": "applied", "reason": ""}
        assert as_work(bundle)["observedVersion"] == 2


async def test_a_status_that_says_nothing_takes_back_nothing(maestro: Maestro) -> None:
    """One that is asked for its statuses while it applies was seen to answer, last of all and with the newest sequence
    id, with what it had before: nothing. And it does not speak again until something changes."""
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        other = await client.create_bundle("mc01", [config_map("b")])
        spec = await spec_of(agent, made["id"], 1)
        beside = await spec_of(agent, other["id"], 1)
        nothing = status(spec, [])
        await agent.send(nothing)  # it has the spec: that much it says
        assert (await stored(client, made["id"], nothing))["delivery"]["state"] == "delivered"
        full = status(spec, [said("Applied", "True", 1)])
        await agent.send(full)
        assert (await stored(client, made["id"], full))["delivery"]["state"] == "applied"
        await agent.send(status(spec, []))
        later = status(beside, [said("Applied", "True", 1)])
        await agent.send(later)
        await stored(client, other["id"], later)  # and so what came before it has been looked into
        assert (await stored(client, made["id"], full))["delivery"]["state"] == "applied"


async def test_a_new_version_of_the_same_spec_is_applied_as_it_was(maestro: Maestro) -> None:
    """The agent sees that only the version is new, and leaves `Applied` as it is until it looks again in minutes."""
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        event = status(await spec_of(agent, made["id"], 1), [said("Applied", "True", 1)])
        await agent.send(event)
        await stored(client, made["id"], event)
        await client.patch_bundle(made["id"], metadata={"labels": {"tier": "gold"}})
        event = status(await spec_of(agent, made["id"], 2), [said("Applied", "True", 1), said("Available", "True", 2)])
        await agent.send(event)
        bundle = await stored(client, made["id"], event)
        assert bundle["delivery"] == {"state": "applied", "reason": ""}
        assert as_work(bundle)["observedVersion"] == 2


async def test_the_reason_is_found_where_the_agent_says_it(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("x", namespace="elsewhere")])
        spec = await spec_of(agent, made["id"], 1)
        fault = 'Failed to apply manifest: namespaces "elsewhere" not found'
        resource = {
            "resourceMeta": {"ordinal": 0, "kind": "ConfigMap", "name": "x", "namespace": "elsewhere"},
            "statusFeedback": {},
            "conditions": [said("Applied", "False", 1, fault), said("Available", "False", None)],
        }
        event = status(spec, [said("Applied", "False", 1, "Failed to apply manifest work")], resource)
        await agent.send(event)
        reason = (await stored(client, made["id"], event))["delivery"]["reason"]
        assert reason == 'Failed to apply manifest work: ConfigMap elsewhere/x: namespaces "elsewhere" not found'


def spec_from(version: int, bundle_id: str) -> Event:
    """What the agent has from a server before."""
    return protocol.spec_event(
        "update_request", source="maestro", consumer="mc01", resource_id=bundle_id, version=version
    )


async def beyond(client: MaestroClient, bundle_id: str) -> Any:
    async def noted() -> Document | None:
        works = (await client.agent_works())["items"]
        return next((work for work in works if work["id"] == bundle_id), None)

    return await eventually(noted, SECONDS)


async def test_its_statuses_tell_an_emptied_database_what_it_has(maestro: Maestro) -> None:
    """It says what it has when it connects, and not again; asked for statuses, it tells of all."""
    known = str(uuid.uuid4())
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        await agent.send(status(spec_from(4, known), [said("Applied", "True", 4)]))
        assert (await beyond(client, known))["version"] == 4
        made = await client.create_bundle("mc01", [config_map("a")], id=known)
        assert made["version"] == 5  # it would pass over anything older than what it has
        spec = await spec_of(agent, known, 5)
        event = status(spec, [said("Applied", "True", 5)])
        await agent.send(event)
        assert condition(await stored(client, known, event), "Applied") == "True"
        assert (await client.agent_works())["total"] == 0


async def test_its_statuses_tell_a_database_that_was_set_back(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await spec_of(agent, made["id"], 1)
        await agent.send(status(spec_from(4, made["id"]), [said("Applied", "True", 4)]))
        assert (await beyond(client, made["id"]))["known_version"] == 1
        await client.redeliver_bundle(made["id"])
        spec = await spec_of(agent, made["id"], 5)
        event = status(spec, [said("Applied", "True", 5)])
        await agent.send(event)
        assert (await stored(client, made["id"], event))["delivery"]["state"] == "applied"


async def test_a_late_status_of_a_deleted_bundle_is_not_taken_for_an_unknown_work(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await spec_of(agent, made["id"], 1)
        await client.delete_bundle(made["id"])
        await agent.send(status(spec, [said("Applied", "True", 1), said("Deleted", "True", None)]))

        async def gone() -> bool:
            return await client.get_bundle_or_none(made["id"]) is None

        await eventually(gone, SECONDS)
        await agent.settle()
        await agent.send(status(spec, [said("Applied", "True", 1)]))
        # Told again that it is over; by then it has been looked into.
        while not (await agent.next(subresource="spec", seconds=SECONDS)).extensions.get("deletiontimestamp"):
            pass
        connection = await connect(maestro.database)
        try:
            assert await connection.fetchval("SELECT count(*) FROM agent_works") == 0
        finally:
            await connection.close()

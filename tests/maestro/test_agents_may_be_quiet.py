"""An agent of the Go Maestro's make: it says what has changed, once, and does not answer a spec that it has already."""

from __future__ import annotations

import json

import pytest

from regional.maestro.client import MaestroClient
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.canonical import NO_STATUS
from regional.maestro.protocol.events import Event
from regional.maestro.server import quiet
from tests.maestro.harness import Maestro, Wire, condition, config_map, eventually
from tests.maestro.test_other_implementations_can_join import status

SECONDS = 60.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "ASK_SECONDS", 0.2)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.5)


async def asked_for(agent: Wire, wanted: dict[str, str]) -> None:
    """Until just these statuses are asked for; other questions, such as those of a new session, are passed by."""
    found: dict[str, str] = {}
    while found != wanted:
        event = await agent.next(subresource="status", action="resync_request", seconds=SECONDS)
        found = {entry["resourceID"]: entry["statusHash"] for entry in json.loads(event.data)["statusHashes"]}


async def spec_of(agent: Wire, bundle_id: str, version: int = 1) -> Event:
    """What is not confirmed at once may come twice."""
    while True:
        event = await agent.next(subresource="spec", seconds=SECONDS)
        if (event.resource_id, event.version) == (bundle_id, version):
            return event


async def stored(client: MaestroClient, bundle_id: str, kind: str) -> None:
    async def shown() -> bool:
        return condition(await client.get_bundle(bundle_id), kind) == "True"

    await eventually(shown, SECONDS)


async def test_a_status_that_was_lost_is_asked_for(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        known = await client.create_bundle("mc01", [config_map("a")])
        spec = await spec_of(agent, known["id"])
        before = status(spec, "Applied")
        await agent.send(before)
        await stored(client, known["id"], "Applied")
        await client.patch_bundle(known["id"], manifests=[config_map("a", {"key": "other"})])
        # The agent's answer is lost on its way, and the spec that comes again is nothing new to it.
        for _ in range(2):
            spec = await spec_of(agent, known["id"], 2)
        await asked_for(agent, {known["id"]: before.extensions["statushash"]})
        await agent.send(status(spec, "Applied", "Available"))
        await stored(client, known["id"], "Available")
        assert (await client.get_bundle(known["id"]))["delivery"]["state"] == "applied"


@pytest.mark.usefixtures("impatient")
async def test_an_agent_with_nothing_to_say_is_asked_whether_it_lives(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        specs: dict[str, Event] = {}
        for name in ("a", "b"):
            made = await client.create_bundle("mc01", [config_map(name)])
            specs[made["id"]] = await spec_of(agent, made["id"])
            await agent.send(status(specs[made["id"]], "Applied"))
            await stored(client, made["id"], "Applied")
        (consumer,) = await client.consumers()
        heard = consumer.get("last_seen_at") or ""
        first, second = sorted(specs)
        # Under a hash that no status has, so that the agent must answer; and each bundle in its turn.
        for bundle_id in (first, second, first):
            await asked_for(agent, {bundle_id: NO_STATUS})
            await agent.send(status(specs[bundle_id], "Applied"))

        async def seen() -> bool:
            (consumer,) = await client.consumers()
            return bool(consumer["connected"] and consumer.get("last_seen_at", "") > heard)

        await eventually(seen, SECONDS)


@pytest.mark.usefixtures("impatient")
async def test_an_agent_that_speaks_by_itself_is_left_alone(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as ours, maestro.wire("mc02") as other:
        made = {}
        for consumer in ("mc01", "mc02"):
            await client.create_consumer(consumer)
            made[consumer] = (await client.create_bundle(consumer, [config_map("a")]))["id"]
        (event,) = protocol.spec_resync_events("mc01-work-agent", "mc01", [], agent_version="1.0")
        await ours.send(event)

        async def known() -> bool:
            return any(consumer.get("agent_version") == "1.0" for consumer in await client.consumers())

        await eventually(known, SECONDS)

        async def questions(version: int) -> list[Event]:
            """What came to ours in two rounds in which the other one was asked. The update ends them: what was sent
            to one topic before it comes before it."""
            for _ in range(2):
                await asked_for(other, {made["mc02"]: NO_STATUS})
            await client.patch_bundle(made["mc01"], manifests=[config_map("a", {"version": str(version)})])
            found = []
            while (event := await ours.next(seconds=SECONDS)).version != version:
                found.append(event)
            return [event for event in found if event.subresource == "status"]

        await questions(2)  # a round may have been under way
        assert await questions(3) == []

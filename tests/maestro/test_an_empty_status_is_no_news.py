"""A Go agent that is asked for its statuses while it applies may send, after the full status and with a newer sequence
id, one that holds no condition at all. And it does not speak again until something changes."""

from __future__ import annotations

import msgspec
import pytest

from regional.maestro.client import MaestroClient
from regional.maestro.protocol.events import RESYNC_RESPONSE, STATUS, Event, event_type
from regional.maestro.server import quiet
from tests.maestro.harness import Document, Maestro, Wire, config_map, connect, eventually
from tests.maestro.test_a_go_agent_is_understood import said, spec_of, stored
from tests.maestro.test_a_go_agent_is_understood import status as news_of
from tests.maestro.test_agents_may_be_quiet import asked_for


def status(spec: Event, conditions: list[Document], *, resync: bool = False) -> Event:
    event = news_of(spec, conditions)
    return msgspec.structs.replace(event, type=event_type(STATUS, RESYNC_RESPONSE)) if resync else event


async def greeted(client: MaestroClient, agent: Wire) -> None:
    """It has told of a bundle, and that it was heard is stored: a silent one would be asked for anything at all."""
    made = await client.create_bundle("mc01", [config_map("first")])
    event = status(await spec_of(agent, made["id"], 1), [said("Applied", "True", 1)])
    await agent.send(event)
    await stored(client, made["id"], event)

    async def seen() -> bool:
        return bool((await client.consumers())[0].get("last_seen_at"))

    await eventually(seen)


async def test_an_empty_status_does_not_take_the_place_of_one_that_waits_for_the_database(maestro: Maestro) -> None:
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        made = [await client.create_bundle("mc01", [config_map(name)]) for name in ("held", "waits", "last")]
        held, waits, last = [await spec_of(agent, bundle["id"], 1) for bundle in made]
        inbox = maestro.servers[-1].inbox
        connection = await connect(maestro.database)
        try:
            async with connection.transaction():  # whoever stores a status of this one waits for us
                await connection.execute("SELECT 1 FROM resources WHERE id = $1 FOR UPDATE", held.resource_id)
                await agent.send(status(held, [said("Applied", "True", 1)]))

                async def one_is_on_its_way() -> bool:
                    return bool(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

                await eventually(one_is_on_its_way)
                full = status(waits, [said("Applied", "True", 1)])
                await agent.send(full)
                await agent.send(status(waits, []))
                await agent.send(status(last, [said("Applied", "True", 1)]))

                async def all_wait() -> bool:
                    return len(inbox) == 3

                await eventually(all_wait)
        finally:
            await connection.close()
        bundle = await stored(client, waits.resource_id, full)
        assert bundle["delivery"] == {"state": "applied", "reason": ""}


async def test_what_an_agent_was_asked_for_is_asked_for_again_until_it_holds(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with what it had when it was asked, one by one at its own pace. Told meanwhile, the newer status has
    the older sequence id."""
    monkeypatch.setattr(quiet, "ASK_SECONDS", 0.2)
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        await greeted(client, agent)
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await spec_of(agent, made["id"], 1)
        news = status(spec, [said("Applied", "True", 1)])
        await agent.send(news)
        await stored(client, made["id"], news)
        late = status(spec, [said("Applied", "False", 1, "not yet")], resync=True)
        await agent.send(late)
        assert (await stored(client, made["id"], late))["delivery"]["state"] != "applied"
        await asked_for(agent, {made["id"]: late.extensions["statushash"]})
        again = status(spec, [said("Applied", "True", 1)], resync=True)
        await agent.send(again)
        assert (await stored(client, made["id"], again))["delivery"]["state"] == "applied"
        await asked_for(agent, {made["id"]: again.extensions["statushash"]})  # no answer: it holds


async def test_an_empty_answer_that_was_the_first_of_its_version_is_asked_about(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "ASK_SECONDS", 0.2)
    async with maestro.server() as client, maestro.wire("mc01") as agent:
        await client.create_consumer("mc01")
        await greeted(client, agent)
        made = await client.create_bundle("mc01", [config_map("a")])
        spec = await spec_of(agent, made["id"], 1)
        empty = status(spec, [], resync=True)
        await agent.send(empty)
        await stored(client, made["id"], empty)
        await asked_for(agent, {made["id"]: empty.extensions["statushash"]})
        full = status(spec, [said("Applied", "True", 1)], resync=True)
        await agent.send(full)
        assert (await stored(client, made["id"], full))["delivery"]["state"] == "applied"

"""A Go agent asks what it lacks when it connects, and not again: whoever was away then must not wait to be asked."""

from __future__ import annotations

from tests.maestro.harness import Maestro, config_map
from tests.maestro.test_a_go_agent_is_understood import said, spec_of, status, stored


async def test_a_new_server_sends_what_was_confirmed_before(maestro: Maestro) -> None:
    async with maestro.wire("mc01") as agent:
        async with maestro.server() as client:
            await client.create_consumer("mc01")
            made = await client.create_bundle("mc01", [config_map("a")])
            event = status(await spec_of(agent, made["id"], 1), [said("Applied", "True", 1)])
            await agent.send(event)
            await stored(client, made["id"], event)
        # It restarts now, has forgotten everything, and its question reaches nobody.
        async with maestro.server():
            await spec_of(agent, made["id"], 1)

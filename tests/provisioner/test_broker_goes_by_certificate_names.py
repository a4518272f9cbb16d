"""Real Mosquitto, real certificates: what a certificate's name does not say, its holder cannot do."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio
import yaml

from regional.core.problems import UserError
from tests.provisioner.harness import Ground
from tests.provisioner.mqtt_client import Client, Refused, agent_bundle, server_bundle

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

TOPICS = "sources/maestro-test-local/consumers"


class Region:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        config = json.loads(ground.secret(ground.regional(), "maestro/server-config"))["config"]
        self.server_host = yaml.safe_load(config)["brokerHost"]
        config = json.loads(ground.secret(ground.management("mc01"), "maestro/agent-config"))["config"]
        self.agent_host = yaml.safe_load(config)["brokerHost"]

    def agent(self, cluster_id: str, client_id: str = "") -> Client:
        return Client(self.agent_host, agent_bundle(self.ground, cluster_id), client_id or f"test-local.{cluster_id}")

    def server(self, replica: str = "pod-1") -> Client:
        return Client(self.server_host, server_bundle(self.ground), f"test-local.maestro-server-{replica}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def region(shared_ground: Ground) -> Region:
    await shared_ground.with_broker("mc01", "mc02")
    return Region(shared_ground)


async def test_server_and_agent_reach_each_other(region: Region) -> None:
    async with region.server() as server, region.agent("mc01") as agent:
        await server.subscribe(f"{TOPICS}/+/agentevents")
        await agent.subscribe(f"{TOPICS}/mc01/sourceevents")
        assert await server.publish(f"{TOPICS}/mc01/sourceevents", b"spec") < 128
        assert await agent.next_message() == (f"{TOPICS}/mc01/sourceevents", b"spec")
        assert await agent.publish(f"{TOPICS}/mc01/agentevents", b"status") < 128
        assert await server.next_message() == (f"{TOPICS}/mc01/agentevents", b"status")


async def test_an_agent_does_not_get_anothers_messages(region: Region) -> None:
    async with region.server() as server, region.agent("mc01") as one, region.agent("mc02") as two:
        for topic in ("mc02/sourceevents", "+/sourceevents", "#", "mc01/sourceevents"):
            await one.subscribe(f"{TOPICS}/{topic}")
        await two.subscribe(f"{TOPICS}/mc02/sourceevents")
        await server.publish(f"{TOPICS}/mc02/sourceevents", b"for two")
        await server.publish(f"{TOPICS}/mc01/sourceevents", b"for one")
        assert (await two.next_message())[1] == b"for two"
        # The broker keeps order on a connection: had the other's message been let through, it would come first.
        assert (await one.next_message())[1] == b"for one"


async def test_an_agent_cannot_speak_for_another_nor_for_the_server(region: Region) -> None:
    async with region.server() as server, region.agent("mc02") as two:
        await server.subscribe(f"{TOPICS}/+/agentevents")
        await two.subscribe(f"{TOPICS}/mc02/sourceevents")
        for topic in ("mc02/agentevents", "mc02/sourceevents", "mc01/sourceevents"):
            async with region.agent("mc01") as forger:  # anew each time: Mosquitto hangs up after a refusal
                assert await forger.publish(f"{TOPICS}/{topic}", b"forged") >= 128
        async with region.agent("mc01") as one:
            await one.publish(f"{TOPICS}/mc01/agentevents", b"honest")
        await server.publish(f"{TOPICS}/mc02/sourceevents", b"true")
        assert (await server.next_message())[1] == b"honest"
        assert (await two.next_message())[1] == b"true"


async def test_no_certificate_opens_the_topics_of_another_region(region: Region) -> None:
    for elsewhere in ("sources/maestro-test-other/consumers", "sources/maestro/consumers"):
        async with region.agent("mc01") as agent:
            assert await agent.publish(f"{elsewhere}/mc01/agentevents", b"status") >= 128
        async with region.server() as server:
            assert await server.publish(f"{elsewhere}/mc01/sourceevents", b"spec") >= 128


async def test_an_agent_cannot_take_anothers_client_id(region: Region) -> None:
    async with region.agent("mc01") as victim, region.agent("mc02", client_id="test-local.mc01") as thief:
        await victim.subscribe(f"{TOPICS}/mc01/sourceevents")
        await thief.publish(f"{TOPICS}/mc02/agentevents", b"still me")
        async with region.server() as server:
            await server.publish(f"{TOPICS}/mc01/sourceevents", b"spec")
        assert (await victim.next_message())[1] == b"spec"
        assert not victim.lost.is_set()


async def test_an_agents_certificate_does_not_open_the_servers_listener(region: Region) -> None:
    with pytest.raises(Refused):
        async with Client(region.server_host, agent_bundle(region.ground, "mc01"), "maestro-server-pod-1"):
            pass


async def test_replicas_of_the_server_stand_beside_each_other(region: Region) -> None:
    async with region.server("pod-1") as one, region.server("pod-2") as two, region.agent("mc01") as agent:
        for replica in (one, two):
            await replica.subscribe(f"{TOPICS}/+/agentevents")
        await agent.publish(f"{TOPICS}/mc01/agentevents", b"status")
        assert (await one.next_message())[1] == (await two.next_message())[1] == b"status"
        assert not one.lost.is_set()


async def test_a_renewed_certificate_works_beside_the_old_one_until_that_is_retired(region: Region) -> None:
    old = agent_bundle(region.ground, "mc01")
    inputs = region.ground.management_inputs("mc01")
    await region.ground.provision("maestro-agent-iot-regional", inputs, renew=True)
    with pytest.raises(UserError, match="not been carried"):
        await region.ground.provision("maestro-agent-iot-regional", inputs, retire=True)
    await region.ground.provision("maestro-agent-iot-management", inputs)
    new = agent_bundle(region.ground, "mc01")
    assert new["certificate"] != old["certificate"]
    await region.ground.provision("maestro-agent-iot-regional", inputs)  # whoever provisions meanwhile ends nothing
    for bundle in (old, new):
        async with Client(region.agent_host, bundle, "mc01") as agent:
            assert await agent.publish(f"{TOPICS}/mc01/agentevents", b"status") < 128
    await region.ground.provision("maestro-agent-iot-regional", inputs, retire=True)
    with pytest.raises(Refused):
        async with Client(region.agent_host, old, "mc01"):
            pass
    async with region.agent("mc01") as agent:
        assert await agent.publish(f"{TOPICS}/mc01/agentevents", b"status") < 128
    assert agent_bundle(region.ground, "mc01") == new


async def test_a_message_that_aws_iot_would_refuse_is_refused(region: Region) -> None:
    async with region.agent("mc01") as agent:
        assert await agent.publish(f"{TOPICS}/mc01/agentevents", b"x" * (128 * 1024)) < 128
        assert await agent.publish(f"{TOPICS}/mc01/agentevents", b"x" * (128 * 1024 + 1)) >= 128

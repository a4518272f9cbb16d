"""An agent with a valid certificate sends anything at all: the server lives on, and no other consumer notices."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from regional.maestro.protocol.bundles import status_event
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, STRUCTURED, UPDATE, Event, encode, event_type
from regional.maestro.server import agent_works
from tests.maestro.harness import Maestro, applied, config_map, connect, eventually

DEEP = b"[" * 50_000 + b"]" * 50_000


def status(consumer: str, resource_id: str, sequence: int = 1, message: str = "", **more: Any) -> Event:
    event = status_event(
        source=f"{consumer}-agent",
        consumer=consumer,
        original_source="maestro",
        resource_id=resource_id,
        version=1,
        sequence=sequence,
        hash="h",
        conditions=[
            {"type": "Applied", "status": "True", "reason": "A", "message": ""},
            {"type": "Available", "status": "False", "reason": "A", "message": message},
        ],
        resource_status=[],
        metadata="{}",
    )
    return msgspec.structs.replace(event, **more)


def with_extensions(event: Event, **extensions: str) -> Event:
    return msgspec.structs.replace(event, extensions=event.extensions | extensions)


def resync(data: bytes, **extensions: str) -> Event:
    named = {"clustername": "mc02", "originalsource": ""} | extensions
    return Event(source="mc02-agent", type=event_type(SPEC, RESYNC), extensions=named, data=data)


def listed(resource_id: str, version: int) -> bytes:
    return json.dumps({"resourceVersions": [{"resourceID": resource_id, "resourceVersion": version}]}).encode()


def structured(event: Event, **attributes: Any) -> tuple[list[tuple[str, str]], bytes, str]:
    core = {"specversion": "1.0", "id": "1", "source": event.source, "type": event.type}
    document = core | event.extensions | attributes | {"data": json.loads(event.data)}
    return [], json.dumps(document).encode(), STRUCTURED


def hostile() -> list[tuple[list[tuple[str, str]], bytes, str]]:
    events = [
        status("mc01", "theirs", 1 << 60),  # on its own topic, in another's name
        status("mc02", "theirs", 1 << 60),
        status("mc02", "x" * 60_000),
        status("mc02", "mine", data=b'{"conditions":' + DEEP + b"}"),
        status("mc02", "mine", data=b'{"resourceStatus":' + DEEP + b"}"),
        status("mc02", "mine", data=b"\xff\xfe" * 1000),
        status("mc02", "mine", data=b""),
        with_extensions(status("mc02", "mine"), sequenceid="9" * 5000),
        with_extensions(status("mc02", "mine"), resourceversion="-1"),
        with_extensions(status("mc02", "mine"), metadata=DEEP[:60_000].decode(), logtracing=DEEP[:60_000].decode()),
        msgspec.structs.replace(status("mc02", "mine"), type=event_type(STATUS, RESYNC)),
        msgspec.structs.replace(status("mc02", "mine"), type=event_type(SPEC, UPDATE)),
        resync(DEEP),
        resync(b"\xff"),
        resync(listed("theirs", 7)),
        resync(listed("y" * 60_000, 1)),
        resync(listed("mine\u0000", 1)),
        resync(listed("other", 1 << 70)),
        resync(listed("mine", -5), resyncfrom="zzz", resyncuntil="aaa"),
        resync(b"{}", agentversion="v" * 60_000, clusterunreachable="c" * 60_000),
    ]
    messages = [(message.properties, message.payload, message.content_type) for message in map(encode, events)]
    messages += [
        structured(status("mc02", "mine"), statushash="\u0000"),
        structured(status("mc02", "mi\u0000ne")),
        structured(resync(b"{}"), source="\u0000", agentversion="\u0000", resyncfrom="\u0000"),
        ([], DEEP, STRUCTURED),
        ([], b'{"specversion":' + DEEP + b"}", STRUCTURED),
        ([], b"", ""),
        ([("ce-specversion", "1.0")], b"{}", ""),
        ([("ce-", "x")] * 500, b"\x00" * 100_000, "application/json"),
    ]
    return messages


async def test_whatever_an_agent_sends_the_others_and_its_own_next_words_count(maestro: Maestro) -> None:
    async with maestro.server() as client:
        for consumer, bundle in (("mc01", "theirs"), ("mc02", "mine")):
            await client.create_consumer(consumer)
            await client.create_bundle(consumer, [config_map("one")], id=bundle)
        async with maestro.wire("mc01") as honest, maestro.wire("mc02") as agent:
            topic = next(iter(agent_topics(agent)))
            for properties, payload, content_type in hostile():
                await agent.broker.publish(topic, payload, properties, content_type)
            await honest.send(status("mc01", "theirs", 5))
            assert (await applied(client, "theirs"))["status"]["SequenceID"] == "5"
            # A message that no text column takes is still one that is understood.
            await agent.send(status("mc02", "mine", 9, "a \u0000 b"))

            async def stored() -> bool:
                return bool((await applied(client, "mine"))["status"]["SequenceID"] == "9")

            await eventually(stored)
        connection = await connect(maestro.database)
        assert not await connection.fetchval("SELECT count(*) FROM agent_works WHERE consumer_name <> 'mc02'")
        await connection.close()


def agent_topics(agent: Any) -> list[str]:
    return [agent.broker.config.topics.agent_events.replace("+", "mc02")]


FAILED = b'{"conditions":[{"type":"Applied","status":"False","message":"m"}],"resourceStatus":%s}'
SHAPES = [
    b"5",
    b"{}",
    b"[5]",
    b'[{"resourceMeta":5}]',
    b'[{"resourceMeta":{"kind":5}}]',
    b'[{"conditions":{}}]',
    b'[{"conditions":[{"type":"Applied","status":"False","message":null}]}]',
    b'[{"conditions":[{"type":"Applied","status":"False","message":5}]}]',
    b'[{"conditions":[{"type":"Applied","status":"False","lastTransitionTime":5}]}]',
    b'[{"statusFeedback":[]}]',
    b'[{"statusFeedback":{"values":[5]}}]',
    b'[{"statusFeedback":{"values":[{"name":5}]}}]',
]


async def test_a_status_of_another_shape_spoils_nobodys_list_or_watch(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc02")
        await client.create_bundle("mc02", [config_map("one")], id="mine")
        async with maestro.wire("mc02") as agent:
            for number, shape in enumerate(SHAPES, 1):
                await agent.send(status("mc02", "mine", number, data=FAILED % shape))
            good = b'[{"resourceMeta":{"kind":"ConfigMap","name":"one"},"statusFeedback":{},"conditions":null}]'
            await agent.send(status("mc02", "mine", len(SHAPES) + 1, data=FAILED % good))

            async def stored() -> bool:
                found = (await client.get_bundle("mine")).get("status") or {}
                return bool(found.get("SequenceID") == str(len(SHAPES) + 1))

            await eventually(stored)
        history = await client.bundle_history("mine")
        assert [entry["change"] for entry in history] == ["status", "accepted"]  # the good one, and no other


async def test_a_status_of_another_shape_that_is_stored_is_shown_all_the_same(maestro: Maestro) -> None:
    """By a server of a former release, which took any."""
    async with maestro.server() as client:
        await client.create_consumer("mc02")
        connection = await connect(maestro.database)
        for shape in SHAPES:
            await client.create_bundle("mc02", [config_map("one")])
            await connection.execute(
                "UPDATE resources SET status = $1, status_version = 1, status_sequence = 1 WHERE status IS NULL",
                (FAILED % shape).decode(),
            )
        await connection.close()
        bundles = await client.all_bundles()
        assert [bundle["delivery"]["state"] for bundle in bundles] == ["delivered"] * len(SHAPES)


async def test_a_status_that_no_json_column_takes_spoils_nobodys_search(maestro: Maestro) -> None:
    async with maestro.server() as client:
        for consumer, bundle in (("mc01", "theirs"), ("mc02", "mine")):
            await client.create_consumer(consumer)
            await client.create_bundle(consumer, [config_map("one")], id=bundle)
        async with maestro.wire("mc01") as honest, maestro.wire("mc02") as agent:
            await honest.send(status("mc01", "theirs", 5))
            await agent.send(status("mc02", "mine", 5, "a \u0000 b"))
            await applied(client, "theirs")
            await applied(client, "mine")
        wanted = """status->'conditions'@>'[{"type":"Applied","status":"True"}]'"""
        assert [bundle["id"] for bundle in await client.all_bundles(search=wanted)] == ["theirs"]


async def test_an_agent_that_invents_works_does_not_fill_the_disk(
    maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_works, "MOST_NOTED", 5)
    async with maestro.server() as client:
        works = agent_works.AgentWorks(maestro.servers[-1].database)
        for number in range(9):
            await works.add("mc02", {f"by-status-{number}": 1})
        await works.note("mc02", "a", "b", {"another": 1})
        await works.add("mc01", {"theirs": 1})
        for consumer, number in (("mc02", 5), ("mc01", 1)):
            assert (await client.agent_works(consumer_name=consumer))["total"] == number

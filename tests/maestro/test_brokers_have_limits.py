"""AWS IoT Core discards what is too large or comes too fast; so it is neither accepted nor sent like that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from regional.core.clock import ManualClock
from regional.core.mqtt import PROFILES, BrokerConfig, NotPublished, Topics, read_config
from regional.core.pace import WINDOW_SECONDS, Pace
from regional.maestro.client import MaestroError
from regional.maestro.server.delivery import LANE, PACED_WINDOW, WINDOW, Delivery
from tests.maestro.harness import Maestro, config_map, connect, eventually

KB = 1000


def config(host: str, profile: str = "") -> BrokerConfig:
    found = {"brokerHost": f"{host}:8883", "caFile": "", "clientCertFile": "", "clientKeyFile": ""}
    topics = msgspec.to_builtins(Topics(source_events="a", agent_events="b"))
    return msgspec.convert(found | {"topics": topics, "brokerProfile": profile}, BrokerConfig)


@pytest.mark.parametrize(
    ("host", "profile", "expected"),
    [
        ("a1b2-ats.iot.eu-west-1.amazonaws.com", "", "aws-iot"),
        ("a1b2.iot.cn-north-1.amazonaws.com.cn", "", "aws-iot"),
        ("a1b2-ats.iot.eu-west-1.amazonaws.com", "plain", "plain"),
        ("broker.internal", "", "plain"),
        ("broker.internal", "aws-iot", "aws-iot"),
        ("iot.amazonaws.com.example.com", "", "plain"),
    ],
)
def test_a_brokers_name_or_its_profile_says_what_it_allows(host: str, profile: str, expected: str) -> None:
    assert config(host, profile).profile is PROFILES[expected]


def test_a_profile_that_is_none_is_named(tmp_path: Path) -> None:
    found = msgspec.to_builtins(config("h")) | {"brokerProfile": "aws"}
    (tmp_path / "config.yaml").write_text(msgspec.json.encode(found).decode())
    with pytest.raises(ValueError, match=r"config\.yaml: Invalid enum value 'aws' - at `\$\.brokerProfile`"):
        read_config(tmp_path / "config.yaml")


async def sent_at(clock: ManualClock, pace: Pace, sizes: list[int]) -> list[tuple[float, int]]:
    """When each message of these sizes went; all of them wanted to at once."""
    sent: list[tuple[float, int]] = []

    async def send(size: int) -> None:
        await pace.turn(size)
        sent.append((clock.monotonic(), size))

    tasks = [asyncio.create_task(send(size)) for size in sizes]
    while not all(task.done() for task in tasks):
        await clock.advance(0.05)
    return sent


@pytest.mark.parametrize("sizes", [[100] * 450, [60 * KB] * 40, [100, 90 * KB] * 60, [130 * KB, *[100] * 300]])
async def test_no_second_has_more_than_it_may(sizes: list[int]) -> None:
    clock = ManualClock()
    aws = PROFILES["aws-iot"]
    sent = await sent_at(clock, Pace(aws.messages, aws.size, clock), sizes)
    assert [size for _, size in sent] == sizes, "whoever comes first goes first"
    for begin, _ in sent:
        within = [size for moment, size in sent if begin <= moment < begin + 1.0]
        assert len(within) <= aws.messages and sum(within) <= aws.size
    seconds = max(len(sizes) / aws.messages, sum(sizes) / aws.size)
    assert sent[-1][0] <= (seconds + 1) * WINDOW_SECONDS * 1.4, "the limits are used up, or nearly so"


async def test_a_message_larger_than_a_seconds_worth_goes_alone() -> None:
    clock = ManualClock()
    sent = await sent_at(clock, Pace(100, 512 * KB, clock), [100, 600 * KB, 100])
    moments = [moment for moment, _ in sent]
    assert moments[1] - moments[0] >= 1.0 and moments[2] - moments[1] >= 1.0


async def test_a_bundle_too_large_for_aws_iot_is_refused_with_its_size(maestro: Maestro) -> None:
    maestro.broker.profile = "aws-iot"
    async with maestro.server(max_bundle_bytes=400_000) as client:
        await client.create_consumer("mc01")
        with pytest.raises(MaestroError, match=r"the bundle has 2\d{5} bytes, and a message carries at most 131072"):
            await client.create_bundle("mc01", [config_map("large", {"k": "x" * 200_000})])
        made = await client.create_bundle("mc01", [config_map("small", {"k": "x" * 100_000})])
        with pytest.raises(
            MaestroError, match=r"the bundle has 1[34]\d{4} bytes, and a message carries at most 131072"
        ):
            await client.patch_bundle(made["id"], manifests=[config_map("small", {"k": "x" * 135_000})])


async def test_a_paced_server_sends_everything_and_keeps_little_under_way(maestro: Maestro) -> None:
    maestro.broker.profile = "aws-iot"
    async with maestro.server() as client, maestro.wire("mc01") as wire:
        server = maestro.servers[-1]
        assert server.source.broker.pace is not None
        await client.create_consumer("mc01")
        made = [await client.create_bundle("mc01", [config_map(f"c{number}")]) for number in range(130)]
        most, got = 0, set()

        async def everything() -> bool:
            nonlocal most
            most = max([most, *(len(lane.under_way) for lane in server.delivery._lanes.values())])
            while not wire.events.empty():
                got.add(wire.events.get_nowait().resource_id)
            return got >= {one["id"] for one in made}

        await eventually(everything, seconds=120)
        assert most <= PACED_WINDOW


DUE = """
INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, due_at)
SELECT $1 || '-' || n, $1 || '-' || n, 'old', $1, 1, '{}', '{"manifests":[]}', now() - $3::text::interval
FROM generate_series(1, $2::int) AS n
"""


async def test_only_what_finds_room_counts_as_sent_again(maestro: Maestro) -> None:
    """A broker that answers slowly, and more bundles than fit into the lane of one consumer: the others wait in the
    database as they are, and keep nobody else from being sent."""
    async with maestro.server() as client:
        for name in ("mc01", "mc02"):
            await client.create_consumer(name)
        sent: list[str] = []

        async def publish(event: object) -> int:
            sent.append(event.extensions["resourceid"])  # type: ignore[attr-defined]
            await asyncio.Event().wait()
            return 0

        server, held = maestro.servers[-1], ["mc01", "mc02"]
        server.delivery._held = list  # the server itself does not look after them
        connection = await connect(maestro.database)
        await connection.execute(DUE, "mc01", 4 * (WINDOW + LANE), "1 hour")
        await connection.execute(DUE, "mc02", 1, "1 minute")
        delivery = Delivery(server.bundles, publish, "maestro", held=lambda: held)
        scanning = asyncio.create_task(delivery.keep_scanning())
        try:

            async def the_other() -> bool:
                return "mc02-1" in sent

            await eventually(the_other, seconds=60)
            claimed = await connection.fetchval(
                "SELECT count(*) FROM resources WHERE consumer_name = 'mc01' AND attempts > 0"
            )
            assert claimed <= 2 * (WINDOW + LANE)
        finally:
            scanning.cancel()
            await asyncio.gather(scanning, return_exceptions=True)
            await delivery.close()
            await connection.close()


async def test_what_no_message_can_carry_is_not_published_and_says_why(maestro: Maestro) -> None:
    async with maestro.wire("mc01") as agent:
        with pytest.raises(NotPublished, match="not possible"):
            await agent.broker.publish("any", b"", [("ce-metadata", "x" * 70_000)])

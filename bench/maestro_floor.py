"""The least that any Maestro in Python could do: for each bundle one INSERT, one message, one UPDATE when the agent's
status comes. No API, no checks, no feed, no second delivery. On the same database server, broker and agents it says
what this machine, at this moment, makes of such work: the bench's baseline.

Run as a program: `maestro_floor.py MOUNT COUNT CONSUMER...`; begins at SIGUSR1, says when it has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from awscrt import mqtt5

from maestro_load import SPEC_BYTES, manifest
from regional.core.database import read_credentials
from regional.core.loop import run
from regional.core.mqtt import Broker
from regional.maestro.protocol import topics
from regional.maestro.protocol.bundles import spec_event
from regional.maestro.protocol.events import CREATE, STATUS, decode, encode

AT_ONCE = 16
TABLE = "CREATE TABLE floor (id text PRIMARY KEY, consumer text, spec text, status text, version int, sequence bigint)"


class Floor:
    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self.left = 0
        self.done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.broker = Broker(
            str(mount / "config.yaml"), lambda config: [config.topics.agent_events], self._receive, replica="floor"
        )

    async def connect(self) -> None:
        credentials = msgspec.to_builtins(read_credentials(self._mount))
        self._pool = await asyncpg.create_pool(**credentials, ssl="disable", min_size=8, max_size=8, reset=_nothing)
        await self._pool.execute(TABLE)
        while self.broker.dependency.reason:
            await asyncio.sleep(0.01)

    def _receive(self, packet: mqtt5.PublishPacket) -> None:
        properties = [(found.name, found.value) for found in packet.user_properties or ()]
        event = decode(properties, packet.content_type or "", bytes(packet.payload or b""))
        if event.subresource == STATUS and self.left:
            task = asyncio.create_task(self._store(event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store(self, event: Any) -> None:
        await self._pool.execute(
            "UPDATE floor SET status = $2, version = $3, sequence = $4 WHERE id = $1",
            *(event.resource_id, event.data.decode(), event.version, int(event.extensions["sequenceid"])),
        )
        self.left -= 1
        if not self.left:
            self.done.set()

    async def carry(self, count: int, consumers: list[str]) -> None:
        self.left = count
        config = self.broker.config
        assert config is not None
        places, prefix = itertools.cycle(consumers), f"floor-{secrets.token_hex(4)}"
        names = iter([(f"{prefix}-{number}", next(places)) for number in range(count)])

        async def work() -> None:
            for name, consumer in names:
                spec = msgspec.json.encode({"manifests": [manifest(name, size=SPEC_BYTES)]})
                await self._pool.execute("INSERT INTO floor VALUES ($1, $2, $3)", name, consumer, spec.decode())
                event = spec_event(
                    CREATE, source="maestro", consumer=consumer, resource_id=name, version=1, data=spec, metadata="{}"
                )
                message = encode(event)
                topic = topics.for_consumer(config.topics.source_events, consumer)
                await self.broker.publish(topic, message.payload, message.properties, message.content_type)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await self.done.wait()


async def _nothing(_: Any) -> None:
    pass


async def serve(mount: Path, count: int, consumers: list[str]) -> None:
    begin = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, begin.set)
    floor = Floor(mount)
    session = asyncio.create_task(floor.broker.keep_connected())
    await floor.connect()
    print("ready", flush=True)
    await begin.wait()
    await floor.carry(count, consumers)
    print("done", flush=True)
    session.cancel()
    await asyncio.sleep(60)  # until whoever counts our CPU has done so


if __name__ == "__main__":
    run(serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

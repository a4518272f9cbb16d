"""Simulated agents: one session each, with the certificate of its consumer. They apply nothing and say that they did.

Run as a program: `maestro_agents.py MOUNT...`, a directory for each consumer. A status is as long as a real one of a
small bundle; a delete is answered by `Deleting` and `Deleted`, as a real agent does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from awscrt import mqtt5

from regional.core.loop import run
from regional.core.mqtt import Broker, NotPublished
from regional.maestro.protocol import topics
from regional.maestro.protocol.bundles import spec_resync_events
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, UPDATE, Event, encode, event_type
from regional.maestro.protocol.sequence import SequenceIds

STATUS_BYTES = 2067


def conditions(*kinds: str) -> list[dict[str, Any]]:
    return [
        {
            "type": kind,
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": f"{kind}Complete",
            "message": f"{kind} manifest work complete",
        }
        for kind in kinds
    ]


def payload(*kinds: str, size: int = 0) -> bytes:
    """A status; with one manifest's, of so many bytes in all."""
    document: dict[str, Any] = {"conditions": conditions(*kinds)}
    if size:
        meta = {"ordinal": 0, "version": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "n"}
        value = {"name": "status", "fieldValue": {"type": "JsonRaw", "jsonRaw": ""}}
        document["resourceStatus"] = [
            {
                "resourceMeta": meta,
                "statusFeedback": {"values": [value]},
                "conditions": conditions("Applied", "Available"),
            }
        ]
        value["fieldValue"]["jsonRaw"] = "x" * max(0, size - len(msgspec.json.encode(document)))  # type: ignore[index]
    return msgspec.json.encode(document)


APPLIED = payload("Applied", "Available", size=STATUS_BYTES)
DELETING = payload("Applied", "Available", "Deleting")
DELETED = payload("Applied", "Available", "Deleting", "Deleted")


class Simulated:
    def __init__(self, mount: Path) -> None:
        self.name = (mount / "consumerName").read_text()
        self._sequence = SequenceIds()
        self._tasks: set[asyncio.Task[None]] = set()
        self.broker = Broker(
            str(mount / "config.yaml"),
            lambda config: [topics.for_consumer(config.topics.source_events, self.name)],
            self._receive,
            ready=self._ready,
        )

    def _ready(self) -> None:
        for event in spec_resync_events(f"{self.name}-agent", self.name, []):
            self._spawn(event)

    def _receive(self, packet: mqtt5.PublishPacket) -> None:
        found = {one.name: one.value for one in packet.user_properties or ()}
        if not found["ce-type"].startswith(_SPECS) or found["ce-type"].endswith(RESYNC):
            return
        for data in (DELETING, DELETED) if "ce-deletiontimestamp" in found else (APPLIED,):
            self._spawn(self._status(found, data))

    def _status(self, found: dict[str, str], data: bytes) -> Event:
        extensions = {
            "clustername": self.name,
            "originalsource": found["ce-source"],
            "resourceid": found["ce-resourceid"],
            "resourceversion": found["ce-resourceversion"],
            "sequenceid": str(self._sequence.next()),
            "statushash": "0" * 64,
            "metadata": found.get("ce-metadata", "{}"),
            "logtracing": found.get("ce-logtracing", "{}"),
        }
        kind = event_type(STATUS, UPDATE)
        return Event(source=f"{self.name}-work-agent", type=kind, extensions=extensions, data=data)

    def _spawn(self, event: Event) -> None:
        task = asyncio.create_task(self._send(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, event: Event) -> None:
        config = self.broker.config
        assert config is not None
        message = encode(event)
        topic = topics.for_consumer(config.topics.agent_events, self.name)
        try:
            await self.broker.publish(topic, message.payload, message.properties, message.content_type)
        except NotPublished:
            pass  # the server sends again what nobody has confirmed


_SPECS = event_type(SPEC, "")


async def serve(mounts: list[Path]) -> None:
    agents = [Simulated(mount) for mount in mounts]

    async def announce() -> None:
        while any(agent.broker.dependency.reason for agent in agents):
            await asyncio.sleep(0.01)
        print("ready", flush=True)

    await asyncio.gather(announce(), *(agent.broker.keep_connected() for agent in agents))


if __name__ == "__main__":
    run(serve([Path(argument) for argument in sys.argv[1:]]))

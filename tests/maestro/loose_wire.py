"""A broker in a test's hands: what is published stays on the wire until the test delivers, loses or repeats it.

It takes the place of the MQTT session alone; server and agent are the real ones and notice nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from awscrt import mqtt5

from regional.core.mqtt import NO_SUBSCRIBERS, Broker, NotPublished, read_config
from regional.maestro.protocol.events import Event, decode

DOWN, UP = "sourceevents", "agentevents"
"""To the agents and from them: how the topics of either way end."""


def event_of(packet: mqtt5.PublishPacket) -> Event:
    properties = [(found.name, found.value) for found in packet.user_properties or ()]
    return decode(properties, packet.content_type or "", packet.payload or b"")


class End(Broker):
    """One side's session: what a role knows of its broker, without the broker."""

    way = ""
    """Of what it receives."""

    def __init__(self, wire: LooseWire, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._wire = wire

    async def keep_connected(self) -> None:
        self.config = read_config(self._config_file)
        self.way = self._topics(self.config)[0].rpartition("/")[2]
        self._wire.ends.append(self)
        self.connect()
        try:
            await asyncio.Event().wait()
        finally:
            self._wire.ends.remove(self)

    def take(self, packet: mqtt5.PublishPacket) -> None:
        self._receive(packet)

    def connect(self) -> None:
        if not self._wire.cut[self.way]:
            self.dependency.up("the loose wire")
            self._ready()

    def disconnect(self) -> None:
        self.dependency.down("the wire is cut")

    async def publish(
        self, topic: str, payload: bytes, properties: Iterable[tuple[str, str]] = (), content_type: str = ""
    ) -> int:
        if not self.connected or self not in self._wire.ends:
            raise NotPublished("the wire is cut")
        packet = mqtt5.PublishPacket(
            topic=topic,
            payload=payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            content_type=content_type or None,
            user_properties=[mqtt5.UserProperty(name, value) for name, value in properties],
        )
        return await self._wire.published(packet)


class LooseWire:
    """`flowing`: each message arrives at once, as behind a good broker. Else it waits for `deliver`.

    A message outlives the session that it was sent in, which no broker does to an agent: what is late here is later
    than anything can be.
    """

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.begin()

    def begin(self) -> None:
        self.flowing = False
        self.waiting: dict[str, list[mqtt5.PublishPacket]] = {DOWN: [], UP: []}
        self.past: dict[str, list[mqtt5.PublishPacket]] = {DOWN: [], UP: []}
        """Everything ever published, for those who want to send it again."""
        self.cut = {DOWN: False, UP: False}
        """Whose session is cut: the one that receives this way."""
        self.before: Callable[[Event], Awaitable[None]] = _let_through
        """Awaited before a message is taken: a test may look, hold it back, or raise NotPublished."""

    def end(self, *arguments: Any, **options: Any) -> End:
        """What to put in the place of `Broker`."""
        return End(self, *arguments, **options)

    async def published(self, packet: mqtt5.PublishPacket) -> int:
        await self.before(event_of(packet))
        way = packet.topic.rpartition("/")[2]
        self.past[way].append(packet)
        if not self._listeners(way):
            return NO_SUBSCRIBERS
        self.waiting[way].append(packet)
        if self.flowing:
            self.deliver(way, len(self.waiting[way]) - 1)
        return 0

    def _listeners(self, way: str) -> list[End]:
        return [end for end in self.ends if end.way == way and end.connected]

    def deliver(self, way: str, index: int = 0, *, keep: bool = False) -> None:
        """To whoever listens now. Kept on the wire, it arrives once more some time."""
        waiting = self.waiting[way]
        packet = waiting[index] if keep else waiting.pop(index)
        for end in self._listeners(way):
            end.take(packet)

    def deliver_all(self) -> None:
        for way, waiting in self.waiting.items():
            while waiting:
                self.deliver(way)

    def repeat(self, way: str, packet: mqtt5.PublishPacket) -> None:
        for end in self._listeners(way):
            end.take(packet)

    def separate(self, way: str) -> None:
        """The side that receives this way loses its session, and gets no other before `join`."""
        self.cut[way] = True
        for end in self.ends:
            if end.way == way:
                end.disconnect()

    def join(self, way: str) -> None:
        """A new session, as after any loss of the former."""
        self.cut[way] = False
        for end in list(self.ends):
            if end.way == way:
                end.disconnect()
                end.connect()


async def _let_through(_: Event) -> None:
    pass

"""The server's end of the wire: what agents send comes in here, what they are asked goes out here.

A message counts only if the consumer in its topic (which the broker guards by certificate) is the one that it names.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import prometheus_client
from awscrt import mqtt5

from regional.core.database import still_wanted
from regional.core.mqtt import Broker, BrokerConfig, NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol import topics
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, Event, MalformedEvent, decode, encode
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.consumers import Consumers
from regional.maestro.server.statuses import Report, report_of

log = logging.getLogger(__name__)

SEEN_SECONDS = 5.0
_refused = prometheus_client.Counter(
    "maestro_server_refused_messages_total", "Messages of agents not used, by why", ["why"]
)


class Source:
    def __init__(
        self,
        config_file: str,
        *,
        source_id: str,
        replica: str,
        report: Callable[[Report], None],
        spec_resync: Callable[[Event], Coroutine[Any, Any, None]],
        connected: Callable[[], Coroutine[Any, Any, None]],
        heard_of: Callable[[str], None],
        consumers: Consumers,
    ) -> None:
        self._source_id = source_id
        self._report, self._spec_resync, self._connected = report, spec_resync, connected
        self._heard_of, self._consumers = heard_of, consumers
        self._seen: dict[str, str] = {}
        self._told: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.broker = Broker(config_file, _agent_topics, self._received, replica=replica, ready=self._ready)

    # -- out ---------------------------------------------------------------------------------------------------------

    async def publish(self, event: Event) -> int:
        """Raises NotPublished."""
        config = self.broker.config
        if config is None or not self.broker.connected:
            raise NotPublished(self.broker.dependency.reason or "no session with the broker")
        message = encode(event)
        topic = topics.for_consumer(config.topics.source_events, event.consumer)
        return await self.broker.publish(topic, message.payload, message.properties, message.content_type)

    # -- in ----------------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        self.once_at_a_time("session", self._connected)

    def _received(self, packet: mqtt5.PublishPacket) -> None:
        consumer = topics.consumer_of(packet.topic)
        properties = [(found.name, found.value) for found in packet.user_properties or ()]
        try:
            event = decode(properties, packet.content_type or "", packet.payload or b"")
            if not consumer or event.consumer != consumer:
                raise MalformedEvent(f"clustername {event.consumer[:63]!r} on the topic of {consumer!r}")
            self._use(event)
        except MalformedEvent as error:
            _refused.labels("malformed").inc()
            log.warning("a message was not used", extra={"topic": packet.topic, "reason": str(error)})
            return
        self._seen[consumer] = event.source
        self._heard_of(consumer)

    def _use(self, event: Event) -> None:
        if event.subresource == SPEC and event.action == RESYNC:
            self.once_at_a_time(f"resync {_part(event)}", lambda: self._spec_resync(event))
        elif event.subresource == STATUS and event.action != RESYNC:
            if event.extensions.get("originalsource") != self._source_id:
                raise MalformedEvent("originalsource is not this source")
            self._report(report_of(event))
        else:
            raise MalformedEvent(f"an agent does not send {event.type}")

    def once_at_a_time(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """An agent that asks again while it is being answered gets one more answer, however often it asked."""
        if key in self._running:
            self._again[key] = work
            return

        async def run() -> None:
            backoff = Backoff(0.1, 2.0)
            while True:
                try:
                    return await work()
                except FAILURES as error:
                    still_wanted()
                    log.warning("waits for the database", extra={"what": key, "reason": str(error)})
                    await backoff.pause()
                except NotPublished as error:
                    # A new session starts both resyncs anew.
                    return log.info("given up until the broker is back", extra={"what": key, "reason": str(error)})

        def ended(task: asyncio.Task[None]) -> None:
            self._running.pop(key, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("failed, and is not tried again", exc_info=error, extra={"what": key})
            if again := self._again.pop(key, None):
                self.once_at_a_time(key, again)

        self._running[key] = asyncio.create_task(run())
        self._running[key].add_done_callback(ended)

    async def keep_noting(self) -> None:
        """When each consumer was last heard of, written down at most every few seconds."""
        while True:
            now = time.monotonic()
            due = {name: agent for name, agent in self._seen.items() if now - self._told.get(name, -1e9) > SEEN_SECONDS}
            try:
                if due:
                    await self._consumers.seen(due)
                for name in due:
                    self._seen.pop(name, None)
                    self._told[name] = now
            except FAILURES as error:
                still_wanted()
                log.debug("last seen is not written down", extra={"reason": str(error)})
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        self._again.clear()
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


def _agent_topics(config: BrokerConfig) -> Sequence[str]:
    return [topics.checked(config.topics.agent_events)]


def _part(event: Event) -> str:
    return f"{event.consumer} {event.extensions.get('resyncfrom', '')}"

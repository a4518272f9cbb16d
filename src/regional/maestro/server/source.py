"""The server's end of the wire: what agents send comes in here, what they are asked goes out here.

A message counts only if the consumer in its topic (which the broker guards by certificate) is the one that it names.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import prometheus_client
from awscrt import mqtt5

from regional.core.database import still_wanted
from regional.core.mqtt import Broker, BrokerConfig, NotPublished
from regional.core.role import Backoff
from regional.maestro.protocol import topics
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, Event, MalformedEvent, decode, encode
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.consumers import Consumers, Sign
from regional.maestro.server.statuses import Report, report_of

log = logging.getLogger(__name__)

SEEN_SECONDS = 5.0
LONGEST_TEXT = 300
ABOUT_AGENT = ("agentversion", "clusterunreachable", "agentcertificate")
UNANSWERED_SECONDS = 60.0  # longer than it takes to notice that a replica is dead
UNANSWERED_BYTES = 16 * 1024 * 1024
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
        elsewhere: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`elsewhere` says of which consumers another replica takes care."""
        self._source_id = source_id
        self._report, self._spec_resync, self._connected = report, spec_resync, connected
        self._heard_of, self._consumers, self._elsewhere = heard_of, consumers, elsewhere
        self._unanswered: OrderedDict[str, tuple[float, Event]] = OrderedDict()
        self._unanswered_bytes = 0
        self._seen: dict[str, Sign] = {}
        self._absent: set[str] = set()
        self._missed: set[str] = set()
        self._said: dict[str, Sign] = {}
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
            elsewhere = self._elsewhere(consumer)
            if elsewhere:
                self._leave(event)
            else:
                self._use(event)
        except MalformedEvent as error:
            _refused.labels("malformed").inc()
            log.warning("a message was not used", extra={"topic": packet.topic, "reason": str(error)})
            return
        if not elsewhere:
            self._sign(consumer, event)
            self._heard_of(consumer)

    def _sign(self, consumer: str, event: Event) -> None:
        sign = Sign(_storable(event.source))
        if event.subresource == SPEC and not event.extensions.get("resyncfrom"):
            said = (_storable(event.extensions.get(name, "")) for name in ABOUT_AGENT)
            sign = Sign(sign.agent, *said)
            if self._said.get(consumer) != sign:
                self._said[consumer] = sign
                self._told.pop(consumer, None)  # news: written down at once
        self._seen[consumer] = sign.over(self._seen.get(consumer))
        if consumer in self._absent or consumer in self._missed:
            self._told.pop(consumer, None)
        self._absent.discard(consumer)
        self._missed.discard(consumer)

    def nobody_listens(self, consumer: str) -> None:
        """The broker says so of the consumer's topic."""
        self._absent.add(consumer)

    def _use(self, event: Event) -> None:
        if event.subresource == SPEC and event.action == RESYNC:
            self.once_at_a_time(f"resync {_part(event)}", lambda: self._spec_resync(event))
        elif event.subresource == STATUS and event.action != RESYNC:
            if event.extensions.get("originalsource") != self._source_id:
                raise MalformedEvent("originalsource is not this source")
            self._report(report_of(event))
        else:
            raise MalformedEvent(f"an agent does not send {event.type}")

    def _leave(self, event: Event) -> None:
        """To the replica that holds the consumer. If that one is dead, statuses are asked for by whoever comes after
        it; but an agent that asks what it lacks may ask only once, so its question is kept for a while."""
        if event.subresource == SPEC and event.action == RESYNC:
            now = time.monotonic()
            self._answered(_part(event))
            self._unanswered[_part(event)] = (now, event)
            self._unanswered_bytes += _weight(event)
            while self._unanswered:  # oldest first
                part, (asked, _) = next(iter(self._unanswered.items()))
                if now - asked < UNANSWERED_SECONDS and self._unanswered_bytes <= UNANSWERED_BYTES:
                    break
                self._answered(part)

    def _answered(self, part: str) -> None:
        if found := self._unanswered.pop(part, None):
            self._unanswered_bytes -= _weight(found[1])

    def taken_over(self, consumers: Collection[str]) -> None:
        """These are ours now: what their agents have asked lately is answered, perhaps once more."""
        for part, (asked, event) in list(self._unanswered.items()):
            if event.consumer in consumers:
                self._answered(part)
                if time.monotonic() - asked < UNANSWERED_SECONDS:
                    self._use(event)

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
                except MalformedEvent as error:
                    _refused.labels("malformed").inc()
                    return log.warning("a message was not used", extra={"what": key, "reason": str(error)})
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
            due = {name: sign for name, sign in self._seen.items() if now - self._told.get(name, -1e9) > SEEN_SECONDS}
            try:
                if due:
                    await self._consumers.seen(due)
                for name, sign in due.items():
                    if self._seen.get(name) is sign:
                        del self._seen[name]
                    self._told[name] = now
                if absent := set(self._absent):
                    await self._consumers.absent(absent)
                    self._missed |= absent & self._absent
                    self._absent -= absent
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


def _storable(text: str) -> str:
    return text.replace("\x00", "")[:LONGEST_TEXT]


def _weight(event: Event) -> int:
    return len(event.data) + 1000


def _part(event: Event) -> str:
    return f"{event.consumer} {event.extensions.get('resyncfrom', '')}"

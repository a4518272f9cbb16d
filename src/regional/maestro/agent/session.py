"""The agent's end of the wire: specs come in here, statuses and resyncs go out.

The broker keeps nothing for an agent that is away, so each new session begins with a resync, which says what the agent
has; the server sends what it lacks. The resync is repeated every minute: it also tells the server that we live, and
mends whatever was lost in between. No answer to a resync ever means that something is to be deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import prometheus_client
from awscrt import mqtt5

from regional import __version__
from regional.core.mqtt import Broker, BrokerConfig, NotPublished
from regional.core.role import Dependency
from regional.maestro.agent.works import Taken, Work, Works
from regional.maestro.protocol import topics
from regional.maestro.protocol.bundles import StatusHashes, decode_data, spec_resync_events
from regional.maestro.protocol.events import RESYNC, SPEC, STATUS, Event, MalformedEvent, decode, encode
from regional.maestro.protocol.tracing import request_id_of

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
_received = prometheus_client.Counter("maestro_agent_events_total", "Events received, by what they did", ["taken"])


class Session:
    def __init__(
        self,
        config_file: str,
        *,
        consumer: str,
        agent_id: str,
        works: Works,
        changed: Callable[[str], None],
        status_due: Callable[[str], None],
        hash_of: Callable[[Work], str],
        server_has: Callable[[int], None],
        dependency: Dependency,
    ) -> None:
        """`changed` hears of works with a new spec or a deletion, `status_due` of those whose status is to be sent,
        `server_has` of the newest sequence id that the server knows."""
        self._consumer, self._agent_id, self._works = consumer, agent_id, works
        self._changed, self._status_due, self._hash_of = changed, status_due, hash_of
        self._server_has = server_has
        self._resync = asyncio.Event()
        self._unreachable = ""
        self.broker = Broker(config_file, self._own_topics, self._take, ready=self._ready, dependency=dependency)

    def _own_topics(self, config: BrokerConfig) -> Sequence[str]:
        """Only what is addressed to this consumer, whatever wildcard the configuration has."""
        return [topics.for_consumer(topics.checked(config.topics.source_events), self._consumer)]

    # -- out ---------------------------------------------------------------------------------------------------------

    async def publish(self, event: Event) -> int:
        """Raises NotPublished."""
        config = self.broker.config
        if config is None or not self.broker.connected:
            raise NotPublished(self.broker.dependency.reason or "no session with the broker")
        message = encode(event)
        topic = topics.for_consumer(config.topics.agent_events, self._consumer)
        return await self.broker.publish(topic, message.payload, message.properties, message.content_type)

    def _ready(self) -> None:
        self._resync.set()
        for work in self._works:  # what the broker did not take while it was away
            self._status_due(work.id)

    def cluster_is(self, unreachable: str) -> None:
        """Why the cluster's API cannot be reached, "" if it can. The server hears of a change at once."""
        changed = bool(unreachable) != bool(self._unreachable)
        self._unreachable = unreachable
        if changed:
            self._resync.set()

    async def keep_resyncing(self) -> None:
        while True:
            # Not wait_for, in any loop here: on Python 3.11 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS * random.uniform(0.9, 1.1)):
                    await self._resync.wait()
            self._resync.clear()
            try:
                versions = [(work.id, work.generation) for work in self._works]
                for event in spec_resync_events(
                    self._agent_id,
                    self._consumer,
                    versions,
                    agent_version=f"regional/{__version__}",
                    unreachable=self._unreachable,
                    certificate=self.broker.certificate_id,
                ):
                    await self.publish(event)
                log.debug("resync asked for", extra={"works": len(versions)})
            except NotPublished as error:
                log.debug("no resync", extra={"reason": str(error)})
            await asyncio.sleep(0.1)  # requests that come together are answered together

    # -- in ----------------------------------------------------------------------------------------------------------

    def _take(self, packet: mqtt5.PublishPacket) -> None:
        properties = [(found.name, found.value) for found in packet.user_properties or ()]
        try:
            event = decode(properties, packet.content_type or "", packet.payload or b"")
            if event.consumer != self._consumer:
                raise MalformedEvent(f"it is for {event.consumer[:63]!r}")
            if event.subresource == SPEC and event.action != RESYNC:
                self._spec(event)
            elif event.subresource == STATUS and event.action == RESYNC:
                self._status_resync(event)
            else:
                raise MalformedEvent(f"a server does not send {event.type}")
        except MalformedEvent as error:
            _received.labels("malformed").inc()
            log.warning("an event was not used", extra={"topic": packet.topic, "reason": str(error)})

    def _spec(self, event: Event) -> None:
        taken = self._works.take(event, time.monotonic())
        known = event.extensions.get("knownsequence", "")
        if known.isdecimal() and len(known) < 20:
            self._server_has(int(known))
        _received.labels(taken.value).inc()
        about: dict[str, Any] = {
            "resource": event.resource_id,
            "version": event.version,
            "request_id": request_id_of(event.extensions),
            "taken": taken.value,
        }
        log.info("bundle received", extra=about)
        work = self._works.get(event.resource_id)
        if taken in (Taken.NEWS, Taken.DELETION) or (taken is Taken.REPEATED and work and work.deletion):
            self._changed(event.resource_id)
        elif taken is Taken.REPEATED and work is not None:
            work.status_due = True  # who sends it again has no status of it
            self._status_due(event.resource_id)

    def _status_resync(self, event: Event) -> None:
        hashes: StatusHashes = decode_data(event.data or b"{}", StatusHashes)
        known = {found.resource_id: found.hash for found in hashes.status_hashes or []}
        for work in self._works:
            if not known or (work.id in known and known[work.id] != self._hash_of(work)):
                work.status_due = work.resync = True
                self._status_due(work.id)
        # A server that asks has just come back: it may have missed our own question.
        self._resync.set()

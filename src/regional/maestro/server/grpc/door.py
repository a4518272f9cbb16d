"""The gRPC service itself: TLS (1.2 or 1.3: gRPC's library for Python cannot be told otherwise), who may come in, and
the two calls.

A certificate's name says who a client is, and a rule says for which sources it may publish and subscribe. Without
certificates (on one machine, or behind a mesh) whoever reaches the port may speak for any source.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio
import msgspec
import prometheus_client

from regional.maestro.protocol.cloudevents_pb import SERVICE, CloudEvent, Empty, PublishRequest, SubscriptionRequest
from regional.maestro.protocol.events import MalformedEvent
from regional.maestro.protocol.grpc_binding import decode
from regional.maestro.server.feed import CursorExpired
from regional.maestro.server.grpc.credentials import Credentials
from regional.maestro.server.grpc.publishing import Publishing, Refused
from regional.maestro.server.grpc.subscribing import Subscribing

log = logging.getLogger(__name__)

LARGEST_REQUEST = 4 * 1024 * 1024
MOST_SUBSCRIBERS = 200
STOP_SECONDS = 2.0
_calls = prometheus_client.Counter("maestro_server_grpc_calls_total", "gRPC calls, by their outcome", ["call", "code"])
_subscribers = prometheus_client.Gauge("maestro_server_grpc_subscribers", "Open subscriptions")


class Grants(msgspec.Struct, frozen=True):
    """Which sources a client's certificate may speak for: `name=source,source;name=*`. Empty: its own name only."""

    sources: dict[str, list[str]] = {}

    @classmethod
    def parse(cls, text: str) -> Grants:
        """Raises ValueError."""
        sources: dict[str, list[str]] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            name, separator, listed = part.partition("=")
            if not separator or not name.strip() or not listed.strip():
                raise ValueError(f"{part!r} is not <certificate name>=<source>,…")
            sources[name.strip()] = [source.strip() for source in listed.split(",")]
        return cls(sources)

    def allow(self, name: str, source: str) -> bool:
        granted = self.sources.get(name, [name])
        return source in granted or "*" in granted


class Door:
    def __init__(self, publishing: Publishing, subscribing: Subscribing, credentials: Credentials, grants: Grants):
        self._publishing, self._subscribing = publishing, subscribing
        self._credentials, self._grants = credentials, grants
        self._open = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self, address: str, port: int) -> AsyncIterator[None]:
        if fault := self._credentials.faults():
            raise ValueError(f"gRPC: {fault}")
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers(),))
        credentials = self._credentials.loaded()
        where = f"{address}:{port}"
        self.port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
        await server.start()
        try:
            yield
        finally:
            await server.stop(STOP_SECONDS)

    def _handlers(self) -> Any:
        methods = {
            "Publish": grpc.unary_unary_rpc_method_handler(
                self._publish, PublishRequest.FromString, Empty.SerializeToString
            ),
            "Subscribe": grpc.unary_stream_rpc_method_handler(
                self._subscribe, SubscriptionRequest.FromString, CloudEvent.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _publish(self, request: Any, context: Any) -> Any:
        try:
            event = decode(request.event)
            self._check(context, event.source, "publish")
            await self._publishing.publish(event)
        except MalformedEvent as error:
            text = f"failed to convert protobuf to cloudevent: {error}"
            await self._refuse(context, "Publish", grpc.StatusCode.INVALID_ARGUMENT, text)
        except Refused as error:
            await self._refuse(context, "Publish", error.code, str(error))
        _calls.labels("Publish", "OK").inc()
        return Empty()

    async def _subscribe(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            self._check(context, request.source, "subscribe")
        except Refused as error:
            await self._refuse(context, "Subscribe", error.code, str(error))
        if self._open >= MOST_SUBSCRIBERS:
            text = f"there are {MOST_SUBSCRIBERS} subscriptions already"
            await self._refuse(context, "Subscribe", grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        # At once: clients wait for it before they do anything else.
        await context.send_initial_metadata((("subscription-id", str(uuid.uuid4())),))
        self._open += 1
        _subscribers.set(self._open)
        try:
            async with contextlib.aclosing(self._subscribing.messages(request.source)) as messages:  # type: ignore[type-var]
                async for message in messages:
                    yield message
        except CursorExpired:
            # A client that is thrown out comes back, and asks for every status that it lacks.
            text = "the database was away for too long, or is another: subscribe again"
            await self._refuse(context, "Subscribe", grpc.StatusCode.UNAVAILABLE, text)
        finally:
            self._open -= 1
            _subscribers.set(self._open)

    async def _refuse(self, context: Any, call: str, code: grpc.StatusCode, text: str) -> None:
        _calls.labels(call, code.name).inc()
        log.info("a call was refused", extra={"call": call, "code": code.name, "reason": text[:300]})
        await context.abort(code, text[:8000])

    def _check(self, context: Any, source: str, doing: str) -> None:
        """Raises Refused."""
        if not self._credentials.client_ca:
            return
        names = _names(context)
        if not any(self._grants.allow(name, source) for name in names):
            text = f"unauthorized to {doing} the event from source {source[:128]}"
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, text)


def _names(context: Any) -> Sequence[str]:
    return [name.decode(errors="replace") for name in context.auth_context().get("x509_common_name", [])]


_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_REQUEST),
    ("grpc.max_send_message_length", LARGEST_REQUEST),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

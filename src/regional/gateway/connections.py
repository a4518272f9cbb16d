"""One client's connection: what uvicorn leaves to a proxy in front of it, and nobody stands in front of the edge.

A request's head has a size and a time, an answer that is not taken has one too, and there is a limit of connections:
a client that is slow, on purpose or not, costs the others nothing. What is not HTTP is told so in the edge's own form.
"""

from __future__ import annotations

import asyncio
from typing import Any

import prometheus_client
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regional.gateway import refusals
from regional.gateway.refusals import Refusal

HEAD_BYTES = 64 << 10  # what is read at all; the edge refuses less than that
HEAD_SECONDS = 15.0  # from the first byte of a request, or from the start of the connection
TAKE_SECONDS = 30.0  # an answer that nobody reads
FAREWELL_SECONDS = 0.2
CONNECTIONS = 2000

_open = prometheus_client.Gauge("gateway_connections", "Open connections of clients")
_cut = prometheus_client.Counter("gateway_connections_cut_total", "Connections ended by the edge", ["reason"])


class EdgeProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_body = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None

    # -- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _open.set(len(self.connections))
        if len(self.connections) > CONNECTIONS:
            self._cut("too many connections")
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        self.resume_writing()
        super().connection_lost(exc)
        _open.set(len(self.connections))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self._in_body:
            self._head_bytes += len(data)  # before the parser sees it: it keeps half a header of any length
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES:
            _cut.labels("head too large").inc()
            self._say(refusals.headers_too_large(HEAD_BYTES))
        elif self.cycle is None or self.cycle.response_complete:
            # The next head, or the rest of a body that was refused: neither may take forever.
            self._expect_head()

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is None or self.cycle.response_complete:
            # Closing waits for the client's half of the TLS farewell; an idle one may never send it.
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    # -- heads -------------------------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self._head_arrived()
        self._head_bytes, self._in_body = 0, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def _expect_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._cut, "slow request")

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def send_400_response(self, msg: str) -> None:
        _cut.labels("not HTTP").inc()
        self._say(refusals.bad_request("Bad Request"))

    def _say(self, refusal: Refusal) -> None:
        self._head_bytes = 0
        body = refusal.body()
        lines = (
            STATUS_LINE[refusal.status],
            b"content-type: application/json\r\n",
            b"content-length: %d\r\n" % len(body),
            b"x-amzn-errortype: %s\r\n" % refusal.error_type.encode(),
            b"connection: close\r\n\r\n",
            body,
        )
        self.transport.write(b"".join(lines))
        self.transport.close()

    # -- answers -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._take_timer is None:
            self._take_timer = self.loop.call_later(TAKE_SECONDS, self._cut, "slow reader")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

    def _cut(self, reason: str) -> None:
        """At once: closing in order would wait for a client that does not read."""
        _cut.labels(reason).inc()
        self.transport.abort()

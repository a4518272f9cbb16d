"""One client's connection: HTTP/1.1 as uvicorn parses and keeps it, answered without ASGI in between.

ASGI costs more than the answer to a small read (a scope, two messages and an event for each request), and two tasks
for each watch. Here a request is handed over whole, an answer is one write, and a watch is pushed: its stream says
when there is something, and the connection takes it when it is its turn and the client has room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regional.kube.apiserver.pushing import Pushed, Turns, framed
from regional.kube.messages import Response

log = logging.getLogger(__name__)

JOINED = 1 << 14  # up to here head and body are copied together: a TLS record of its own costs more than the copy
EARLY = 1 << 16  # of a body: to read more of it, its sender must be one who may ask this at all
HEAD_LIMIT = (1 << 20) + (1 << 12)  # the real server's: bytes of a head, or between the parts of a body
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class Received(msgspec.Struct):
    """A request as it came in: the target with its query, names of headers in lower case."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    oversize: bool  # the body was larger than allowed, and is not here
    state: dict[str, Any]  # what is known of the connection


class Application(Protocol):
    body_limit: int
    turns: Turns

    async def __call__(self, received: Received) -> Response: ...

    async def refusal(self, received: Received) -> Response | None:
        """What a request is refused with, whatever its body; None if it depends on that."""


class Exchange:
    """One request and its answer. Some names are those by which uvicorn's protocol knows its own cycle."""

    __slots__ = (
        "awaited",
        "begun",
        "body",
        "chunked",
        "disconnected",
        "due",
        "examined",
        "headers",
        "keep_alive",
        "leave",
        "message_event",
        "method",
        "oversize",
        "push",
        "read",
        "response_complete",
        "target",
        "waiting",
    )

    def __init__(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], *, keep_alive: bool, chunked: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = bytearray()
        self.read = False  # to its end
        self.oversize = False
        self.examined = False  # its sender is (being) asked for
        self.begun = False  # it is being answered: what may still come of its body is read and forgotten
        self.due = False  # every earlier request of this connection is answered
        self.awaited = False  # the client wants to be told to go on before it sends the body
        self.keep_alive = keep_alive
        self.chunked = chunked  # a stream may be; else it ends with the connection
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NOBODY_WAITS
        self.leave: Callable[[], None] | None = None  # to be called when the answer is out, or nobody wants it
        self.push: _Push | None = None
        self.waiting: asyncio.Task[Any] | None = None  # for the next piece of a stream

    def left(self) -> None:
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


class _NobodyWaits:
    def set(self) -> None:
        pass


_NOBODY_WAITS = _NobodyWaits()


class DirectProtocol(HttpToolsProtocol):
    """`config.app` is an `Application`."""

    cycle: Exchange | None  # type: ignore[assignment]
    _current: Exchange | None = None  # whose turn it is; `cycle` is the last one read

    @property
    def _app(self) -> Application:
        app: Application = self.config.app  # type: ignore[assignment]
        return app

    _silent = 0  # bytes that came since there was a head, or a piece of a body, to be had from them
    _last_words = 0  # the status that is the last answer here, since what came cannot be understood

    # --- the request ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._last_words or self.transport.is_closing():
            return  # what comes after the last answer is no request
        self._unset_keepalive_if_required()
        self._silent += len(data)
        while data:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = data[upgrade.args[0] :]  # nobody changes the protocol: what follows is the next request
            except httptools.HttpParserError:
                self._give_up(400)
                return
        if self._silent > HEAD_LIMIT:
            self._give_up(431)

    def _give_up(self, status: int) -> None:
        """The whole requests before are answered first: their clients would take the refusal for the answer."""
        self._last_words = status
        if self.pipeline and not self.pipeline[0][0].read:  # type: ignore[attr-defined]
            self.pipeline.popleft()
        current = self._current
        if current is None or current.response_complete or not (current.read or current.oversize):
            self._close_saying(status)

    def _close_saying(self, status: int) -> None:
        line = STATUS_LINE[status]
        text = line.strip().partition(b" ")[2]
        head = b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
        self.transport.write(head % (line, len(text), text))
        self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.scope = {"headers": self.headers, "state": self.app_state}  # type: ignore[typeddict-item]

    def on_headers_complete(self) -> None:
        method = self.scope["method"] = self.parser.get_method().decode("ascii")
        if self.parser.should_upgrade():
            if any(
                name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
                for name, value in self.headers
            ):
                # The parser takes the head for all of it, and would read the body as the next request.
                raise ValueError("a request that asks for another protocol has no body")
            if self._should_upgrade():
                return
        self._silent = 0
        modern = self.parser.get_http_version() != "1.0"
        announced, hosts = _examined(self.headers)
        if modern and hosts != 1:
            raise ValueError("a request names one host")
        before = self.cycle
        keep_alive = modern and self.parser.should_keep_alive()
        exchange = self.cycle = Exchange(method, self.url, self.headers, keep_alive=keep_alive, chunked=modern)
        exchange.oversize = announced > self._app.body_limit
        exchange.awaited = self.expect_100_continue
        self.headers = []  # what may follow the body says nothing about the request
        if before is not None and not before.response_complete:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, None))  # type: ignore[arg-type]
            return
        exchange.due, self._current = True, exchange
        if exchange.oversize:
            self._begin(exchange)
        elif exchange.awaited:
            self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        exchange = self.cycle
        if exchange is None or exchange.oversize or exchange.begun:
            return
        exchange.body += body
        if len(exchange.body) > self._app.body_limit:
            exchange.oversize = True
            exchange.body = bytearray()
            if exchange.due:
                self._begin(exchange)
        elif len(exchange.body) > EARLY and exchange.due and not exchange.examined:
            exchange.examined = True
            self._keep(self._examine(exchange))

    def on_message_complete(self) -> None:
        self._silent = 0
        exchange = self.cycle
        if exchange is None or exchange.read:
            return
        exchange.read = True
        if exchange.due and not exchange.begun:
            self._begin(exchange)

    def _start_asgi_task(self, exchange: Exchange, _: Any) -> None:  # type: ignore[override]
        """uvicorn's word for: the requests before this one in the pipeline are answered."""
        exchange.due, self._current = True, exchange
        if exchange.read or exchange.oversize:
            self._begin(exchange)
        elif exchange.awaited and not exchange.body:
            self.transport.write(_CONTINUE)

    def _begin(self, exchange: Exchange) -> None:
        exchange.begun = True
        self._keep(self._answer_when_read(exchange))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _examine(self, exchange: Exchange) -> None:
        """Strangers' bodies are not kept in memory: who may not ask this is told so without them."""
        received = Received(exchange.method, exchange.target, exchange.headers, b"", False, self.app_state)
        response = await self._app.refusal(received)
        if response is not None and not exchange.begun:
            exchange.begun, exchange.body = True, bytearray()
            assert isinstance(response.body, bytes)
            if response.headers.pop("connection", "") == "close":
                exchange.keep_alive = False
            self._send_whole(exchange, response, response.body)

    # --- the answer ----------------------------------------------------------------------------------------------

    async def _answer_when_read(self, exchange: Exchange) -> None:
        """One who asks and asks and does not read is not answered into memory."""
        if self.flow.write_paused:
            await self.flow.drain()
        if not exchange.disconnected:
            await self._answer(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        body, exchange.body = bytes(exchange.body), bytearray()
        try:
            response = await self._app(
                Received(exchange.method, exchange.target, exchange.headers, body, exchange.oversize, self.app_state)
            )
            content = response.body
            exchange.leave = response.leave
            if response.headers.pop("connection", "") == "close":
                exchange.keep_alive = False
            if isinstance(content, bytes):
                self._send_whole(exchange, response, content)
            elif exchange.disconnected:
                exchange.left()
                await close_stream(content)
            elif exchange.method == "HEAD":
                await close_stream(content)
                self.transport.write(self._head(exchange, response, None))
                self.finish(exchange)
            elif isinstance(content, Pushed):
                self.transport.write(self._head(exchange, response, None))
                exchange.push = _Push(self, exchange, content)
            else:
                await self._pump(exchange, response, content)
        except Exception:
            log.exception("an answer could not be sent", extra={"method": exchange.method})
            self.transport.close()

    def _head(self, exchange: Exchange, response: Response, length: int | None) -> bytes:
        """Without a length the answer comes in chunks."""
        lines = [STATUS_LINE[response.status]]
        lines += [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in response.headers.items()]
        lines += [_warning(text) for text in response.warnings]
        if length is not None:
            lines.append(b"content-length: %d\r\n" % length)
        elif response.status != 304 and exchange.chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n" if exchange.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(lines)

    def _send_whole(self, exchange: Exchange, response: Response, body: bytes) -> None:
        if exchange.disconnected:
            exchange.left()
            return
        head = self._head(exchange, response, None if response.status == 304 else len(body))
        if exchange.method == "HEAD" or response.status == 304:
            self.transport.write(head)
        elif len(body) <= JOINED:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        self.finish(exchange)

    async def _pump(self, exchange: Exchange, response: Response, stream: AsyncIterator[bytes]) -> None:
        """A stream that is waited for: the wait is cancelled when the client leaves."""
        exchange.waiting = asyncio.current_task()
        try:
            self.transport.write(self._head(exchange, response, None))
            async for chunk in stream:
                if chunk:
                    self.transport.write(framed(chunk) if exchange.chunked else chunk)
                if self.flow.write_paused:
                    await self.flow.drain()
            exchange.waiting = None
            self.finish_stream(exchange)
        finally:
            exchange.waiting = None
            await close_stream(stream)

    def finish_stream(self, exchange: Exchange) -> None:
        if exchange.chunked:
            self.transport.write(_LAST_CHUNK)
        self.finish(exchange)

    def finish(self, exchange: Exchange) -> None:
        exchange.response_complete = True
        exchange.left()
        if not exchange.keep_alive:
            self.transport.close()
        elif self._last_words and not self.pipeline:
            self._close_saying(self._last_words)
        self.on_response_complete()

    # --- the connection ------------------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._current is not None and self._current.push is not None:
            self._current.push.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn forgets it if the connection was reset
        exchange = self._current
        if exchange is None or exchange.response_complete:
            return
        exchange.disconnected = True
        exchange.left()
        if exchange.push is not None:
            exchange.push.close()
        if exchange.waiting is not None:
            exchange.waiting.cancel()


class _Push:
    """One watch on its way to its client."""

    __slots__ = ("_exchange", "_protocol", "_queued", "_stream", "_turns")

    def __init__(self, protocol: DirectProtocol, exchange: Exchange, stream: Pushed) -> None:
        self._protocol = protocol
        self._exchange = exchange
        self._stream = stream
        self._turns = protocol._app.turns
        self._queued = False
        stream.notify(self.wake)
        self.wake()

    def wake(self) -> None:
        if not self._queued and not self._exchange.response_complete:
            self._queued = True
            self._turns.add(self._run)

    def close(self) -> None:
        self._stream.close()

    def _run(self) -> None:
        self._queued = False
        protocol, exchange = self._protocol, self._exchange
        try:
            while not (exchange.disconnected or protocol.flow.write_paused):
                chunk = self._stream.pull()
                if chunk is None:
                    protocol.finish_stream(exchange)
                    return
                if chunk:
                    protocol.transport.write(self._turns.framed(chunk) if exchange.chunked else chunk)
                if self._stream.idle:
                    return
        except Exception:
            log.exception("a watch broke", extra={"target": exchange.target.decode("latin-1")})
            self.close()
            protocol.transport.close()


async def close_stream(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _examined(headers: list[tuple[bytes, bytes]]) -> tuple[int, int]:
    """How long the body is to be, and how many hosts are named."""
    length = hosts = 0
    for name, value in headers:
        if name == b"content-length":
            length = int(value) if value.isdigit() else 0
        elif name == b"host":
            hosts += 1
    return length, hosts


def _warning(text: str) -> bytes:
    plain = "".join(char if char.isprintable() else " " for char in text)
    quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'warning: 299 - "{quoted}"\r\n'.encode("latin-1", "replace")

"""The edge as an ASGI application: prove the caller, then hand the request on, and say in one line what happened."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import prometheus_client

from regional.cloud.host.keys import KeyOwner
from regional.core.clock import Clock, SystemClock
from regional.gateway import refusals, sigv4
from regional.gateway.keyring import KeyRing, LookupFailed
from regional.gateway.passing import identifying, request_id_of, response_headers, upstream_headers
from regional.gateway.refusals import Refusal
from regional.gateway.upstream import Upstream

log = logging.getLogger(__name__)

SERVICE = "execute-api"
SPAN = "gateway.request"
BODY_LIMIT = 10 << 20
HEADER_LIMIT = 10_240
BODY_SECONDS = 30.0
IN_FLIGHT = 512
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_IDENTIFIER = re.compile(r"/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:/|\Z)")

_requests = prometheus_client.Counter("gateway_requests_total", "Requests answered", ["method", "status"])
_refused = prometheus_client.Counter("gateway_refusals_total", "Requests that the edge itself refused", ["error"])
_duration = prometheus_client.Histogram("gateway_request_duration_seconds", "From the head to the answer's last byte")
_in_flight = prometheus_client.Gauge("gateway_requests_in_flight", "Requests being answered")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """Where this edge stands: names it answers to, AWS region of its signatures, stage in front of its paths."""

    hosts: Sequence[str]
    region: str
    stage: str = "prod"
    secret_file: Path


class _Exchange:
    """One request and what became of it, for the log."""

    def __init__(self, scope: Scope, request_id: str) -> None:
        self.scope = scope
        self.request_id = request_id
        self.account = ""
        self.status = 0
        self.error = ""
        found = _IDENTIFIER.search(scope["path"])
        self.resource = found[1] if found else ""
        self.started = time.perf_counter()

    @property
    def source_ip(self) -> str:
        return str((self.scope.get("client") or ("",))[0])

    def report(self) -> None:
        taken = time.perf_counter() - self.started
        method = self.scope["method"] if self.scope["method"] in _METHODS else "other"
        _requests.labels(method, str(self.status)).inc()
        _duration.observe(taken)
        line = {
            "span": SPAN,
            "request_id": self.request_id,
            "account": self.account,
            "method": self.scope["method"],
            "path": self.scope["path"],
            "resource": self.resource,
            "status": self.status,
            "ms": round(taken * 1000, 2),
            "source_ip": self.source_ip,
        }
        log.info("request", extra=line | ({"refused": self.error} if self.error else {}))


class _ClientLeft(Exception):
    pass


class Gateway:
    def __init__(self, edge: Edge, keys: KeyRing, upstream: Upstream, clock: Clock | None = None) -> None:
        self._edge = edge
        self._keys = keys
        self._upstream = upstream
        self._clock = clock or SystemClock()
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, request_id_of(scope["headers"]))
        self._answering += 1
        _in_flight.inc()
        try:
            if self._answering > IN_FLIGHT:
                raise refusals.too_many()
            await self._serve(exchange, receive, send)
        except _ClientLeft:
            exchange.error = "client left"
        except Refusal as refusal:
            await self._refuse(exchange, refusal, send)
        except Exception:
            log.exception("request failed", extra={"request_id": exchange.request_id})
            if exchange.status:
                raise  # in the middle of an answer: only a broken connection tells the client the truth
            await self._refuse(exchange, refusals.internal(), send)
        finally:
            self._answering -= 1
            _in_flight.dec()
            exchange.report()

    async def _serve(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        scope, headers = exchange.scope, exchange.scope["headers"]
        path, query = _target(scope)
        self._check_limits(path, query, headers)
        self._check_host(headers)
        claim = sigv4.claim_of(headers, query)
        sigv4.check_scope(claim, self._edge.region, SERVICE)
        sigv4.check_time(claim, self._clock.now())
        owner = await self._owner(claim)
        body = await _read_body(receive)
        sigv4.check_signature(
            claim, owner.secret_key, scope["method"], path, query, headers, hashlib.sha256(body).hexdigest()
        )
        exchange.account = owner.account
        passing = upstream_headers(
            headers,
            owner,
            source_ip=exchange.source_ip,
            request_id=exchange.request_id,
            secret=self._edge.secret_file.read_text().strip(),
        )
        if claim.expires is not None:
            query = sigv4.without_claim(query)
        target = self._without_stage(path).decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        async with self._upstream.answer(scope["method"], target, passing, body) as answer:
            await self._pass_back(exchange, answer, receive, send)

    def _check_limits(self, path: bytes, query: bytes, headers: sigv4.Headers) -> None:
        size = len(path) + len(query) + sum(len(name) + len(value) for name, value in headers)
        if size > HEADER_LIMIT:
            raise refusals.headers_too_large(HEADER_LIMIT)
        declared = sigv4.single(headers, b"content-length")
        if declared.isdigit() and int(declared) > BODY_LIMIT:
            raise refusals.too_large(BODY_LIMIT)

    def _check_host(self, headers: sigv4.Headers) -> None:
        """A signature is over the host's name: one that was made for another edge is worth nothing here."""
        host = sigv4.single(headers, b"host").decode("latin-1").lower()
        if host not in self._edge.hosts and host.rpartition(":")[0] not in self._edge.hosts:
            raise refusals.forbidden()

    async def _owner(self, claim: sigv4.Claim) -> KeyOwner:
        try:
            owner = await self._keys.owner_of(claim.access_key)
        except LookupFailed as failure:
            log.error("keys cannot be looked up", extra={"reason": str(failure)})
            raise refusals.internal() from None
        # A session's token belongs to its key; a user's key has none.
        if owner is None or not hmac.compare_digest(owner.session_token.encode(), claim.session_token.encode()):
            raise refusals.unknown_key()
        return owner

    def _without_stage(self, path: bytes) -> bytes:
        stage = b"/" + self._edge.stage.encode()
        if path == stage:
            return b"/"
        return path.removeprefix(stage) if path.startswith(stage + b"/") else path

    async def _pass_back(
        self, exchange: _Exchange, answer: aiohttp.ClientResponse, receive: Receive, send: Send
    ) -> None:
        exchange.status = answer.status
        exchange.resource = answer.headers.get("x-resource-id", exchange.resource)[:64]
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": response_headers(answer.headers.items(), exchange.request_id),
            }
        )
        leaving = asyncio.create_task(_left(receive))
        try:
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if leaving.done():
                    raise _ClientLeft  # nothing that is sent now arrives, and nothing would say so
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # In the middle of an answer only a connection that breaks off tells the client the truth.
            exchange.error = "upstream broke off"
            log.warning(exchange.error, extra={"request_id": exchange.request_id, "reason": str(error)})
            return
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, exchange: _Exchange, refusal: Refusal, send: Send) -> None:
        exchange.status, exchange.error = refusal.status, refusal.error_type
        _refused.labels(refusal.error_type).inc()
        body = refusal.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-amzn-errortype", refusal.error_type.encode()),
            *identifying(exchange.request_id),
        ]
        if refusal.status == 408:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if exchange.scope["method"] == "HEAD" else body})


def _target(scope: Scope) -> tuple[bytes, bytes]:
    """Path (normalised, still encoded) and query, as bytes of the wire."""
    raw: bytes = scope["raw_path"].partition(b"?")[0]
    if not raw.startswith(b"/"):
        raise refusals.bad_request("the request's target is not a path")
    return sigv4.normal_path(raw), scope["query_string"]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _ClientLeft
                body += message.get("body", b"")
                if len(body) > BODY_LIMIT:
                    raise refusals.too_large(BODY_LIMIT)
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise refusals.body_too_slow() from None

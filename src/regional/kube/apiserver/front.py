"""HTTPS in front of `ApiServer.handle`: who is at the other end, and what the bytes ask for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec
import uvicorn

from regional.core.upgrades import Upgrade, Upgrades
from regional.core.web import serving
from regional.kube.apiserver.authn import authenticate
from regional.kube.apiserver.clients import PATIENCE, SWEEP_SECONDS, ClientConnection, Peer, end_the_overdue
from regional.kube.apiserver.connections import Received, close_stream
from regional.kube.apiserver.entries import encode
from regional.kube.apiserver.errors import StatusError, bad_request, too_large
from regional.kube.apiserver.limits import DEFAULT_LIMITS, Limits, Shares, Turnstile, too_many_requests
from regional.kube.apiserver.pushing import Turns
from regional.kube.apiserver.server import BODY_LIMIT, ApiServer, signed
from regional.kube.messages import Request, Response, User

KEEP_ALIVE_SECONDS = 300  # longer than clients keep idle connections: they should be the ones who close


class Place(msgspec.Struct, gc=False):
    """Where a request goes: the cluster that serves it, and what that cluster knows of the client's certificate."""

    server: ApiServer
    path: str
    certificate: User | None
    turnstile: Turnstile
    cluster: str = ""


class Elsewhere(Exception):
    """There is no cluster behind this path."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class Switchboard(Protocol):
    shares: Shares | None

    async def place(self, peer: Peer, path: str) -> Place:
        """Raises StatusError or Elsewhere."""


class OneCluster:
    """The switchboard of a process that serves a single cluster."""

    shares: Shares | None = None

    def __init__(self, server: ApiServer, limits: Limits = DEFAULT_LIMITS) -> None:
        self._server = server
        self._turnstile = Turnstile(limits)

    async def place(self, peer: Peer, path: str) -> Place:
        return Place(self._server, path, peer.user, self._turnstile)


def tls_context(pki: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    # Clients may be trusted through other authorities than the one behind our own certificate (hosted clusters).
    clients = pki / "client-ca.crt"
    context.load_verify_locations(clients if clients.exists() else pki / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@contextlib.asynccontextmanager
async def listening(
    server: ApiServer, pki: Path, address: str = "", limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[uvicorn.Server]:
    """`address` is where to listen, if that is not the address the server tells its clients."""
    async with answering(OneCluster(server, limits), tls_context(pki), address or server.address, server.port) as door:
        yield door


@contextlib.asynccontextmanager
async def answering(
    switchboard: Switchboard, tls: ssl.SSLContext, address: str, port: int, patience: float = PATIENCE
) -> AsyncIterator[uvicorn.Server]:
    upgrades = Upgrades(_is_stream, functools.partial(_upgrade, switchboard))
    async with serving(
        Front(switchboard),
        address,
        port,
        tls=tls,
        http=upgrades.protocol(ClientConnection),
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=True,
    ) as running:
        sweeping = asyncio.create_task(end_the_overdue(running, patience, min(SWEEP_SECONDS, patience / 4)))
        try:
            yield running
        finally:
            sweeping.cancel()
            await upgrades.close()


def _is_stream(target: bytes) -> bool:
    parts = [part for part in unquote(target.partition(b"?")[0].decode("latin-1")).split("/") if part]
    return parts[-3:-2] == ["pods"] and parts[-1] in ("exec", "attach", "portforward")


async def _upgrade(switchboard: Switchboard, upgrade: Upgrade) -> None:
    with contextlib.ExitStack() as leaving:
        leaving.callback(upgrade.state["peer"].leave)  # the connection that knew when its client goes was handed over
        response = await _answer_to(switchboard, upgrade, leaving)
        if response.tunnel is not None:
            await response.tunnel(upgrade.reader, upgrade.writer)
            return
        if not isinstance(response.body, bytes):  # a watch: whoever asks for it so gets none
            await close_stream(response.body)
            response = _refusal(bad_request("the request cannot be upgraded"))
        assert isinstance(response.body, bytes)
        upgrade.refuse(response.status, http.HTTPStatus(response.status).phrase, response.headers, response.body)


async def _answer_to(switchboard: Switchboard, upgrade: Upgrade, leaving: contextlib.ExitStack) -> Response:
    try:
        place = await switchboard.place(upgrade.state["peer"], upgrade.path)
        user = authenticate(upgrade.headers, place.certificate, place.server.tokens)
    except StatusError as error:
        return _refusal(error)
    except Elsewhere as elsewhere:
        return elsewhere.response
    request = Request(upgrade.method, place.path, upgrade.query, upgrade.headers, b"", user, upgradable=True)
    ticket = place.turnstile.enter(request, user)
    if ticket is None:
        return too_many_requests()
    leaving.callback(ticket.leave)
    return await place.server.handle(request)


class Front:
    """From a request's bytes to `ApiServer.handle`, and from its refusals to their documents."""

    body_limit = BODY_LIMIT

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard
        self.turns = Turns()

    async def __call__(self, received: Received) -> Response:
        placed = await self._placed(received)
        if isinstance(placed, Response):
            return placed
        place, request = placed
        ticket = place.turnstile.enter(request, request.user)
        if ticket is None:
            return too_many_requests()
        try:
            response = await self._handle(place, request)
        except BaseException:
            ticket.leave()
            raise
        response.leave = ticket.leave
        return response

    async def refusal(self, received: Received) -> Response | None:
        placed = await self._placed(received)
        if isinstance(placed, Response):
            return placed
        place, request = placed
        return place.server.refusal(request)

    async def _placed(self, received: Received) -> tuple[Place, Request] | Response:
        try:
            path, _, query = _origin_form(received.target).decode("latin-1").partition("?")
            place = await self._switchboard.place(received.state["peer"], unquote(path))
            return place, _request(place, query, received)
        except StatusError as error:
            return _refusal(error)
        except Elsewhere as elsewhere:
            return elsewhere.response

    async def _handle(self, place: Place, request: Request) -> Response:
        shares = self._switchboard.shares
        if shares is None:
            return await place.server.handle(request)
        await shares.take(place.cluster)
        try:
            return await place.server.handle(request)
        finally:
            shares.give_back(place.cluster)


def _request(place: Place, query: str, received: Received) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in received.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}\n{value}" if name in headers else value
    user = authenticate(headers, place.certificate, place.server.tokens)
    if received.oversize:
        raise too_large(BODY_LIMIT)
    parameters = parse_qsl(query, keep_blank_values=True) if query else []
    return Request(received.method, place.path, parameters, headers, received.body, user)


def _refusal(error: StatusError) -> Response:
    headers = {"content-type": "application/json"} | error.headers
    return signed(Response(error.code, headers, encode(error.document())))


def _origin_form(target: bytes) -> bytes:
    """A target may be a whole URL, for proxies' sake."""
    if target.startswith(b"/"):
        return target
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise bad_request("the request's target is no URL") from None
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")

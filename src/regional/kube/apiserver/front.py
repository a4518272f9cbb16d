"""HTTPS in front of `ApiServer.handle`: a raw ASGI application on uvicorn, certificates read once each."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regional.core.web import serving
from regional.kube.apiserver.authn import authenticate, certificate_user
from regional.kube.apiserver.entries import encode
from regional.kube.apiserver.errors import StatusError, too_large
from regional.kube.apiserver.server import BODY_LIMIT, ApiServer
from regional.kube.messages import Request, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

KEEP_ALIVE_SECONDS = 300  # longer than clients keep idle connections: they should be the ones who close


class CertificateProtocol(HttpToolsProtocol):
    """Keeps the peer's verified certificate where the application finds it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        user = certificate_user(tls.getpeercert(), tls.getpeercert(binary_form=True)) if tls is not None else None
        self.app_state = {**self.app_state, "certificate_user": user}


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
async def listening(server: ApiServer, pki: Path, address: str = "") -> AsyncIterator[uvicorn.Server]:
    """`address` is where to listen, if that is not the address the server tells its clients."""
    async with serving(
        application(server),
        address or server.address,
        server.port,
        tls=tls_context(pki),
        http=CertificateProtocol,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
        date_header=True,
    ) as running:
        yield running


def application(server: ApiServer) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            request = await _request(server, scope, receive)
        except StatusError as error:
            await _send_whole(
                send, Response(error.code, {"content-type": "application/json"}, encode(error.document()))
            )
            return
        if request is None:
            return
        response = await server.handle(request)
        if isinstance(response.body, bytes):
            await _send_whole(send, response)
        else:
            await _send_stream(receive, send, response)

    return app


async def _request(server: ApiServer, scope: Scope, receive: Receive) -> Request | None:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}\n{value}" if name in headers else value
    certificate = scope.get("state", {}).get("certificate_user")
    user = authenticate(headers, certificate, server.tokens)
    body = await _body(receive, headers)
    if body is None:
        return None
    path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return Request(scope["method"], path, query, headers, body, user)


async def _body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """None if the client went away."""
    if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > BODY_LIMIT:
        raise too_large(BODY_LIMIT)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_LIMIT:
            raise too_large(BODY_LIMIT)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _headers(response: Response, length: int | None) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    for text in response.warnings:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
        headers.append((b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace")))
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return headers


async def _send_whole(send: Send, response: Response) -> None:
    assert isinstance(response.body, bytes)
    length = None if response.status == 304 else len(response.body)
    await send({"type": "http.response.start", "status": response.status, "headers": _headers(response, length)})
    await send({"type": "http.response.body", "body": response.body})


async def _send_stream(receive: Receive, send: Send, response: Response) -> None:
    """Chunk by chunk until the stream ends or the client leaves; the headers go out before the first event."""
    assert not isinstance(response.body, bytes)
    stream = response.body
    await send({"type": "http.response.start", "status": response.status, "headers": _headers(response, None)})
    pump = asyncio.ensure_future(_pump(send, stream))
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait([pump, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (pump, gone):
            task.cancel()
        await asyncio.gather(pump, gone, return_exceptions=True)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


async def _pump(send: Send, stream: AsyncIterator[bytes]) -> None:
    async for chunk in stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

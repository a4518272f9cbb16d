"""How requests travel: over TLS to a server, or by a function call to one in the same process.

Pluggable, so that the controllers inside the API process need no socket and no second copy of the bytes, and so that
the same client code is what tests and pods use.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from regional.kube.client.errors import ApiUnreachable

Query = Sequence[tuple[str, str]]

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 60.0
SILENCE_SECONDS = 150.0
"""A watch with bookmarks speaks every minute; more than two minutes of silence is a dead peer."""
GET_ATTEMPTS = 4


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is read as it comes. Always close it."""

    status: int
    headers: dict[str, str]

    def chunks(self) -> AsyncIterator[bytes]: ...
    async def close(self) -> None: ...


class Transport(Protocol):
    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer: ...

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream: ...

    async def close(self) -> None: ...


class TokenFile:
    """A bearer token that its issuer replaces under our feet: read again whenever the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        with contextlib.suppress(OSError):
            facts = self._path.stat()
            stamp = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
            if stamp != self._stamp:
                self._token = self._path.read_text().strip()
                self._stamp = stamp
        return self._token


class HttpTransport:
    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        token: Callable[[], str] | None = None,
        server_name: str | None = None,
        connections: int = 64,
    ) -> None:
        self._server = server.rstrip("/")
        self._tls: ssl.SSLContext | bool = tls if tls is not None else True
        self._token = token
        self._server_name = server_name
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        return self._server

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # ThreadedResolver asks the loop, and the loop of a pod knows the cluster's names (core.loop).
            connector = aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=30, ssl=self._tls, resolver=aiohttp.ThreadedResolver()
            )
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        token = self._token() if self._token else ""
        return dict(headers) | ({"Authorization": f"Bearer {token}"} if token else {})

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        url = URL(self._server + path + ("?" + urlencode(query) if query else ""), encoded=True)
        return await self._open().request(
            method,
            url,
            headers=self._headers(headers),
            data=body,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._server_name,
        )

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._send(method, path, query, headers, body, timeout)
                async with response:
                    return Answer(response.status, _lowered(response), await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # Only a GET may be sent twice: nobody knows whether a write that got no answer happened.
                if method != "GET" or isinstance(error, TimeoutError) or attempt >= GET_ATTEMPTS:
                    raise self._unreachable(method, path, error) from error
            await asyncio.sleep(0.05 * 2 ** (attempt - 1))

    async def stream(self, method: str, path: str, query: Query, headers: Mapping[str, str]) -> Stream:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            response = await self._send(method, path, query, headers, None, timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(method, path, error) from error
        return _HttpStream(response, f"{method} {self._server}{path}")

    def _unreachable(self, method: str, path: str, error: BaseException) -> ApiUnreachable:
        return ApiUnreachable(f"{method} {self._server}{path}: {_why(error)}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _HttpStream:
    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self.status = response.status
        self.headers = _lowered(response)
        self._response = response
        self._what = what

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachable(f"{self._what}: {_why(error)}") from error

    async def close(self) -> None:
        # A stream is left in the middle: a TLS goodbye would wait for a peer that still sends.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


def _lowered(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the server's certificate is not trusted: {error.certificate_error}"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

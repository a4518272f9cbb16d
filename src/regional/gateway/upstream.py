"""The way to the Platform API, in the VPC link's role: kept-alive connections, one deadline, nothing repeated that may
have been done."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator

import aiohttp
from yarl import URL

from regional.core.role import Backoff
from regional.gateway import refusals

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 29.0
CONNECT_PATIENCE_SECONDS = 5.0
# Shorter than the API's own five seconds, so that a connection is rarely closed under a request.
_IDLE_SECONDS = 4.0


class Upstream:
    def __init__(self, base_url: str, deadline: float = DEADLINE_SECONDS) -> None:
        self._base = base_url.rstrip("/")
        self._deadline = deadline
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def answer(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises a Refusal if no answer comes. A refused connection is tried again: nothing was sent yet."""
        url = URL(self._base + target, encoded=True)
        loop = asyncio.get_running_loop()
        ending = loop.time() + self._deadline
        patient_until = loop.time() + CONNECT_PATIENCE_SECONDS
        backoff = Backoff(0.05, 0.5)
        while True:
            timeout = aiohttp.ClientTimeout(total=max(0.01, ending - loop.time()))
            try:
                content = io.BytesIO(body) if body else None  # a stream is written in pieces, with turns for others
                response = await self._open().request(
                    method, url, headers=headers, data=content, timeout=timeout, allow_redirects=False
                )
                break
            except TimeoutError:
                raise refusals.timed_out() from None
            except aiohttp.ClientConnectorError as error:
                if loop.time() >= patient_until:
                    log.warning("upstream not reachable", extra={"reason": str(error)})
                    raise refusals.bad_gateway() from None
                await backoff.pause()
            except (aiohttp.ClientError, OSError) as error:
                log.warning("upstream broke off", extra={"reason": str(error) or type(error).__name__})
                raise refusals.bad_gateway() from None
        async with response:
            yield response

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # ThreadedResolver asks the loop, and the loop knows the cluster's names (core.loop).
                connector=aiohttp.TCPConnector(
                    limit=256, keepalive_timeout=_IDLE_SECONDS, resolver=aiohttp.ThreadedResolver()
                ),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

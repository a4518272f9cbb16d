"""Whose key is it? Asks the AWS host's private look-up, and remembers the answer for a short while.

A key that was switched off is refused within seconds. While the host is away (it restarts in a second or two) callers
who were known a moment ago are let in on the last answer, and strangers wait.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from pathlib import Path

import aiohttp
import msgspec

from regional.cloud.host.keys import KeyOwner
from regional.core.clock import Clock, SystemClock
from regional.core.role import Backoff

log = logging.getLogger(__name__)

KNOWN_SECONDS = 10.0
UNKNOWN_SECONDS = 2.0
STALE_SECONDS = 300.0
PATIENCE_SECONDS = 5.0
LIMIT = 10_000
_ACCESS_KEY = re.compile(r"[A-Z0-9]{16,128}", re.ASCII)


class LookupFailed(Exception):
    """Nobody could say whose key it is."""


class _Remembered(msgspec.Struct, frozen=True):
    owner: KeyOwner | None
    at: float


class KeyRing:
    def __init__(self, endpoint: str, token_file: Path, clock: Clock | None = None) -> None:
        self._base = endpoint.rstrip("/") + "/_regional/keys/"
        self._token_file = token_file
        self._clock = clock or SystemClock()
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._asking: dict[str, asyncio.Task[KeyOwner | None]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def owner_of(self, access_key: str) -> KeyOwner | None:
        """None: there is no such key, or it is not active. Raises LookupFailed."""
        if not _ACCESS_KEY.fullmatch(access_key):
            return None
        known = self._remembered.get(access_key)
        age = self._clock.monotonic() - known.at if known else 0.0
        if known and age < (KNOWN_SECONDS if known.owner else UNKNOWN_SECONDS):
            return known.owner
        try:
            owner = await self._ask(access_key, patience=0.0 if known and known.owner else PATIENCE_SECONDS)
        except LookupFailed as failure:
            if known and known.owner and age < STALE_SECONDS:
                log.warning("key look-up failed, the last answer holds", extra={"reason": str(failure)})
                return known.owner
            raise
        self._remember(access_key, owner)
        return owner

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()

    def _remember(self, access_key: str, owner: KeyOwner | None) -> None:
        self._remembered[access_key] = _Remembered(owner, self._clock.monotonic())
        self._remembered.move_to_end(access_key)
        while len(self._remembered) > LIMIT:
            self._remembered.popitem(last=False)

    async def _ask(self, access_key: str, patience: float) -> KeyOwner | None:
        """One question for all who wait for the same answer."""
        task = self._asking.get(access_key)
        if task is None:
            task = asyncio.create_task(self._ask_patiently(access_key, patience))
            self._asking[access_key] = task
            task.add_done_callback(lambda _: self._asking.pop(access_key, None))
        return await asyncio.shield(task)

    async def _ask_patiently(self, access_key: str, patience: float) -> KeyOwner | None:
        deadline = self._clock.monotonic() + patience
        backoff = Backoff(0.05, 0.5)
        while True:
            try:
                return await self._ask_once(access_key)
            except LookupFailed:
                if self._clock.monotonic() >= deadline:
                    raise
                await backoff.pause()

    async def _ask_once(self, access_key: str) -> KeyOwner | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5, sock_connect=2))
        try:
            headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
            async with self._session.get(self._base + access_key, headers=headers) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LookupFailed(f"{self._base}: {error or type(error).__name__}") from None
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise LookupFailed(f"{self._base} answers {answer.status}")
        return msgspec.json.decode(body, type=KeyOwner)

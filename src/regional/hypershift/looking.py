"""Looking into guests: does the API answer through its Service, does its store take writes, is it furnished.

A look costs the guest a dozen requests, so its result is kept and taken again until something it depends on changes or
it is old. What is remembered here is only ever a shortcut: a new operator starts with an empty memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from regional.core.clock import Clock
from regional.hypershift.guest.connection import Access, GuestClient, Guests
from regional.hypershift.guest.content import furnish, glance
from regional.hypershift.guest.report import GuestReport
from regional.hypershift.guest.versions import Facts
from regional.hypershift.names import API_PORT
from regional.kube.client import ApiError
from regional.kube.objects import Key

log = logging.getLogger(__name__)
FRESH_SECONDS = 45.0
_KNOCKS, _KNOCK_PAUSE = 40, 0.01
_ANSWER_SECONDS, _FURNISH_SECONDS = 5.0, 20.0


class Look(msgspec.Struct, frozen=True):
    unreachable: str = ""
    store_problem: str = ""
    configured: str = ""
    report: GuestReport | None = None

    @property
    def fine(self) -> bool:
        return not (self.unreachable or self.store_problem or self.configured)


class _Memory(msgspec.Struct):
    depends_on: tuple[Any, ...]
    at: float
    look: Look


class Looker:
    def __init__(self, guests: Guests, clock: Clock) -> None:
        self._guests, self._clock = guests, clock
        self._memory: dict[Key, _Memory] = {}

    async def look(
        self, key: Key, access: Access, address: str, facts: Facts | None, depends_on: tuple[Any, ...] = ()
    ) -> Look:
        """Without facts nothing is written: a paused cluster is only looked at."""
        depends_on = (access.digest, facts, *depends_on)
        known = self._memory.get(key)
        if known is not None and known.look.fine and known.depends_on == depends_on and self._is_fresh(known):
            return known.look
        client = await self._guests.client(key, access)
        look = await self._ask(client, address, facts)
        if look.report is None and known is not None:
            look = msgspec.structs.replace(look, report=known.look.report)
        self._memory[key] = _Memory(depends_on, self._clock.monotonic(), look)
        return look

    def _is_fresh(self, known: _Memory) -> bool:
        return self._clock.monotonic() - known.at < FRESH_SECONDS

    def last_report(self, key: Key) -> GuestReport | None:
        known = self._memory.get(key)
        return known.look.report if known is not None else None

    def forget(self, key: Key) -> None:
        self._memory.pop(key, None)

    async def _ask(self, client: GuestClient, address: str, facts: Facts | None) -> Look:
        try:
            await _knock(address)
            async with asyncio.timeout(_ANSWER_SECONDS):
                status, _, body = await client.request("GET", "/readyz", query={"verbose": ""})
        except (ApiError, OSError, TimeoutError) as error:
            return Look(unreachable=str(error) or "no answer in time", configured="the guest's API does not answer")
        if status != 200:
            broken = "[-]etcd" in body.decode(errors="replace")
            problem = "the store refuses writes" if broken else ""
            return Look(f"/readyz answers {status}", problem, "the guest's API is not ready")
        try:
            async with asyncio.timeout(_FURNISH_SECONDS):
                if facts is None:
                    return Look(report=await glance(client))
                return Look(report=await furnish(client, facts, self._clock.now()))
        except (ApiError, TimeoutError) as error:
            return Look(configured=str(error) or "the guest's API answers too slowly")


async def _knock(address: str) -> None:
    """The proxy hears of a ready pod in the same moment as we do: give it one to open the Service's door."""
    for attempt in range(_KNOCKS):
        try:
            _, writer = await asyncio.open_connection(address, API_PORT)
        except OSError:
            if attempt == _KNOCKS - 1:
                raise
            await asyncio.sleep(_KNOCK_PAUSE)
        else:
            writer.close()
            return

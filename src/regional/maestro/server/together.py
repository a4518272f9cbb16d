"""Changes that come while others are being written are written together: one statement and one commit for all of them.

A change that comes alone is written at once. One that spoils its companions' statement is found by writing each of them
alone: what becomes of a change does not depend on who came with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import asyncpg

from regional.maestro.server.connection import FAILURES

MOST = 64
_LOST_RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

Item = TypeVar("Item")
Found = TypeVar("Found")


class Together(Generic[Item, Found]):
    def __init__(
        self, key: Callable[[Item], str], write: Callable[[list[Item]], Awaitable[Mapping[str, Found]]]
    ) -> None:
        """`write` gets changes in the order of their keys, no key twice, and says by key what came of those that were
        possible."""
        self._key, self._write = key, write
        self._waiting: list[tuple[Item, asyncio.Future[Found | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def do(self, item: Item) -> Found | None:
        """None if it was not possible. Raises what writing it alone raises."""
        done: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return await done

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write_some(self._next())
        finally:
            self._writing = None
            for _, done in self._waiting:  # only if this task is ended from outside
                done.cancel()
            self._waiting.clear()

    def _next(self) -> dict[str, tuple[Item, asyncio.Future[Found | None]]]:
        chosen: dict[str, tuple[Item, asyncio.Future[Found | None]]] = {}
        left = []
        for item, done in self._waiting:
            if done.done():  # whoever asked has gone
                continue
            if len(chosen) < MOST and self._key(item) not in chosen:
                chosen[self._key(item)] = item, done
            else:
                left.append((item, done))
        self._waiting = left
        return chosen

    async def _write_some(self, batch: dict[str, tuple[Item, asyncio.Future[Found | None]]]) -> None:
        try:
            found = await self._write([batch[key][0] for key in sorted(batch)])
        except Exception as error:
            if len(batch) > 1 and not (isinstance(error, FAILURES) and not isinstance(error, _LOST_RACES)):
                for key, one in batch.items():
                    await self._write_some({key: one})
                return
            for _, done in batch.values():
                if not done.done():
                    done.set_exception(error)
        else:
            for key, (_, done) in batch.items():
                if not done.done():
                    done.set_result(found.get(key))

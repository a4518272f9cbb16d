"""Changes that come at the same time share a statement and a commit, and none of them notices the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg
import pytest

from regional.maestro.client import MaestroError
from regional.maestro.server.together import MOST, Together
from tests.maestro.harness import Maestro, config_map, connect


class Book:
    """Where changes are written: a page for each statement. Waits to be let on."""

    def __init__(self) -> None:
        self.pages: list[list[str]] = []
        self.spoilt: dict[str, Exception] = {}
        self.open = asyncio.Event()

    async def write(self, several: list[str]) -> Mapping[str, str]:
        self.pages.append(several)
        await self.open.wait()
        for name, error in self.spoilt.items():
            if name in several:
                raise error
        return {name: name.upper() for name in several if name != "impossible"}


async def begun(book: Book, together: Together[str, str], first: str) -> asyncio.Task[str | None]:
    """The first change, whose statement is under way."""
    task = asyncio.create_task(together.do(first))
    while not book.pages:
        await asyncio.sleep(0)
    return task


async def waiting(together: Together[str, str], *names: str) -> list[asyncio.Task[str | None]]:
    tasks = [asyncio.create_task(together.do(name)) for name in names]
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_while_another_is_written_is_written_together() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    rest = await waiting(together, "d", "c", "impossible", "b")
    book.open.set()
    assert await first == "A"
    assert await asyncio.gather(*rest) == ["D", "C", None, "B"]
    assert book.pages == [["a"], ["b", "c", "d", "impossible"]]


async def test_two_changes_of_one_thing_are_written_one_after_the_other() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    rest = await waiting(together, "a", "b", "a")
    book.open.set()
    assert await asyncio.gather(first, *rest) == ["A", "A", "B", "A"]
    assert book.pages == [["a"], ["a", "b"], ["a"]]


async def test_one_statement_has_no_more_than_it_can_bear() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "first")
    rest = await waiting(together, *(f"{number:03}" for number in range(MOST + 5)))
    book.open.set()
    await asyncio.gather(first, *rest)
    assert [len(page) for page in book.pages] == [1, MOST, 5]


async def test_one_that_spoils_the_statement_fails_alone() -> None:
    book = Book()
    book.spoilt["bad"] = asyncpg.DataError("not a value")
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    rest = await waiting(together, "b", "bad", "c")
    book.open.set()
    found = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [str(one) for one in found] == ["A", "B", "not a value", "C"]


async def test_a_lost_race_is_run_again_one_by_one() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    rest = await waiting(together, "b", "c")
    write, book.spoilt["b"] = book.write, asyncpg.DeadlockDetectedError("deadlock detected")

    async def once(several: list[str]) -> Mapping[str, str]:
        if len(several) == 1:
            book.spoilt.clear()
        return await write(several)

    together._write = once
    book.open.set()
    assert await asyncio.gather(first, *rest) == ["A", "B", "C"]


async def test_a_lost_database_is_told_to_everyone_at_once() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    rest = await waiting(together, "b", "c")
    book.spoilt["b"] = ConnectionError("away")
    book.open.set()
    found = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [str(one) for one in found] == ["A", "away", "away"]
    assert len(book.pages) == 2, "asking for each alone would take as many time-outs"
    book.spoilt.clear()
    assert await together.do("d") == "D"


async def test_who_gives_up_does_not_hold_up_the_others() -> None:
    book = Book()
    together: Together[str, str] = Together(str, book.write)
    first = await begun(book, together, "a")
    gone, stays = await waiting(together, "b", "c")
    first.cancel()
    gone.cancel()
    await asyncio.sleep(0)
    book.open.set()
    assert await stays == "C"
    assert book.pages == [["a"], ["c"]]


async def test_each_of_many_clients_at_once_gets_its_own_answer(maestro: Maestro) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        taken = await client.create_bundle("mc01", [config_map("taken")], id="taken")
        requests = [
            *(client.create_bundle("mc01", [config_map(f"c{n}")], id=f"good-{n}") for n in range(20)),
            *(client.create_bundle("mc01", [config_map("same")], id="same") for _ in range(5)),
            *(client.create_bundle("nowhere", [config_map("x")], id=f"nowhere-{n}") for n in range(5)),
            *(client.create_bundle("mc01", [config_map(f"other{n}")], id="taken") for n in range(5)),
        ]
        found = await asyncio.gather(*requests, return_exceptions=True)
        assert [one["id"] for one in found[:25] if isinstance(one, dict)] == [f"good-{n}" for n in range(20)] + [
            "same"
        ] * 5
        assert {str(one) for one in found[25:30]} == {"Consumer with name='nowhere' not found (maestro-7)"}
        assert {str(one) for one in found[30:]} == {"This Resource already exists (maestro-6)"}
        connection = await connect(maestro.database)
        rows = await connection.fetch("SELECT resource_id, count(*) FROM events WHERE kind = 'spec' GROUP BY 1")
        await connection.close()
        written = ["taken", "same", *(f"good-{n}" for n in range(20))]
        assert sorted((row["resource_id"], row["count"]) for row in rows) == sorted((name, 1) for name in written)
        await asyncio.gather(*(client.delete_bundle(taken["id"]) for _ in range(5)), client.delete_bundle("good-1"))
        deleting = [item["id"] for item in (await client.list_bundles(size=100))["items"] if item.get("deleted_at")]
        assert sorted(deleting) == ["good-1", "taken"]
        with pytest.raises(MaestroError, match="under deletion"):
            await client.create_bundle("mc01", [config_map("taken")], id="taken")

"""Lists: pages that neither overlap nor leave out, both search dialects, and no reading of the whole table."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from regional.maestro.client import MaestroClient
from regional.maestro.server.bundles import _CLAIM, _UNCONFIRMED
from regional.maestro.server.rest.search import RESOURCES, order, where
from tests.maestro.harness import Maestro, config_map, connect


@pytest.fixture
async def client(maestro: Maestro) -> AsyncIterator[MaestroClient]:
    async with maestro.server() as made:
        for name in ("mc01", "mc02"):
            await made.create_consumer(name, {"zone": name})
        yield made


async def fill(client: MaestroClient, count: int) -> list[str]:
    async def one(number: int) -> str:
        made = await client.create_bundle(
            f"mc0{1 + number % 2}",
            [config_map(f"c{number}")],
            name=f"b{number:03}",
            source=f"s{number % 3}",
            metadata={"labels": {"parity": str(number % 2), "example.com/team": f"t{number % 5}"}},
        )
        found: str = made["id"]
        return found

    return list(await asyncio.gather(*(one(number) for number in range(count))))


async def names(client: MaestroClient, search: str) -> list[str]:
    return sorted(item["name"] for item in (await client.list_bundles(search=search, size=1000))["items"])


async def test_pages_of_any_size_and_order_together_are_everything_once(client: MaestroClient) -> None:
    ids = await fill(client, 23)
    for size in (1, 5, 23, 100):
        for order_by in ("", "name desc", "consumer_name, version desc", "updated_at asc"):
            found: list[str] = []
            page = 1
            while True:
                answer = await client.list_bundles(page=page, size=size, order_by=order_by)
                assert (answer["kind"], answer["page"], answer["total"]) == ("ResourceBundleList", page, 23)
                assert answer["size"] == len(answer["items"])
                if not answer["items"]:
                    break
                found += [item["id"] for item in answer["items"]]
                page += 1
            assert sorted(found) == sorted(ids)
    assert [item["name"] for item in (await client.list_bundles(order_by="name desc", size=2))["items"]] == [
        "b022",
        "b021",
    ]
    assert (await client.list_bundles(size=0))["total"] == 23
    assert (await client.list_bundles(page=99))["items"] == []


async def test_a_long_page_is_streamed_whole(client: MaestroClient) -> None:
    ids = await fill(client, 450)
    answer = await client.list_bundles(size=1000, order_by="name asc")
    assert (answer["size"], answer["total"]) == (450, 450)
    assert sorted(item["id"] for item in answer["items"]) == sorted(ids)
    assert [item["name"] for item in answer["items"]] == [f"b{number:03}" for number in range(450)]
    assert len(await client.all_bundles()) == 450


async def test_a_list_of_everything_takes_the_memory_of_a_part(client: MaestroClient, maestro: Maestro) -> None:
    """Excludes a server that reads all that is asked for before it answers: one list of 6,000 bundles took 1.9 GiB."""
    rows, size = 2000, 20_000
    connection = await connect(maestro.database)
    try:
        await connection.execute(
            "INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, status)"
            " SELECT 'b' || n, 'b' || n, 's', 'mc01', 1, '{}', '{\"manifests\":[]}',"
            """ '{"conditions":[{"type":"Applied","status":"True","message":"' || repeat('y', $2) || '"}]}'"""
            " FROM generate_series(1, $1::int) AS n",
            *(rows, size),
        )
    finally:
        await connection.close()
    received = 0
    tracemalloc.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{client.base_url}/resource-bundles?size=-1") as answer,
        ):
            assert answer.status == 200
            async for part in answer.content.iter_chunked(1 << 16):
                received += len(part)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received > rows * size
    assert peak < rows * size / 2


async def test_only_the_fields_that_are_asked_for_are_shown(client: MaestroClient) -> None:
    await fill(client, 1)
    (item,) = (await client.list_bundles(fields="name,metadata.labels.parity,delivery"))["items"]
    assert set(item) == {"id", "name", "metadata", "delivery"}
    assert item["metadata"] == {"labels": {"parity": "0"}}


@pytest.mark.parametrize(
    ("search", "matches"),
    [
        ("source='s1' and consumer_name='mc01'", lambda n: n % 3 == 1 and n % 2 == 0),
        ("source = 's1' and (consumer_name='mc01' or consumer_name = 'mc02')", lambda n: n % 3 == 1),
        ("payload->'metadata'->'labels'@>'{\"parity\":\"1\"}'", lambda n: n % 2 == 1),
        ("payload->'metadata'->'labels'->>'parity'='1'", lambda n: n % 2 == 1),
        ("payload->'metadata'->'labels'->>'example.com/team'in('t1','t2')", lambda n: n % 5 in (1, 2)),
        ("payload->'metadata'->'labels'->>'parity' not in ('1')", lambda n: n % 2 == 0),
        ("payload->'metadata'->'labels'->>'parity'<>'1'", lambda n: n % 2 == 0),
        ("payload->'metadata'->'labels'->>'parity'<>null", lambda n: True),
        ("payload->'metadata'->'labels'->>'it''s'='x'", lambda n: False),
        ("payload->'data'->'manifests'->'0'->>'kind' is null", lambda n: True),
        ("name like 'b00%' and not name = 'b003'", lambda n: n < 10 and n != 3),
        ("resources.name ilike 'B01%'", lambda n: 10 <= n < 20),
        ("version between 1 and 2 and deleted_at is null", lambda n: True),
        ("version > 1 or applied = true", lambda n: False),
        ("not_applied = true", lambda n: True),
        ("SOURCE = 's1' and Resources.Version = 1.0", lambda n: n % 3 == 1),
        ("version + 1 = 2 and version * 2 - 1 < 1.5", lambda n: True),
        ("version -1 = 0 and version % 2 = 1 and version/2 < 1", lambda n: True),
        ("version - -1 = 0", lambda n: False),
        ("name in ('b001', 'b002') AND created_at > '2020-01-01T00:00:00Z'", lambda n: n in (1, 2)),
        ("", lambda n: True),
    ],
)
async def test_both_search_dialects_find_what_they_say(client: MaestroClient, search: str, matches: Any) -> None:
    await fill(client, 12)
    assert await names(client, search) == [f"b{number:03}" for number in range(12) if matches(number)]


async def test_consumers_are_found_by_name_and_label(client: MaestroClient) -> None:
    assert [found["name"] for found in await client.consumers(search="name = 'mc02'")] == ["mc02"]
    assert [found["name"] for found in await client.consumers(search="labels->>'zone' = 'mc01'")] == ["mc01"]
    assert len(await client.consumers()) == 2


@pytest.mark.parametrize(
    "search",
    [
        "id = 'x'",
        "source = 's1' and consumer_name = 'mc01'",
        "consumer_name = 'mc01'",
        "source = 's1'",
        "payload->'metadata'->'labels'@>'{\"a\":\"b\"}'",
        "payload->'metadata'->'labels'->>'a' = 'b'",
        "payload->'metadata'->'labels'->>'a' in ('b', 'c')",
    ],
)
async def test_what_clients_search_for_is_read_by_an_index(
    client: MaestroClient, maestro: Maestro, search: str
) -> None:
    connection = await connect(maestro.database)
    try:
        await connection.execute("SET enable_seqscan = off")
        parameters: list[Any] = []
        condition = where(search, RESOURCES, parameters)
        statement = f"SELECT r.id FROM resources r WHERE {condition} ORDER BY {order('', RESOURCES, 'r.created_at')}"
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        rows = await connection.fetch(f"EXPLAIN {statement} LIMIT 100", *parameters)
        plan = "\n".join(row[0] for row in rows)
        conditions = [line.strip() for line in plan.splitlines() if "Cond:" in line]
        assert conditions and "Seq Scan" not in plan, plan
    finally:
        await connection.close()


async def test_what_the_server_asks_every_second_is_read_by_an_index(client: MaestroClient, maestro: Maestro) -> None:
    """The queries that a big table must not make slow."""
    await fill(client, 3)
    connection = await connect(maestro.database)
    try:
        await connection.execute("SET enable_seqscan = off")
        for statement, parameters in (
            (_CLAIM.format(state="NULL"), [300.0, 100, ["mc01"]]),
            (_CLAIM.format(state="NOT NULL"), [300.0, 100, None]),
            (_UNCONFIRMED, []),
        ):
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *parameters))
            assert "resources_due" in plan and "Seq Scan" not in plan, plan
    finally:
        await connection.close()


async def test_a_bundle_is_shown_with_the_contracts_fields(client: MaestroClient) -> None:
    await fill(client, 1)
    (item,) = (await client.list_bundles())["items"]
    assert set(item) >= {
        *("id", "kind", "href", "name", "consumer_name", "version", "created_at", "updated_at"),
        *("metadata", "manifests"),
    }
    assert (item["kind"], item["href"]) == ("ResourceBundle", f"/api/maestro/v1/resource-bundles/{item['id']}")
    assert "status" not in item and "deleted_at" not in item
    assert item["metadata"]["creationTimestamp"].endswith("Z")
    await client.delete_bundle(item["id"])
    (item,) = (await client.list_bundles())["items"]
    assert item["deleted_at"] and item["metadata"]["deletionTimestamp"]


SCHEMA_OF_OTHERS = {
    "consumers": {"id", "kind", "href", "name", "labels", "created_at", "updated_at"},
    "resource-bundles": {
        *("id", "kind", "href", "name", "consumer_name", "version", "created_at", "updated_at", "deleted_at"),
        *("metadata", "manifests", "delete_option", "manifest_configs", "status"),
    },
}


@pytest.mark.parametrize("path", SCHEMA_OF_OTHERS)
async def test_lists_hold_nothing_that_a_strict_client_refuses_unless_it_asks(client: MaestroClient, path: str) -> None:
    """Go's generated client takes a list for broken if an item has a field that its own schema lacks."""
    await fill(client, 1)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{client.base_url}/{path}") as answer:
            listed = await answer.json()
        async with session.get(f"{client.base_url}/{path}?additions=true") as answer:
            more = await answer.json()
    assert set(listed) == {"kind", "page", "size", "total", "items"}
    assert set(listed["items"][0]) <= SCHEMA_OF_OTHERS[path]
    assert set(more["items"][0]) > set(listed["items"][0])

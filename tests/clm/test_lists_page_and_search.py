"""Lists: pages, order, fields, search; and that the common ones are answered from an index."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from regional.clm.api import listing
from regional.clm.client import ClmClient
from tests.clm.conftest import Region, report
from tests.clm.test_bad_input_is_told import send

NAMES = [f"made{number:02}" for number in range(25)]


@pytest.fixture
async def many(clm: ClmClient) -> list[dict[str, Any]]:
    made = []
    for number, name in enumerate(NAMES):
        spec = {"tags": {"n": str(number)}, "count": number}
        tenant = clm.for_tenant("111" if number % 5 else "222")
        made.append(await tenant.create("Cluster", name, spec, labels={"env": "prod" if number % 2 else "dev"}))
    return made


async def names(region: Region, query: str) -> list[str]:
    answer = await send(region, "GET", f"/clusters?{query}")
    assert answer.status == 200, answer.body
    return [found["name"] for found in answer.body["items"]]


async def test_pages_are_newest_first_and_fit_together(clm: ClmClient, region: Region, many: Any) -> None:
    pages = [await names(region, f"size=10&page={page}") for page in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert [*itertools.chain(*pages)] == NAMES[::-1]
    answer = await send(region, "GET", "/clusters?size=10&page=3")
    assert {key: answer.body[key] for key in ("page", "size", "total")} == {"page": 3, "size": 5, "total": 25}


async def test_going_on_behind_a_resource_does_not_shift(clm: ClmClient, region: Region, many: Any) -> None:
    first = (await send(region, "GET", "/clusters?size=10")).body["items"]
    await clm.create("Cluster", "newer", {})
    assert await names(region, f"size=100&after={first[-1]['id']}") == NAMES[14::-1]
    assert [found["name"] async for found in clm.all("Cluster")] == ["newer", *NAMES[::-1]]


QUERIES: list[Any] = [
    ("order=name&size=3", NAMES[:3]),
    ("order=name desc&size=2", NAMES[:-3:-1]),
    ("order=generation,name asc&size=2", NAMES[:2]),
    ("search=name='made03'", ["made03"]),
    ("search=name in ['made03','made04']&order=name", ["made03", "made04"]),
    ("search=labels.env='dev' and spec.count<5&order=name", ["made00", "made02", "made04"]),
    ("search=spec.tags.n='7'", ["made07"]),
    ("search=not (spec.count between 1 and 24)", ["made00"]),
    ("search=name like 'made2%25' and labels.env != 'dev'&order=name", ["made21", "made23"]),
    ("search=tenancy='222'&order=name", NAMES[::5]),
    ("search=status.conditions.Reconciled='True'", []),
    ("search=deleted_time is not null", []),
]


async def test_order_and_search(region: Region, many: Any) -> None:
    for query, expected in QUERIES:
        assert await names(region, query) == expected, query


async def test_conditions_and_deletion_can_be_searched_for(clm: ClmClient, region: Region, many: Any) -> None:
    await clm.put_status("Cluster", many[4]["id"], report(1))
    assert await names(region, "search=status.conditions.Reconciled='True'") == ["made04"]
    await clm.delete("Cluster", many[6]["id"])
    assert await names(region, "search=deleted_time is not null") == ["made06"]


async def test_fields_choose_what_is_shown(region: Region, many: Any) -> None:
    answer = await send(region, "GET", "/clusters?size=1&fields=name,status.conditions.type")
    (item,) = answer.body["items"]
    assert set(item) == {"id", "name", "status"}
    assert item["status"] == {"conditions": [{"type": "Reconciled"}, {"type": "LastKnownReconciled"}]}


async def test_reports_and_history_are_paged(clm: ClmClient, region: Region) -> None:
    made = await clm.create("Cluster", "demo", {})
    for number in range(4):
        await clm.put_status("Cluster", made["id"], report(1) | {"adapter": f"adapter-{number}"})
        await clm.patch("Cluster", made["id"], spec={"count": number})
    for below, total in (("statuses", 4), ("history", 10)):
        whole = (await send(region, "GET", f"/clusters/{made['id']}/{below}")).body
        assert whole["total"] == total == len(whole["items"])
        parts = [
            (await send(region, "GET", f"/clusters/{made['id']}/{below}?size=3&page={page}")).body["items"]
            for page in range(1, 5)
        ]
        assert [*itertools.chain(*parts)] == whole["items"]


class Recording:
    """Passes on what a list asks of the database, and remembers it."""

    def __init__(self, connection: Any, asked: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._connection, self._asked = connection, asked

    async def fetchval(self, statement: str, *values: Any) -> Any:
        return await self._connection.fetchval(statement, *values)

    async def fetch(self, statement: str, *values: Any) -> Any:
        self._asked.append((statement, values))
        return await self._connection.fetch(statement, *values)


PLANS: list[Any] = [
    (listing.Scope("t5", "Cluster"), "", "resources_of_tenant"),
    (listing.Scope("", "Cluster"), "", "resources_by_age"),
    (listing.Scope("", "Cluster"), "search=name='name77'", "resources_by_name"),
    (listing.Scope("t27", "Cluster"), "search=name='name77'", "resources_by_name"),
    (listing.Scope("", "Cluster"), "search=labels.n='77'", "resources_labels"),
    (listing.Scope("", "Cluster"), "search=status.conditions.Reconciled='False'", "resources_conditions"),
    (listing.Scope("", ""), "search=id='01890000-0000-7000-8000-000000000077'", "resources_pkey"),
]


async def test_common_lists_are_answered_from_an_index(region: Region) -> None:
    async with region.connection() as connection:
        await connection.execute(
            "INSERT INTO resources SELECT ('01890000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'Cluster',"
            " 'name' || n, 't' || n % 50, NULL, NULL, 1, 1, '{}', jsonb_build_object('n', n::text),"
            " jsonb_build_array(jsonb_build_object('type', 'Reconciled', 'status',"
            " CASE WHEN n % 500 = 0 THEN 'False' ELSE 'True' END)),"
            " '', now() - n * interval '1 second', 'me', now(), 'me' FROM generate_series(1, 5000) AS n"
        )
        await connection.execute("ANALYZE resources")
        for scope, query, index in PLANS:
            asked: list[tuple[str, tuple[Any, ...]]] = []
            recording = Recording(connection, asked)
            rows, total = await listing.run(recording, scope, listing.listing_of(QueryParams(query)))
            assert rows
            assert total >= len(rows)
            ((statement, values),) = asked
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values))
            assert index in plan, plan

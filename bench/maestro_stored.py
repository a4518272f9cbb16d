"""Rows of the Maestro bench about what is stored: long lists, one more create among many, a flood of deletes.

The rows are put into the database by SQL, as long as real ones: half of bundles with one small object, half with many
(49 KB with their status).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

import msgspec

from maestro_agents import payload
from maestro_load import SPEC_BYTES, Connection, Watch, create, manifest, request
from maestro_machine import HTTP_PORT
from verdicts import Limit, p50

if TYPE_CHECKING:
    from maestro import Bench, Maestro

MS = 1e3
SMALL, LARGE = (SPEC_BYTES, 2_067), (30_771, 18_802)
PATIENCE = 300
_FILL = """
INSERT INTO resources (id, name, source, consumer_name, version, metadata, spec, status, status_version,
    status_sequence, status_hash, status_at, applied, created_at, deleted_at, due_at)
SELECT $1 || n, $1 || n, 'stored', $2, 1, '{"labels": {"app": "bench"}}', $3, $4, 1, 1, 'h', now(), true,
    now() + n * interval '1 microsecond', CASE WHEN $6 THEN now() END, CASE WHEN $6 THEN now() END
FROM generate_series(1, $5::int) AS n
"""


async def fill(maestro: Maestro, consumer: str, count: int, sizes: tuple[int, int], *, deleting: bool = False) -> None:
    spec, status = sizes
    # As hard to compress as real objects are: not at all would be unfair, all dots would be cheating.
    words = " ".join(secrets.token_hex(3) for _ in range(spec // 14)) * 2
    made = msgspec.json.encode({"manifests": [manifest("stored", words, spec)]}).decode()[:spec].rstrip("\\")
    if not made.endswith("]}"):
        made = msgspec.json.encode({"manifests": [manifest("stored", words[: spec - 170], 0)]}).decode()
    said = payload("Applied", "Available", size=status).decode()
    prefix = f"{secrets.token_hex(4)}-"
    await maestro.database.execute(_FILL, prefix, consumer, made, said, count, deleting, timeout=PATIENCE)
    await maestro.database.execute("VACUUM ANALYZE resources", timeout=PATIENCE)


async def lists(bench: Bench) -> None:
    """One consumer's bundles, and all of them."""
    each = bench.size.listed // bench.size.consumers
    async with bench.server() as maestro:
        for consumer in maestro.consumers:
            for sizes in (SMALL, LARGE):
                await fill(maestro, consumer, each // 2, sizes)
        connection = await Connection.to(maestro.address, HTTP_PORT)
        one = f"?size={each}&search=consumer_name%3D'{maestro.consumers[0]}'"
        everything = f"?size={each * bench.size.consumers}"
        maestro.server.forget_peak()
        for query, count, turns, limit, theirs in ((one, each, 5, 0.15, 0.85), (everything, each * 10, 2, 1.2, 9.4)):
            data = request("GET", f"/resource-bundles{query}")
            seconds, spent = [], maestro.server.cpu()
            for _ in range(turns):
                began = time.perf_counter()
                body = await connection.must(data)
                seconds.append(time.perf_counter() - began)
            found = p50(seconds)
            note = f"Go {theirs:g}: {theirs / found:.1f}×; {len(body) / 1e6:.0f} MB"
            bench.row(f"list {count}", "s", found, None, Limit(at_most=limit), note)
            bench.row("  CPU of it, server", "s", (maestro.server.cpu() - spent) / turns)
        bench.row("  server memory at most", "MB", maestro.server.peak(), None, Limit(at_most=200), "Go 1,970")
        connection.close()


async def one_more(bench: Bench) -> None:
    """Creates into an empty server and into a full one, in turns: the machine's moods fall on both."""
    size = bench.size
    async with bench.server() as empty, bench.server() as full:
        for consumer in full.consumers:
            await fill(full, consumer, size.stored // size.consumers, SMALL)
        costs: dict[str, list[float]] = {"empty": [], "full": []}
        for turn in range(size.turns + 1):
            for name, maestro in (("empty", empty), ("full", full)):
                names = [f"more-{turn}-{number}" for number in range(size.slice)]
                requests = [create(maestro.place(number), one) for number, one in enumerate(names)]

                async def work(maestro: Maestro = maestro, requests: list[bytes] = requests) -> None:
                    await maestro.client.all(requests)
                    await maestro.quiet()

                taken = await bench.spent(work, server=maestro.server, postgres=bench.machine.postgres)
                costs[name].append(sum(taken.cpu.values()) / size.slice * MS)
        ours, first = min(costs["full"][1:]), min(costs["empty"][1:])
        bench.row(f"one more create with {size.stored} stored: CPU", "ms", ours, first, Limit(at_most=1.2, ratio=True))


async def flood(bench: Bench) -> None:
    """Deletes that nobody has answered yet, all of one consumer; and creates for it."""
    async with bench.server() as maestro:
        consumer = maestro.consumers[0]
        await fill(maestro, consumer, bench.size.flood, SMALL, deleting=True)
        async with Watch(maestro.address, HTTP_PORT) as watch:
            while await maestro.database.fetchval("SELECT count(*) FROM tombstones") < min(500, bench.size.flood // 4):
                await asyncio.sleep(0.05)
            seconds = []
            for number in range(bench.size.turns * 3):
                name = f"new-{number}"
                began = time.perf_counter()
                await maestro.client.one(create(consumer, name))
                await watch.until_applied([(name, 1)])
                seconds.append(watch.applied[name, 1] - began)
                await asyncio.sleep(0.2)
            left = await maestro.database.fetchval("SELECT count(*) FROM resources WHERE deleted_at IS NOT NULL")
        note = f"worst of {len(seconds)}; {left} deletes were left"
        measure = f"create among {bench.size.flood} pending deletes"
        bench.row(measure, "s", max(seconds), None, Limit(at_most=1), note)

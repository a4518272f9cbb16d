"""Maestro's server and agent under load: `make bench-maestro`.

Real PostgreSQL with fsync, real Mosquitto, our server as a process; first with simulated agents, then with our agent on
our Kubernetes API. The sturdy figure is CPU per bundle: what else the machine does blurs it least. Beside each rate
stands what a bare program makes of the same messages and rows in the same run (`maestro_floor.py`), and in the notes
what the Go Maestro made of it on a machine of two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from maestro_cluster import with_our_agent
from maestro_load import Client, Watch, create, delete, request, update
from maestro_machine import HEALTH_PORT, HTTP_PORT, Machine, Program, listening, until
from maestro_stored import flood, lists, one_more
from regional.local.provisioner.mosquitto import SERVER_NAME
from verdicts import Limit, Row, Table, p50, p95

MS = 1e3
SPANS = {
    "accept": "accept: read and check the request",
    "maestro.commit": "commit: the bundle and its event",
    "maestro.publish": "publish: until the broker has it",
    "agent.apply": "apply: from the message to the objects",
    "maestro.status": "status: from the message to its commit",
}
CONNECTIONS = 16


@dataclass(frozen=True)
class Size:
    turns: int = 3
    consumers: int = 10
    bundles: int = 1_500
    singles: int = 200
    batch: int = 100
    batches: int = 3
    updated: int = 200
    deleted: int = 1_000
    listed: int = 6_000
    stored: int = 10_000
    slice: int = 500
    flood: int = 100_000
    applied: int = 600


QUICK = Size(1, 2, 40, 5, 10, 1, 5, 20, 40, 100, 20, 200, 10)


@dataclass
class Spent:
    """What a piece of work took: seconds, and CPU seconds of each program."""

    seconds: float
    cpu: dict[str, float]


class Maestro:
    """A server on a database of its own, with simulated agents."""

    def __init__(self, machine: Machine, consumers: Sequence[str]) -> None:
        self.machine, self.consumers = machine, consumers

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Maestro]:
        machine = self.machine
        self.files = await machine.database()
        mount = machine.mounted(SERVER_NAME, self.files)
        self.address = machine.address(HTTP_PORT, HEALTH_PORT, 8090)
        flags = ("--db-credentials-dir", str(mount), "--message-broker-config-file", str(mount / "config.yaml"))
        self.server = machine.role(SERVER_NAME, self.address, "--db-sslmode", "disable", *flags)
        listening(self.address, HTTP_PORT, self.server)
        self.client = await Client.to(self.address, HTTP_PORT, CONNECTIONS)
        self.database = await self._connected()
        try:
            for name in self.consumers:
                await self._first(request("POST", "/consumers", {"name": name}))
            yield self
        finally:
            self.client.close()
            await self.database.close()
            self.server.stop()

    async def _connected(self) -> asyncpg.Connection:
        files = self.files
        return await asyncpg.connect(
            host=files["db.host"],
            port=int(files["db.port"]),
            user=files["db.user"],
            password=files["db.password"],
            database=files["db.name"],
            ssl="disable",
        )

    async def _first(self, data: bytes) -> None:
        """Until the server has its database."""
        async with asyncio.timeout(60):
            while not await self.client.tried(data):
                await asyncio.sleep(0.05)

    async def quiet(self) -> None:
        """Nothing is unconfirmed."""
        async with asyncio.timeout(600):
            while await self.database.fetchval("SELECT EXISTS (SELECT 1 FROM resources WHERE due_at IS NOT NULL)"):
                await asyncio.sleep(0.01)

    def place(self, number: int) -> str:
        return self.consumers[number % len(self.consumers)]


class Bench:
    def __init__(self, machine: Machine, size: Size) -> None:
        self.machine, self.size = machine, size
        self.table = Table("Maestro", "ours", "bare")
        self.consumers = [f"mc{number:02}" for number in range(1, size.consumers + 1)]
        mounts = [str(machine.mounted(name)) for name in self.consumers]
        self.agents = machine.script("maestro_agents", *mounts)
        _said(self.agents, "ready")

    def row(
        self,
        measure: str,
        unit: str,
        ours: float,
        baseline: float | None = None,
        limit: Limit | None = None,
        note: str = "",
    ) -> None:
        self.table.add(Row(measure, unit, ours, baseline, limit or Limit(), note))

    def server(self, *consumers: str) -> contextlib.AbstractAsyncContextManager[Maestro]:
        """With the simulated agents' consumers, or with these."""
        return Maestro(self.machine, consumers or self.consumers).running()

    async def spent(self, work: Callable[[], Awaitable[object]], **programs: Program) -> Spent:
        before = {name: program.cpu() for name, program in programs.items()}
        began = time.perf_counter()
        await work()
        seconds = time.perf_counter() - began
        return Spent(seconds, {name: program.cpu() - before[name] for name, program in programs.items()})

    async def floor(self) -> Spent:
        """The same bundles by the bare program."""
        mount = self.machine.mounted(SERVER_NAME, await self.machine.database())
        program = self.machine.script("maestro_floor", str(mount), str(self.size.bundles), *self.consumers)
        _said(program, "ready")

        async def carry() -> None:
            program.process.send_signal(signal.SIGUSR1)
            while "done" not in program.log.read_text():
                await asyncio.sleep(0.01)

        taken = await self.spent(carry, server=program, postgres=self.machine.postgres)
        program.stop()
        return taken

    # -- what is measured --------------------------------------------------------------------------------------------

    async def burst(self) -> None:
        """Creates as fast as they are taken, until every status is stored. The best of some turns: what else the
        machine does can only make it worse."""
        count = self.size.bundles
        turns = [(await self._burst(), await self.floor()) for _ in range(self.size.turns)]
        ours, bare = ([turn[side] for turn in turns] for side in (0, 1))
        each = [min(sum(found.cpu.values()) for found in side) / count * MS for side in (ours, bare)]
        self.row("CPU per bundle, server + PostgreSQL", "ms", each[0], each[1], Limit(at_most=2.0), go(30.2, each[0]))
        for name in ("server", "postgres"):
            best, floor = (min(found.cpu[name] for found in side) / count * MS for side in (ours, bare))
            self.row(f"  {name}", "ms", best, floor)
        rate, floor = (count / min(found.seconds for found in side) for side in (ours, bare))
        self.row("burst of creates → Applied", "/s", rate, floor, Limit(at_least=400), go_rate(46.7, rate))
        self.row("server memory after it", "MB", self._resident, None, Limit(at_most=120), "Go 90–134")

    async def _burst(self) -> Spent:
        async with self.server() as maestro:
            count = self.size.bundles
            requests = [create(maestro.place(number), f"burst-{number}") for number in range(count)]
            await maestro.client.all([create(maestro.place(number), f"warm-{number}") for number in range(50)])
            await maestro.quiet()

            async def work() -> None:
                await maestro.client.all(requests)
                await maestro.quiet()

            taken = await self.spent(work, server=maestro.server, postgres=self.machine.postgres)
            self._resident = maestro.server.memory()
            return taken

    async def singles(self) -> None:
        """One bundle at a time, until the watch shows its status."""
        async with self.server() as maestro, Watch(maestro.address, HTTP_PORT) as watch:
            seconds = []
            for number in range(-5, self.size.singles):
                name = f"one-{number}"
                began = time.perf_counter()
                await maestro.client.one(create(maestro.place(number), name))
                await watch.until_applied([(name, 1)])
                seconds.append(watch.applied[name, 1] - began)
            seconds = seconds[5:]
            middle = p50(seconds) * MS
            self.row("one bundle at a time, p50", "ms", middle, None, Limit(at_most=15), go(21, middle))
            self.row("  p95", "ms", p95(seconds) * MS)
            self.breakdown(maestro.server.lines(), middle)

    def breakdown(self, lines: Sequence[dict[str, Any]], whole: float) -> None:
        """Where the time of single bundles went, by the spans that the roles log."""
        spans: dict[str, list[float]] = {}
        for line in lines:
            if "span" in line and str(line.get("resource", "")).startswith("one-"):
                checked = line.get("checked_ms", 0.0)
                spans.setdefault(line["span"], []).append(line["ms"] - checked)
                if checked:
                    spans.setdefault("accept", []).append(checked)
        for span, what in SPANS.items():
            if span in spans:
                middle = p50(spans[span])
                whole -= middle
                self.row(f"    {what}", "ms", middle)
        self.row("    the wire, the watch and the rest", "ms", whole)

    async def batches(self) -> None:
        """A hundred at once: the mean of their times, each from its own request to its status in the watch."""
        async with self.server() as maestro, Watch(maestro.address, HTTP_PORT) as watch:
            found = []
            for turn in range(self.size.batches + 1):
                names = [f"batch-{turn}-{number}" for number in range(self.size.batch)]
                requests = [create(maestro.place(number), name) for number, name in enumerate(names)]
                sent = await maestro.client.all(requests)
                await watch.until_applied([(name, 1) for name in names])
                if turn:
                    found += [watch.applied[name, 1] - began for name, began in zip(names, sent, strict=True)]
                await asyncio.sleep(0.2)
            mean = sum(found) / len(found) * MS
            self.row(f"{self.size.batch} at once, mean", "ms", mean, None, Limit(at_most=100), go(1120, mean))

    async def updates(self) -> None:
        async with self.server() as maestro, Watch(maestro.address, HTTP_PORT) as watch:
            names = [f"storm-{number}" for number in range(self.size.updated)]
            await maestro.client.all(create(maestro.place(number), name) for number, name in enumerate(names))
            await watch.until_applied([(name, 1) for name in names])
            requests = [update(name, number) for number in range(5) for name in names]

            async def work() -> None:
                await maestro.client.all(requests)
                await watch.until_applied([(name, 6) for name in names])

            taken = await self.spent(work, server=maestro.server, postgres=self.machine.postgres)
            measure = f"{len(names)} bundles × 5 updates → last seen"
            self.row(measure, "s", taken.seconds, None, Limit(at_most=2), go(23.4, taken.seconds))
            each = sum(taken.cpu.values()) / len(requests) * MS
            self.row("  CPU per update, server + PostgreSQL", "ms", each)

    async def deletes(self) -> None:
        async with self.server() as maestro:
            names = [f"doomed-{number}" for number in range(self.size.deleted)]
            await maestro.client.all(create(maestro.place(number), name) for number, name in enumerate(names))
            await maestro.quiet()

            async def work() -> None:
                await maestro.client.all([delete(name) for name in names])
                while await maestro.database.fetchval("SELECT EXISTS (SELECT 1 FROM resources)"):
                    await asyncio.sleep(0.01)

            taken = await self.spent(work, server=maestro.server, postgres=self.machine.postgres)
            rate = len(names) / taken.seconds
            self.row(f"delete {len(names)}", "/s", rate, None, Limit(at_least=400), go_rate(45.5, rate))
            self.row("  CPU per delete, server + PostgreSQL", "ms", sum(taken.cpu.values()) / len(names) * MS)


def go(figure: float, ours: float) -> str:
    """What Go's took, and how many times as long."""
    return f"Go {figure:g}: {figure / ours:.1f}×"


def go_rate(figure: float, ours: float) -> str:
    return f"Go {figure:g}: ours is {ours / figure:.1f}×"


def _said(program: Program, word: str) -> None:
    def look() -> bool:
        if program.process.poll() is not None:
            raise SystemExit(f"{program.name} ended: {program.log.read_text()[-2000:]}")
        return word in program.log.read_text()

    until(look, f"{program.name} to be {word}")


PARTS: dict[str, Callable[[Bench], Coroutine[None, None, None]]] = {
    "burst": Bench.burst,
    "one": Bench.singles,
    "batch": Bench.batches,
    "updates": Bench.updates,
    "delete": Bench.deletes,
    "list": lists,
    "stored": one_more,
    "flood": flood,
    "agent": with_our_agent,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny numbers: shows that it runs, measures nothing")
    parser.add_argument("--ahead", action="store_true", help="before all else that the machine does (needs root)")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part (may be given again)")
    options = parser.parse_args()
    if options.ahead:  # children inherit it; a mere `nice` counts within a session only
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    home = Path(tempfile.mkdtemp(prefix="regional-bench-"))
    home.chmod(0o711)
    os.environ["REGIONAL_HOME"] = str(home)
    try:
        machine = Machine(home)
        with machine.running():
            bench = Bench(machine, QUICK if options.quick else Size())
            bench.table.head()
            for name in options.only or PARTS:
                asyncio.run(PARTS[name](bench))
        return 0 if bench.table.close() or options.quick else 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())

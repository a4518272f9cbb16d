"""The Kubernetes API on this machine, against the real one: `make bench-kube`.

Starts our API as a fork of a warm parent and, if its binary is in the user's cache, the real kube-apiserver with etcd:
both over TLS, both with fsync, both on an empty data directory of the same disk, asked by the same client in turns.
What another machine measured is of little use, so every limit that can be is a ratio to the real one of the same run.
On a busy machine trust the ratios and the CPU times, not the milliseconds.

Memory is the proportional set size: private pages plus a share of what the warm parent's forks have in common. The
share depends on how many forks there are and on what they use of the libraries: a region has about forty that serve, so
the bench keeps as many such APIs at rest beside it. (Forks that only sleep have no page of a library in use.)
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_client import Connection
from kube_load import Taken, many_clients, one_client
from kube_objects import CONFIG_MAPS, DEPLOYMENTS, EVERYTHING, NEW_NAMESPACE, Resource
from kube_pods import node, start_pods
from kube_servers import Machine, Server, find_real
from kube_tenancy import measure
from kube_watchers import fan_out
from verdicts import Limit, Row, Table, p50

MS, US = 1e3, 1e6


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    starts: int = 3
    siblings: int = 40
    requests: int = 300
    clients: int = 8
    per_client: int = 100
    listed: int = 400
    lists: int = 60
    watchers: int = 1_000
    writes: int = 20
    objects: int = 10_000
    slice: int = 1_000
    pods: int = 12
    clusters: int = 200


QUICK = Size(1, 2, 20, 2, 10, 40, 5, 10, 2, 200, 50, 2, 3)


class Bench:
    def __init__(self, machine: Machine, binary: Path | None, size: Size) -> None:
        self.machine = machine
        self.binary = binary
        self.size = size
        self.table = Table("Kubernetes API", "ours", "real")
        self._numbers = itertools.count()

    def makers(self) -> list[Callable[[], Server]]:
        """Ours and, if there is one, the real: each call starts one on data of its own, with the bench's namespace."""

        def ours() -> Server:
            return _with_namespace(self.machine.ours(f"ours-{next(self._numbers)}"))

        def real() -> Server:
            assert self.binary is not None
            return _with_namespace(self.machine.real(self.binary, f"real-{next(self._numbers)}"))

        return [ours] if self.binary is None else [ours, real]

    def start(self) -> list[Server]:
        return [make() for make in self.makers()]

    def row(self, measure: str, unit: str, values: Sequence[float], limit: Limit | None = None, note: str = "") -> None:
        baseline = values[1] if len(values) > 1 else None
        self.table.add(Row(measure, unit, values[0], baseline, limit or Limit(), note))

    # -- what is measured --------------------------------------------------------------------------------------------

    def start_and_rest(self) -> None:
        """Start on empty data to the first 200 of /readyz, over TLS; then memory."""
        siblings = self._siblings()
        times: list[list[float]] = []
        memory: list[tuple[float, float]] = []
        cpu: list[float] = []
        for _ in range(self.size.starts):
            servers = self.start()
            times.append([server.started_in for server in servers])
            cpu, memory = [server.cpu() for server in servers], [server.memory() for server in servers]
            for server in servers:
                server.stop()
        for sibling in siblings:
            sibling.stop()
        columns = list(zip(*times, strict=True))
        self.row("start to ready, p50", "s", [p50(column) for column in columns], Limit(at_most=0.15))
        self.row("  CPU of it", "s", cpu)
        note = f"beside {len(siblings)} of the same parent"
        self.row("memory at rest (PSS)", "MB", [shared for _, shared in memory], Limit(at_most=25), note)
        self.row("  private pages of it", "MB", [private for private, _ in memory])

    def _siblings(self) -> list[Server]:
        return [self.machine.ours(f"sibling-{number}") for number in range(self.size.siblings)]

    def requests(self) -> None:
        """Create, get and apply, one client; then many."""
        servers = self.start()
        for resource, kind in ((CONFIG_MAPS, "ConfigMap"), (DEPLOYMENTS, "Deployment")):
            for verb, stream in _streams(resource).items():
                taken = one_client(servers, stream, self.size.requests)
                self._latency(f"{verb} {kind}, 1 client, p50", taken, servers)
            for verb in ("create", "get", "apply"):
                self._throughput(servers, resource, kind, verb)
        for server in servers:
            server.stop()

    def _latency(self, measure: str, taken: dict[str, Taken], servers: Sequence[Server]) -> None:
        mine = [taken[server.name] for server in servers]
        self.row(measure, "ms", [p50(each.seconds) * MS for each in mine], Limit(at_most=1.0, ratio=True))
        self.row("  server's CPU for each", "µs", [each.cpu_each * US for each in mine])

    def _throughput(self, servers: Sequence[Server], resource: Resource, kind: str, verb: str) -> None:
        clients, each = self.size.clients, self.size.per_client
        make: dict[str, Callable[[str, int], bytes]] = {
            "create": resource.create,
            "get": lambda name, _: resource.get(name),
            "apply": lambda name, number: resource.apply(name, 1_000_000 + number),
        }
        work = [[make[verb](f"many-{client}-{n}", n) for n in range(each)] for client in range(clients)]
        taken = [many_clients(server, work) for server in servers]
        limit = Limit(at_least=0.5, ratio=True)
        self.row(f"{verb} {kind}, {clients} clients", "/s", [rate for rate, _ in taken], limit)
        self.row("  server's CPU for each", "µs", [cpu * US for _, cpu in taken])

    def lists(self) -> None:
        servers = self.start()
        for server in servers:
            _fill(server, "listed", self.size.listed, self.size.clients)
        taken = one_client(servers, lambda: itertools.repeat(EVERYTHING), self.size.lists)
        self._latency(f"list {self.size.listed} ConfigMaps, p50", taken, servers)
        for server in servers:
            server.stop()

    def watchers(self) -> None:
        servers = self.start()
        found = [fan_out(server, self.size.watchers, self.size.writes) for server in servers]
        measure = f"write → seen by all of {self.size.watchers} watchers, p50"
        self.row(measure, "ms", [p50(seconds) * MS for seconds, _ in found], Limit(at_most=50))
        self.row("  server's CPU for each", "ms", [cpu * MS for _, cpu in found])
        for server in servers:
            server.stop()

    def many_objects(self) -> None:
        """The last creates into a full server and the first ones into an empty one, in turns: so a machine that is
        busier at the end of a long run than at its beginning does not decide the ratio."""
        size = self.size
        rates, costs = [], []
        for make in self.makers():
            full, empty = make(), make()
            _fill(full, "more", size.objects - size.slice, size.clients)
            taken = one_client([full, empty], _streams(CONFIG_MAPS)["create"], size.slice)
            last, first = taken[full.name], taken[empty.name]
            rates.append(p50(first.seconds) / p50(last.seconds))
            costs.append(first.cpu / last.cpu)
            full.stop()
            empty.stop()
        measure = f"{size.objects} objects: rate of the last {size.slice} creates"
        self.row(measure, "×", rates, Limit(at_least=0.9), "of the first's, by p50")
        self.row("  the same by the server's CPU", "×", costs)

    def pods(self) -> None:
        server = self.machine.ours("pods", "--controllers", "all")
        with node(self.machine, server):
            serving, ready = start_pods(server, self.size.pods)
        server.stop()
        self.row("pod created → process serving, p50", "ms", [p50(serving) * MS], Limit(at_most=150))
        self.row("  pod created → Ready, p50", "ms", [p50(ready) * MS])

    def clusters(self) -> None:
        """Many in one process (`regionctl serve kube-host`)."""
        found = measure(self.size.clusters, self.machine.home / "clusters")
        note = f"mean of {found.clusters}, each served and written to; {found.descriptors} descriptors in all"
        self.row("memory of a further small cluster", "MB", [found.memory_each], Limit(at_most=0.5), note)
        self.row("  created, durable, p50", "ms", [found.create_p50 * MS], Limit(at_most=20))
        self.row("  first answer after a rest, p50", "ms", [found.open_p50 * MS])
        self.row("  CPU of create, open and one write", "ms", [found.create_cpu * MS])


PARTS: dict[str, Callable[[Bench], None]] = {
    "start": Bench.start_and_rest,
    "requests": Bench.requests,
    "list": Bench.lists,
    "watchers": Bench.watchers,
    "objects": Bench.many_objects,
    "pods": Bench.pods,
    "clusters": Bench.clusters,
}


def _streams(resource: Resource, prefix: str = "one") -> dict[str, Callable[[], Iterator[bytes]]]:
    """Verb → an endless stream of requests. Apply changes what create made."""

    def create() -> Iterator[bytes]:
        return (resource.create(f"{prefix}-{number}", number) for number in itertools.count())

    def get() -> Iterator[bytes]:
        return (resource.get(f"{prefix}-{number % 20}") for number in itertools.count())

    def apply() -> Iterator[bytes]:
        return (resource.apply(f"{prefix}-{number % 20}", number + 1_000) for number in itertools.count())

    return {"create": create, "get": get, "apply": apply}


def _with_namespace(server: Server) -> Server:
    connection = Connection(server.endpoint)
    connection.must(NEW_NAMESPACE)
    connection.close()
    return server


def _fill(server: Server, prefix: str, count: int, clients: int) -> None:
    names = [f"{prefix}-{number}" for number in range(count)]
    many_clients(server, [[CONFIG_MAPS.create(name) for name in names[client::clients]] for client in range(clients)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny numbers: shows that it runs, measures nothing")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part (may be given again)")
    parser.add_argument("--without-real", action="store_true", help="ours alone")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="regional-bench-"))
    home.chmod(0o711)
    os.environ["REGIONAL_HOME"] = str(home)
    try:
        machine = Machine(home)
        bench = Bench(machine, None if options.without_real else find_real(), QUICK if options.quick else Size())
        with machine.warm():
            bench.table.head()
            for name in options.only or PARTS:
                PARTS[name](bench)
        return 0 if bench.table.close() or options.quick else 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())

"""Requests in rounds: one client that waits for each answer, or many processes at once.

The servers take turns in short blocks, so that whatever else the machine does falls on both. Besides the time that a
client waits, the server's own CPU time is counted: it says what a request costs, and a busy machine blurs it least.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kube_client import Connection
from kube_servers import Server

BLOCK = 20


@dataclass
class Taken:
    """What one server took for one kind of request."""

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def cpu_each(self) -> float:
        return self.cpu / len(self.seconds)


def one_client(servers: Sequence[Server], requests: Callable[[], Iterator[bytes]], count: int) -> dict[str, Taken]:
    """`count` requests to each server, from streams of their own, in turns."""
    streams = {server.name: requests() for server in servers}
    taken = {server.name: Taken() for server in servers}
    connections = {server.name: Connection(server.endpoint) for server in servers}
    for first in range(0, count, BLOCK):
        for server in servers:
            mine, connection = taken[server.name], connections[server.name]
            batch = [next(streams[server.name]) for _ in range(min(BLOCK, count - first))]
            spent = server.cpu()
            for data in batch:
                began = time.perf_counter()
                connection.must(data)
                mine.seconds.append(time.perf_counter() - began)
            mine.cpu += server.cpu() - spent
    for connection in connections.values():
        connection.close()
    return taken


def many_clients(server: Server, per_client: Sequence[Sequence[bytes]]) -> tuple[float, float]:
    """(requests per second, CPU seconds per request) with one process per client, all starting together."""
    context = multiprocessing.get_context("fork")
    gate, lines = context.Barrier(len(per_client) + 1), []
    for requests in per_client:
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_client, args=(server, requests, gate, theirs))
        worker.start()
        lines.append((worker, ours))
    gate.wait(60)
    began, spent = time.perf_counter(), server.cpu()
    ended = [line.recv() for _, line in lines]
    spent = server.cpu() - spent
    for worker, _ in lines:
        worker.join()
    count = sum(len(requests) for requests in per_client)
    return count / (max(ended) - began), spent / count


def _client(server: Server, requests: Sequence[bytes], gate, line) -> None:  # type: ignore[no-untyped-def]
    connection = Connection(server.endpoint)
    connection.must(b"GET /version HTTP/1.1\r\nHost: kubernetes\r\n\r\n")
    gate.wait(60)
    for data in requests:
        connection.must(data)
    line.send(time.perf_counter())

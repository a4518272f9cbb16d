"""A write, and the moment at which the last of a thousand watchers has it.

The watchers are TLS connections held by a few processes that do nothing but wait in epoll and read: with a thousand of
them the reading itself costs a noticeable part of what is measured, and it runs on the same machine as the server.
"""

from __future__ import annotations

import multiprocessing
import select
import ssl
import time

import msgspec

from kube_client import Connection, request
from kube_objects import CONFIG_MAPS
from kube_servers import Server

PROCESSES = 2
PATIENCE = 60.0


def fan_out(server: Server, watchers: int, rounds: int) -> tuple[list[float], float]:
    """(seconds from sending a write until the last watcher has read it, one per round; server's CPU per round)"""
    writer = Connection(server.endpoint)
    revision = msgspec.json.decode(writer.must(request("GET", CONFIG_MAPS.path + "?limit=1")))["metadata"]
    context = multiprocessing.get_context("fork")
    readers = []
    for _ in range(PROCESSES):
        ours, theirs = context.Pipe()
        share = watchers // PROCESSES
        process = context.Process(target=_watch, args=(server, share, revision["resourceVersion"], rounds, theirs))
        process.start()
        readers.append((process, ours))
    for _, line in readers:
        assert line.poll(600) and line.recv() == "watching"
    seconds, spent = [], server.cpu()
    for number in range(rounds):
        data = CONFIG_MAPS.create(f"seen-{number}", number)
        began = time.perf_counter()
        writer.must(data)
        seen = []
        for _, line in readers:
            if not line.poll(PATIENCE):
                raise SystemExit("not every watcher has seen the write")
            seen.append(line.recv())
        seconds.append(max(seen) - began)
    spent = (server.cpu() - spent) / rounds
    for process, _ in readers:
        process.join()
    writer.close()
    return seconds, spent


def _watch(server: Server, count: int, revision: str, rounds: int, line) -> None:  # type: ignore[no-untyped-def]
    tls = server.endpoint.context()
    ask = request("GET", f"{CONFIG_MAPS.path}?watch=1&resourceVersion={revision}")
    poll = select.epoll()
    by_descriptor: dict[int, ssl.SSLSocket] = {}
    for _ in range(count):
        connection = server.endpoint.dial(tls)
        connection.sendall(ask)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        connection.setblocking(False)
        by_descriptor[connection.fileno()] = connection
        poll.register(connection.fileno(), select.EPOLLIN)
    line.send("watching")
    for number in range(rounds):
        mark = b'"seen-%d"' % number
        waiting = count
        while waiting:
            for descriptor, _ in poll.poll():
                try:
                    data = by_descriptor[descriptor].recv(65536)
                except ssl.SSLWantReadError:
                    continue
                if not data:
                    raise SystemExit("the server closed a watch")
                waiting -= mark in data
        line.send(time.perf_counter())

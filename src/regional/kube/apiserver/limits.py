"""How much one cluster, and one user of it, may ask at the same time; and whose turn it is between clusters.

Over a limit the answer is 429 with Retry-After, which every client knows. Within it, requests of a cluster that asks
more than its share wait in that cluster's own line, so the others do not notice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

import msgspec

from regional.kube.messages import MASTERS, Request, Response, User

Sort = Literal["read", "write", "stream", "probe"]

SEATS = 64  # requests being worked on at the same time, over all clusters
LEAST = 4  # what a cluster may always have, however many others there are

_PROBES = ("/healthz", "/livez", "/readyz")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight as the real server's defaults have them; watches and connections as this process bears."""

    reads: int = 400
    writes: int = 200
    streams: int = 20_000  # watches, logs that are followed, exec and port-forward
    share: float = 0.5  # of each, for one user who is not one of system:masters
    connections: int = 20_000


DEFAULT_LIMITS = Limits()


def sort_of(request: Request) -> Sort:
    if request.path.startswith(_PROBES):
        return "probe"
    if request.upgradable:
        return "stream"
    if request.method in ("GET", "HEAD"):
        if request.flag("watch") or request.flag("follow") or "/watch/" in request.path:
            return "stream"
        return "read"
    return "write"


class Ticket:
    """One request that was let in; `leave` when its answer is out."""

    __slots__ = ("_sort", "_turnstile", "_user")

    def __init__(self, turnstile: Turnstile, sort: Sort, user: str) -> None:
        self._turnstile, self._sort, self._user = turnstile, sort, user

    def leave(self) -> None:
        self._turnstile._leave(self._sort, self._user)


class Turnstile:
    """One cluster's: counts what is inside."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._most: dict[Sort, int] = {"read": limits.reads, "write": limits.writes, "stream": limits.streams}
        self._inside: dict[Sort, int] = {"read": 0, "write": 0, "stream": 0, "probe": 0}
        self._users: dict[tuple[Sort, str], int] = {}
        self.connections = 0

    @property
    def empty(self) -> bool:
        return not any(self._inside.values())

    def enter(self, request: Request, user: User) -> Ticket | None:
        """None: too many already."""
        sort = sort_of(request)
        if sort == "probe":
            return self._let_in(sort, user.name)
        most = self._most[sort]
        if self._inside[sort] >= most:
            return None
        if MASTERS not in user.groups and self._users.get((sort, user.name), 0) >= most * self.limits.share:
            return None
        return self._let_in(sort, user.name)

    def _let_in(self, sort: Sort, user: str) -> Ticket:
        self._inside[sort] += 1
        self._users[sort, user] = self._users.get((sort, user), 0) + 1
        return Ticket(self, sort, user)

    def _leave(self, sort: Sort, user: str) -> None:
        self._inside[sort] -= 1
        left = self._users[sort, user] - 1
        if left:
            self._users[sort, user] = left
        else:
            del self._users[sort, user]


def too_many_requests() -> Response:
    """Plain text, as the real server's filter answers; its clients look at the code and the header only."""
    headers = {"content-type": "text/plain; charset=utf-8", "retry-after": "1", "x-content-type-options": "nosniff"}
    return Response(429, headers, b"Too many requests, please try again later.\n")


class Shares:
    """Between the clusters of one process: each may work on its share of the seats, and at least on a few requests."""

    def __init__(self, seats: int = SEATS, least: int = LEAST) -> None:
        self._seats, self._least = seats, least
        self._working: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def _share(self) -> int:
        return max(self._least, self._seats // max(1, len(self._working)))

    async def take(self, cluster: str) -> None:
        working = self._working.setdefault(cluster, 0)
        if working < self._share() and cluster not in self._lines:
            self._working[cluster] = working + 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(cluster, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(cluster)  # it was called and left in the same moment
            raise

    def give_back(self, cluster: str) -> None:
        working = self._working[cluster] - 1
        if working or cluster in self._lines:
            self._working[cluster] = working
            self._call(cluster)
            return
        del self._working[cluster]
        for other in tuple(self._lines):  # their share has grown
            self._call(other)

    def _call(self, cluster: str) -> None:
        line = self._lines.get(cluster)
        while line and self._working[cluster] < self._share():
            turn = line.popleft()
            if not turn.done():
                self._working[cluster] += 1
                turn.set_result(None)
        if line is not None and not line:
            del self._lines[cluster]
            if not self._working[cluster]:
                del self._working[cluster]

"""One request's way through the region, out of the log lines that carry its id.

Every part writes a line with `request_id`, and at the end of a stretch of work one with `span` and `ms` too. The files
are read as they lie on this machine, so that a request can be followed when nothing runs any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

Document = dict[str, Any]

CONTROL_PLANE = "hypershift.control_plane"
READY = "clm.status"
COMMITS = frozenset({"clm.commit", "maestro.commit"})  # of a request that changed something
_LONGEST_LINE = 1 << 20
_COMMON = frozenset({"time", "level", "role", "logger", "msg", "request_id", "span", "ms", "resource"})


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log. `ms` is how long the stretch took that ended with it; None for a line that ends none."""

    time: datetime
    where: str  # rc/clm-api, mc01/maestro-agent, gateway
    message: str
    level: str
    request_id: str
    span: str = ""
    ms: float | None = None
    resource: str = ""
    more: Document = {}

    @property
    def start(self) -> datetime:
        return self.time - timedelta(milliseconds=self.ms or 0.0)

    @property
    def ready(self) -> bool:
        """The commit that made the resource Ready."""
        return self.span == READY and self.more.get("available") == "True"


class Share(msgspec.Struct, frozen=True):
    """What a part of the time went into: a span, or the way to one (a queue, a wire, a wait)."""

    span: str
    on_the_way: bool
    seconds: float


# -- reading -------------------------------------------------------------------------------------------------------


def with_rotated(files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for name, file in files.items():
        for older in (file.with_name(f"{file.name}.2"), file.with_name(f"{file.name}.1")):
            if older.exists():
                yield name, older
        yield name, file


def hops_of(files: Mapping[str, Path], request_ids: Iterable[str]) -> list[Hop]:
    """Every line of these requests, by the time at which what it tells began."""
    wanted = {request_id for request_id in request_ids if request_id}
    found = [hop for name, line in _lines(files, wanted) if (hop := hop_of(name, line)) and hop.request_id in wanted]
    return sorted(found, key=lambda hop: (hop.start, hop.time))


def requests_about(files: Mapping[str, Path], resource: str) -> list[str]:
    """Ids of the requests that were about a resource, oldest first: whatever field of a line has the resource's id."""
    seen: dict[str, datetime] = {}
    for name, line in _lines(files, {resource}):
        hop = hop_of(name, line)
        if hop and hop.request_id and resource in (hop.resource, *hop.more.values()):
            seen[hop.request_id] = min(hop.time, seen.get(hop.request_id, hop.time))
    return sorted(seen, key=lambda request_id: seen[request_id])


def _lines(files: Mapping[str, Path], needles: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Lines that have one of the texts in them; most lines are never parsed."""
    texts = [needle.encode() for needle in needles]
    if not texts:
        return
    for name, file in with_rotated(files):
        try:
            with file.open("rb") as stream:
                while line := stream.readline(_LONGEST_LINE):
                    if any(text in line for text in texts):
                        yield name, line
        except OSError:
            continue  # a pod that went while we read


def hop_of(name: str, line: bytes) -> Hop | None:
    try:
        found = msgspec.json.decode(line)
        moment = datetime.fromisoformat(found["time"])
        took = found.get("ms") if found.get("span") else None
        return Hop(
            time=moment,
            where=_where(name, str(found.get("role", ""))),
            message=str(found.get("msg", "")),
            level=str(found.get("level", "")),
            request_id=str(found.get("request_id", "")),
            span=str(found.get("span", "")),
            ms=max(0.0, float(took)) if isinstance(took, int | float) else None,
            resource=str(found.get("resource", "")),
            more={key: value for key, value in found.items() if key not in _COMMON},
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None  # not a line of ours


def _where(name: str, role: str) -> str:
    """`rc/clm/clm-api-5f/clm-api` is read as rc/clm-api: the cluster and the role that people know."""
    cluster, slash, rest = name.partition("/")
    return f"{cluster}/{role or rest.rpartition('/')[2]}" if slash else name


# -- reckoning -----------------------------------------------------------------------------------------------------


def until_ready(hops: Sequence[Hop]) -> tuple[list[Hop], list[Hop]]:
    """(what led to Ready, what came after); all and nothing if it did not become Ready."""
    end = next((hop.time for hop in sorted(hops, key=lambda hop: hop.time) if hop.ready), None)
    if end is None:
        return list(hops), []
    return [hop for hop in hops if hop.start <= end], [hop for hop in hops if hop.start > end]


def shares_of(hops: Sequence[Hop], end: datetime | None = None) -> list[Share]:
    """Where the time went, in the order of the way. Each moment belongs to one span: the one that began last, since
    it is inside the others; but a control plane that comes up is what everything waits for, whatever runs beside it.
    Moments without a span belong to the way to the next one."""
    spans = [hop for hop in hops if hop.span and hop.ms is not None]
    if not spans:
        return []
    begin, end = min(hop.start for hop in spans), end or ending(hops)
    marks = sorted({begin, end, *(m for hop in spans for m in (hop.start, hop.time) if begin <= m <= end)})
    sums: dict[tuple[str, bool], float] = {}
    for left, right in itertools.pairwise(marks):
        active = [hop for hop in spans if hop.start <= left and hop.time >= right]
        if active:
            key = max(active, key=lambda hop: (hop.span == CONTROL_PLANE, hop.start)).span, False
        else:
            following = min((hop for hop in spans if hop.start >= right), key=lambda hop: hop.start, default=None)
            key = (following.span if following else "", True)
        sums[key] = sums.get(key, 0.0) + (right - left).total_seconds()
    return [Share(span, way, seconds) for (span, way), seconds in sums.items()]


def ending(hops: Sequence[Hop]) -> datetime:
    """When the request was done: Ready, else the last that was heard of it."""
    ready = [hop.time for hop in hops if hop.ready]
    return min(ready) if ready else max(hop.time for hop in hops)

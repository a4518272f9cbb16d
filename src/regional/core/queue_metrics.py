"""What the work queues of this process have to show, as text for Prometheus: per controller, never per object.

Written by hand: the Kubernetes API, of which a region runs many, would load a library for a dozen lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass
class QueueStats:
    """Of one queue, since its start."""

    added: int = 0
    passes: int = 0
    failed: int = 0
    waited_seconds: float = 0.0
    worked_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class _Shown:
    name: str
    stats: QueueStats
    depth: Callable[[], int]


_shown: list[_Shown] = []
_FAMILIES: tuple[tuple[str, str, str, Callable[[_Shown], tuple[tuple[str, float], ...]]], ...] = (
    ("workqueue_depth", "gauge", "Keys that wait", lambda each: (("", each.depth()),)),
    ("workqueue_adds_total", "counter", "Keys that began to wait", lambda each: (("", each.stats.added),)),
    (
        "workqueue_queue_duration_seconds",
        "summary",
        "How long keys waited",
        lambda each: (("_sum", each.stats.waited_seconds), ("_count", each.stats.passes)),
    ),
    (
        "workqueue_work_duration_seconds",
        "summary",
        "How long passes took",
        lambda each: (("_sum", each.stats.worked_seconds), ("_count", each.stats.passes)),
    ),
    (
        "workqueue_retries_total",
        "counter",
        "Passes that failed and are repeated",
        lambda each: (("", each.stats.failed),),
    ),
)


def show(name: str, stats: QueueStats, depth: Callable[[], int]) -> Callable[[], None]:
    """From now on; the answer ends it."""
    entry = _Shown(name, stats, depth)
    _shown.append(entry)
    return lambda: _shown.remove(entry)


def exposition() -> str:
    """Queues of one name (one per cluster, where a process has several) are added up."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterable[str]:
    for family, kind, text, values in _FAMILIES if _shown else ():
        yield f"# HELP {family} {text}"
        yield f"# TYPE {family} {kind}"
        totals: dict[tuple[str, str], float] = {}
        for each in _shown:
            for suffix, value in values(each):
                totals[each.name, suffix] = totals.get((each.name, suffix), 0) + value
        for (name, suffix), total in sorted(totals.items()):
            yield f'{family}{suffix}{{name="{name}"}} {round(total, 6)}'

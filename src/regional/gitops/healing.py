"""When drift is mended: at once, unless another program keeps making it.

A person who edits again and again, however stubbornly, is answered within three seconds each time. A fight is known by
its pace and its stamina: drift of the same object that follows upon each mending, thirty times in a row. Then it is
mended less and less often, or two controllers would keep a cluster busy and its pods rolling. One object that is
fought over holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from regional.gitops.manifests import ObjectKey

AT_ONCE = 2  # the first of a row are not waited with
PAUSE = 1.0  # between those that follow: leaves two seconds to notice and to apply, on a busy machine
STAMINA = 30  # half a minute of them is a fight
LONGEST = 300.0
ANSWER = 10.0  # drift that comes later than this after a mending is no answer to it


@dataclass(slots=True)
class _Row:
    """Mendings of one object, each soon followed by new drift."""

    count: int
    last: float
    seen: float | None = None  # since when it has drifted again

    def due(self) -> float:
        if self.count < AT_ONCE:
            return self.last
        return self.last + min(PAUSE * 3.0 ** max(0, self.count - STAMINA + 1), LONGEST)


@dataclass(slots=True)
class Healing:
    rows: dict[ObjectKey, _Row] = field(default_factory=dict)

    def look(self, drifted: Set[ObjectKey], now: float) -> None:
        """Told what differs with every look, so that it knows when drift came."""
        for key, row in list(self.rows.items()):
            if key not in drifted:
                row.seen = None
            elif row.seen is None:
                row.seen = now
            if (now if row.seen is None else row.seen) - row.last > ANSWER:
                del self.rows[key]

    def due(self, keys: Iterable[ObjectKey], now: float) -> set[ObjectKey]:
        """Those of them that may be mended now."""
        return {key for key in keys if key not in self.rows or self.rows[key].due() <= now}

    def done(self, keys: Iterable[ObjectKey], now: float) -> None:
        for key in keys:
            row = self.rows.get(key)
            self.rows[key] = _Row(row.count + 1 if row else 1, now)

    def wait(self, now: float) -> float | None:
        """Until something that has drifted is due."""
        left = [row.due() - now for row in self.rows.values() if row.seen is not None]
        return min((seconds for seconds in left if seconds > 0), default=None)

"""Tables with verdicts, for every bench: what was measured, beside a baseline of the same run, against a limit.

A limit is either a number of its own ("< 50 ms") or a ratio to the baseline ("≤ 1×"): ratios travel between machines,
seconds do not. A row without a limit is for information; a row whose baseline is missing says so and judges nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limit:
    """`at_most` and `at_least` are in the row's unit, or multiples of the baseline if `ratio` is set."""

    at_most: float = math.inf
    at_least: float = -math.inf
    ratio: bool = False

    def __str__(self) -> str:
        times = "×" if self.ratio else ""
        if math.isfinite(self.at_most):
            return f"≤ {self.at_most:g}{times}"
        return f"≥ {self.at_least:g}{times}" if math.isfinite(self.at_least) else ""

    def kept_by(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most


NO_LIMIT = Limit()


@dataclass
class Row:
    measure: str
    unit: str
    ours: float
    baseline: float | None = None
    limit: Limit = NO_LIMIT
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.baseline if self.baseline else None

    @property
    def verdict(self) -> str:
        if self.limit == NO_LIMIT:
            return ""
        judged = self.ratio if self.limit.ratio else self.ours
        if judged is None:
            return "no baseline"
        return "ok" if self.limit.kept_by(judged) else "MISSED"


@dataclass
class Table:
    """Rows are printed as they come, so that a long run shows what it has."""

    title: str
    ours: str
    baseline: str
    rows: list[Row] = field(default_factory=list)

    def head(self) -> None:
        print(f"\n{self.title:<50}{'':>6}{self.ours:>10}{self.baseline:>10}{'ratio':>8}{'limit':>10}  verdict")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        baseline = figure(row.baseline) if row.baseline is not None else "–"
        ratio = f"{row.ratio:.2f}×" if row.ratio is not None else "–"
        line = f"{row.measure:<50}{row.unit:>6}{figure(row.ours):>10}{baseline:>10}{ratio:>8}{row.limit!s:>10}"
        print(f"{line}  {row.verdict:<8}{row.note}".rstrip(), flush=True)

    def close(self) -> bool:
        """How many limits were kept; True if none was missed."""
        verdicts = [row.verdict for row in self.rows]
        kept, missed = verdicts.count("ok"), verdicts.count("MISSED")
        print(f"\n{kept} of {kept + missed} limits kept")
        return not missed


def figure(value: float) -> str:
    """Three digits that matter."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]

"""Benches are programs, too: each runs to its end on tiny numbers and shows every row; the figures are not judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

ROWS = (
    "start to ready",
    "memory at rest",
    "create ConfigMap, 1 client",
    "get ConfigMap, 1 client",
    "apply ConfigMap, 1 client",
    "create Deployment, 2 clients",
    "list 40 ConfigMaps",
    "watchers, p50",
    "200 objects: rate of the last 50 creates",
    "pod created → process serving",
    "limits kept",
)


MAESTRO_ROWS = (
    "CPU per bundle, server + PostgreSQL",
    "burst of creates → Applied",
    "server memory after it",
    "create among 200 pending deletes",
    "delete 10, our agent",
    "one bundle at a time, our agent, p50",
    "apply: from the message to the objects",
    "limits kept",
)


RENDER_ROWS = (
    "validate",
    "render, nothing there yet",
    "render, one region changed",
    "render, nothing changed",
    "render --check",
    "explain",
    "limits kept",
)


def shown(program: str, *flags: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(BENCH / program), "--quick", *flags], capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_kubernetes_bench_shows_every_row() -> None:
    table = shown("kube.py", "--without-real")
    assert not [row for row in ROWS if row not in table], table


def test_the_maestro_bench_shows_its_rows() -> None:
    table = shown("maestro.py", "--only=burst", "--only=flood", "--only=agent")
    assert not [row for row in MAESTRO_ROWS if row not in table], table


def test_the_render_bench_shows_its_rows() -> None:
    table = shown("render.py")
    assert not [row for row in RENDER_ROWS if row not in table], table


def test_the_gitops_bench_shows_every_row_that_needs_no_region() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCH / "gitops.py"), "--without-region", "--regions", "3", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    for row in ("1 cluster × 50 directories evaluated", "preview of 3 regions", "limits kept"):
        assert row in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("limit", "ours", "baseline", "verdict"),
    [
        ({"at_most": 50.0}, 49.0, None, "ok"),
        ({"at_most": 50.0}, 51.0, None, "MISSED"),
        ({"at_most": 1.0, "ratio": True}, 2.0, 2.1, "ok"),
        ({"at_most": 1.0, "ratio": True}, 2.0, 1.9, "MISSED"),
        ({"at_least": 0.5, "ratio": True}, 60.0, 100.0, "ok"),
        ({"at_least": 0.5, "ratio": True}, 40.0, 100.0, "MISSED"),
        ({"at_most": 1.0, "ratio": True}, 2.0, None, "no baseline"),
        ({}, 2.0, 1.0, ""),
    ],
)
def test_a_verdict_compares_with_the_limit_or_with_the_baseline(
    monkeypatch: pytest.MonkeyPatch, limit: dict[str, float], ours: float, baseline: float | None, verdict: str
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from verdicts import Limit, Row

    assert Row("a measure", "ms", ours, baseline, Limit(**limit)).verdict == verdict  # type: ignore[arg-type]

"""Reckoning with spans: every moment is counted once, for the stretch that it belongs to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from regional.cli.hops import Hop, hops_of, requests_about, shares_of, until_ready

START = datetime(2026, 1, 1, tzinfo=UTC)


def span(name: str, begin: float, end: float, **more: object) -> Hop:
    """Seconds since the start."""
    return Hop(
        time=START + timedelta(seconds=end),
        where="rc/x",
        message="",
        level="info",
        request_id="r",
        span=name,
        ms=(end - begin) * 1000,
        more=dict(more),
    )


def reckoned(*spans: Hop) -> dict[str, float]:
    return {("→ " if s.on_the_way else "") + s.span: round(s.seconds, 6) for s in shares_of(spans)}


def test_time_inside_an_inner_span_is_the_inner_spans() -> None:
    shares = reckoned(span("gateway.request", 0, 10), span("platform_api.request", 1, 9), span("clm.commit", 4, 6))
    assert shares == {"gateway.request": 2.0, "platform_api.request": 6.0, "clm.commit": 2.0}


def test_time_without_a_span_is_the_way_to_the_next_one() -> None:
    shares = reckoned(span("clm.commit", 0, 1), span("sentinel.event", 1.5, 2), span("adapter.run", 5, 6))
    assert shares == {
        "clm.commit": 1.0,
        "→ sentinel.event": 0.5,
        "sentinel.event": 0.5,
        "→ adapter.run": 3.0,
        "adapter.run": 1.0,
    }


def test_what_runs_beside_a_control_plane_that_comes_up_costs_nothing() -> None:
    shares = reckoned(span("hypershift.control_plane", 0, 10), span("maestro.status", 2, 3), span("clm.status", 3, 4))
    assert shares == {"hypershift.control_plane": 10.0}


def test_the_way_ends_when_the_cluster_is_ready() -> None:
    ready = span("clm.status", 4, 5, available="True")
    hops = [span("clm.commit", 0, 1), ready, span("clm.status", 60, 61, available="True")]
    led, after = until_ready(hops)
    assert led == hops[:2]
    assert after == hops[2:]
    assert sum(share.seconds for share in shares_of(led)) == pytest.approx(5.0)


def test_lines_that_are_not_ours_are_passed_by_and_rotated_logs_are_read(tmp_path: Path) -> None:
    def line(**fields: object) -> str:
        return json.dumps({"time": "2026-01-01T00:00:00.000Z", "msg": "m", "role": "clm-api"} | fields) + "\n"

    log = tmp_path / "log"
    log.write_text(
        "Traceback: req-1\n"
        + '{"request_id": "req-1"}\n'
        + "[1, 2, req-1\n"
        + line(request_id="req-1", span="clm.commit", ms="soon")
        + line(request_id="req-10", msg="another request")
        + line(request_id="req-1", resource="abc", time="2026-01-01T00:00:02+00:00")
    )
    (tmp_path / "log.1").write_text(line(request_id="req-1", msg="older", time="2025-12-31T23:59:59.000Z"))
    files = {"rc/clm/clm-api-5/clm-api": log, "gone": tmp_path / "absent"}
    found = hops_of(files, ["req-1"])
    assert [hop.message for hop in found] == ["older", "m", "m"]
    assert {hop.where for hop in found} == {"rc/clm-api"}
    assert requests_about(files, "abc") == ["req-1"]
    assert hops_of(files, [""]) == []

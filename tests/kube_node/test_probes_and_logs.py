"""Probes change their mind only after their thresholds; logs can be read from either end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from regional.core.clock import ManualClock, SystemClock
from regional.kube.node.container_logs import LogOptions, parse_options, read_log, rotate
from regional.kube.node.probes import Kind, Outcome, Probe, keep_looking
from regional.kube.objects import Obj


async def never(_argv: list[str], _seconds: float) -> tuple[int, str]:
    raise AssertionError


class Scripted(Probe):
    """A probe of something whose health the test decides."""

    answers: list[bool] = msgspec.field(default_factory=list)

    async def look(self) -> Outcome:
        ok = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Outcome(ok, "" if ok else "no")


async def verdicts(
    kind: Kind, spec: Obj, answers: list[bool], seconds: int, *, passed: bool = False
) -> list[tuple[float, bool]]:
    clock, heard = ManualClock(), list[tuple[float, bool]]()
    probe = Scripted(kind, spec, "127.0.0.1", {}, never, answers=answers)
    task = asyncio.create_task(
        keep_looking(probe, clock, lambda ok, _: heard.append((clock.monotonic(), ok)), passed=passed)
    )
    for _ in range(seconds * 10):
        await clock.advance(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return heard


async def test_readiness_comes_early_and_leaves_after_three_failures() -> None:
    spec = {"periodSeconds": 10}
    heard = await verdicts("Readiness", spec, [False, False, True, False, False, False, True], 60)
    assert [ok for _, ok in heard] == [True, False, True]
    assert heard[0][0] < 1
    assert 30 <= heard[1][0] < 31


async def test_a_startup_probe_gives_up_only_after_its_whole_time() -> None:
    heard = await verdicts("Startup", {"periodSeconds": 2, "failureThreshold": 5}, [False], 11)
    assert [ok for _, ok in heard] == [False]
    assert heard[0][0] >= 9.9


async def test_an_adopted_container_is_given_its_thresholds_too() -> None:
    heard = await verdicts(
        "Readiness", {"periodSeconds": 1, "failureThreshold": 2}, [True, False, False], 4, passed=True
    )
    assert heard == [(pytest.approx(2.0, abs=0.3), False)]


async def test_http_and_tcp_probes_judge_by_the_answer() -> None:
    replies = {"/ok": "204 No Content", "/moved": "302 Found", "/broken": "500 Oops"}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1:2]
        if path:
            writer.write(f"HTTP/1.1 {replies[path[0].decode()]}\r\n\r\nwhy\n".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def look(spec: Obj) -> Outcome:
        return await Probe("Readiness", spec, "127.0.0.1", {"web": port}, never).look()

    async with server:
        assert (await look({"httpGet": {"port": "web", "path": "/ok"}})).ok
        assert (await look({"httpGet": {"port": port, "path": "/moved"}})).ok
        broken = await look({"httpGet": {"port": port, "path": "/broken"}})
        assert broken == Outcome(False, "HTTP probe failed with statuscode: 500: why")
        assert (await look({"tcpSocket": {"port": "web"}})).ok
        assert not (await look({"tcpSocket": {"port": "nameless"}})).ok
    assert not (await look({"tcpSocket": {"port": port}})).ok


async def read(path: Path, **options: object) -> bytes:
    chunks = read_log(path, LogOptions(**options), "2026-01-01T00:00:00Z", lambda: False, SystemClock())  # type: ignore[arg-type]
    return b"".join([chunk async for chunk in chunks])


async def test_logs_are_read_from_the_end_by_time_and_by_size(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    lines = [f'{{"time":"2026-01-01T00:00:{n:02}Z","n":{n}}}' for n in range(10)]
    path.write_text("\n".join(["plain", *lines]) + "\n")
    assert (await read(path)).decode() == path.read_text()
    assert (await read(path, tail_lines=2)).decode().splitlines() == lines[-2:]
    assert await read(path, tail_lines=0) == b""
    assert await read(path, limit_bytes=8) == b"plain\n{" + b'"'
    since = datetime(2026, 1, 1, 0, 0, 8, tzinfo=UTC)
    assert (await read(path, since=since)).decode().splitlines() == lines[8:]
    stamped = (await read(path, timestamps=True, tail_lines=1)).decode()
    assert stamped == f"2026-01-01T00:00:09Z {lines[9]}\n"


async def test_following_ends_with_the_container(tmp_path: Path) -> None:
    path, alive = tmp_path / "0.log", [True]
    path.write_text("one\n")
    heard: list[bytes] = []

    async def follow() -> None:
        chunks = read_log(path, LogOptions(follow=True), "", lambda: alive[0], SystemClock())
        heard.extend([chunk async for chunk in chunks])

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    with path.open("a") as stream:
        stream.write("two\nunfinished")
    alive[0] = False
    await asyncio.wait_for(task, 5)
    assert b"".join(heard) == b"one\ntwo\nunfinished\n"


def test_a_big_log_is_cut_and_two_old_pieces_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    writer = path.open("a")
    for number in range(4):
        writer.write(f"{number}" * 100)
        writer.flush()
        assert rotate(path, 50)
    writer.write("after")
    writer.close()
    assert not rotate(path, 50)
    assert path.read_text() == "after"
    assert [(tmp_path / f"0.log.{n}").read_text()[0] for n in (1, 2)] == ["3", "2"]
    assert not (tmp_path / "0.log.3").exists()


def test_bad_log_options_are_refused() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="tailLines must be a whole number"):
        parse_options({"tailLines": "-1"}, now)
    assert parse_options({"sinceSeconds": "60", "follow": "true"}, now).since == datetime(
        2025, 12, 31, 23, 59, tzinfo=UTC
    )

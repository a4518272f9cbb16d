"""Probes change their mind only after their thresholds; logs can be read from either end."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from regional.core import pki
from regional.core.clock import ManualClock, SystemClock
from regional.kube.node import container_logs
from regional.kube.node.container_logs import LogOptions, parse_options, read_log, rotate
from regional.kube.node.probes import Kind, Outcome, Probe, keep_looking
from regional.kube.objects import Obj
from tests.kube_clients.harness import own_address

HOST = own_address()  # nobody else takes a port here that was just let go


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
        keep_looking(probe, clock, lambda ok: heard.append((clock.monotonic(), ok)), lambda _: None, passed=passed)
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

    server = await asyncio.start_server(answer, HOST, 0)
    port = server.sockets[0].getsockname()[1]

    async def look(spec: Obj) -> Outcome:
        return await Probe("Readiness", spec | {"timeoutSeconds": 60}, HOST, {"web": port}, never).look()

    async with server:
        assert (await look({"httpGet": {"port": "web", "path": "/ok"}})).ok
        assert (await look({"httpGet": {"port": port, "path": "/moved"}})).ok
        broken = await look({"httpGet": {"port": port, "path": "/broken"}})
        assert broken == Outcome(False, "HTTP probe failed with statuscode: 500", 500)
        assert (await look({"tcpSocket": {"port": "web"}})).ok
        assert not (await look({"tcpSocket": {"port": "nameless"}})).ok
    refused = f"dial tcp {HOST}:{port}: connect: connection refused"
    assert await look({"tcpSocket": {"port": port}}) == Outcome(False, refused)
    url = f"http://{HOST}:{port}/ok"
    assert await look({"httpGet": {"port": port, "path": "ok"}}) == Outcome(False, f'Get "{url}": {refused}')


async def test_every_failure_that_counts_is_told() -> None:
    clock, told = ManualClock(), list[str]()
    probe = Scripted("Liveness", {"periodSeconds": 1, "failureThreshold": 3}, "", {}, never, answers=[False])
    task = asyncio.create_task(keep_looking(probe, clock, lambda _: None, told.append))
    for _ in range(35):
        await clock.advance(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert told == ["no"] * 3


async def test_a_probe_over_tls_asks_with_its_headers_and_trusts_anybody(tmp_path: Path) -> None:
    pair = pki.issue(pki.create_authority("nobody known"), "somebody", server=True)
    (tmp_path / "pair.pem").write_text(pair.certificate + pair.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pair.pem")
    heads = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        headers = [{"name": "host", "value": "web.example.com"}, {"name": "X-Ask", "value": "1"}]
        target = {"port": port, "path": "/h", "scheme": "HTTPS", "httpHeaders": headers}
        probe = Probe("Readiness", {"httpGet": target, "timeoutSeconds": 30}, "127.0.0.1", {}, never)
        assert (await probe.look()).ok
    lines = heads[0].decode().lower().split("\r\n")
    assert [line for line in lines if line.startswith("host:")] == ["host: web.example.com"]
    assert "x-ask: 1" in lines
    assert "user-agent: kube-probe/1.35" in lines


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"\x08\x01", Outcome(True)),
        (b"\x08\x02", Outcome(False, 'service unhealthy (responded with "NOT_SERVING")')),
        (b"", Outcome(False, 'service unhealthy (responded with "UNKNOWN")')),
    ],
)
async def test_a_grpc_probe_asks_the_health_service(answer: bytes, outcome: Outcome) -> None:
    asked = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 1:
                asked.append(payload)
            if head[3] == 0:
                asked.append(payload)
                break
        message = b"\0" + len(answer).to_bytes(4, "big") + answer
        # Settings, a ping, headers (":status 200", indexed), the message, and trailers that end the stream.
        writer.write(frame(4, 0, 0) + frame(6, 0, 0, b"12345678") + frame(1, 4, 1, b"\x88"))
        writer.write(frame(0, 0, 1, message) + frame(1, 5, 1, b"\x00\x0bgrpc-status\x010"))
        await writer.drain()
        assert await reader.read() != b""  # what it acknowledged
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        spec = {"grpc": {"port": port, "service": "shop"}, "timeoutSeconds": 30}
        assert await Probe("Liveness", spec, "127.0.0.1", {}, never).look() == outcome
    assert b"/grpc.health.v1.Health/Check" in asked[0]
    assert asked[1] == b"\0\0\0\0\x06\x0a\x04shop"


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
    await asyncio.wait_for(task, 60)
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


def test_a_log_that_cannot_be_rotated_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, full = tmp_path / "0.log", Path("/dev/full")
    path.write_text("x" * 100)
    (tmp_path / "0.log.moving").symlink_to(full)
    assert not rotate(path, 50)
    assert path.read_text() == "x" * 100 and [each.name for each in tmp_path.iterdir()] == ["0.log"]
    assert "No space left on device" in caplog.text
    assert rotate(path, 50), "and is tried again"


_WRITER = """
import os, sys
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(int(sys.argv[2])):
    os.write(out, b"%d\\n" % number)
"""


async def test_rotation_takes_no_line_from_one_who_writes_and_none_from_one_who_follows(tmp_path: Path) -> None:
    path, lines = tmp_path / "0.log", 200_000
    path.touch()
    if not _takes_blocks_out(tmp_path):
        pytest.skip("the file system of this directory cannot take blocks out of a file")
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, str(path), str(lines))
    heard, kept, rotations = b"", b"", 0
    async for chunk in read_log(path, LogOptions(follow=True), "", lambda: writer.returncode is None, SystemClock()):
        heard += chunk
        if rotate(path, 100_000):
            rotations += 1
            kept += (tmp_path / "0.log.1").read_bytes()
    assert rotations > 0
    assert kept + path.read_bytes() == heard == b"".join(b"%d\n" % number for number in range(lines))


async def _all(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def _takes_blocks_out(folder: Path) -> bool:
    """Whether rotation leaves the end of a log where it is."""
    probe = folder / "probe"
    probe.write_bytes(b"x" * 20_000)
    return rotate(probe, 1) and probe.stat().st_size > 0


async def test_one_who_follows_misses_nothing_of_a_log_that_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that cannot take blocks out: what was not read is in the piece, what came since is not."""
    monkeypatch.setattr(container_logs, "_COLLAPSE_RANGE", -1)
    path, clock = tmp_path / "0.log", ManualClock()
    path.write_text("read\n")
    alive = [True]
    chunks = read_log(path, LogOptions(follow=True), "", lambda: alive[0], clock)
    assert await anext(chunks) == b"read\n"
    with path.open("a") as stream:
        stream.write("unread\n" * 2)
    assert rotate(path, 1) and path.stat().st_size == 0
    with path.open("a") as stream:
        stream.write("more than before\n" * 5)
    alive[0] = False
    assert await _all(chunks) == b"unread\n" * 2 + b"more than before\n" * 5


@pytest.mark.parametrize("collapse", [container_logs._COLLAPSE_RANGE, -1])
async def test_one_who_reads_slowly_misses_nothing_of_two_rotations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collapse: int
) -> None:
    monkeypatch.setattr(container_logs, "_COLLAPSE_RANGE", collapse)
    path, alive = tmp_path / "0.log", [True]
    written = "old\n" * 3000
    path.write_text(written)
    assert rotate(path, 1), "a piece from before is none that was missed"
    path.write_text("first\n")
    chunks = read_log(path, LogOptions(follow=True), "", lambda: alive[0], ManualClock())
    heard = await anext(chunks)
    for name in ("second", "third"):
        with path.open("a") as stream:
            stream.write(f"{name}\n" * 3000)
        assert rotate(path, 1)
    with path.open("a") as stream:
        stream.write("last\n")
    alive[0] = False
    heard += await _all(chunks)
    assert heard.decode() == "first\n" + "second\n" * 3000 + "third\n" * 3000 + "last\n"


def test_bad_log_options_are_refused() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="tailLines must be a whole number"):
        parse_options({"tailLines": "-1"}, now)
    assert parse_options({"sinceSeconds": "60", "follow": "true"}, now).since == datetime(
        2025, 12, 31, 23, 59, tzinfo=UTC
    )

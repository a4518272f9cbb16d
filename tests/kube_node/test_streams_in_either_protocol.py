"""kubectl speaks WebSocket; kube-apiserver, and kubectl when told to, SPDY. Both reach the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from regional.core import upgrades
from regional.kube.node import exec_sessions
from tests.kube_node.harness import NodeCluster, ask, eventually, pod, readiness

_WEBSOCKET: dict[str, str] = {}
_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
either = pytest.mark.parametrize("env", [_WEBSOCKET, _SPDY], ids=["websocket", "spdy"])


@either
async def test_exec(cluster: NodeCluster, env: dict[str, str]) -> None:
    await cluster.client.create(pod("box", image="exec:sleep", command=["sleep", "600"]))
    await cluster.ready("box")
    script = "echo said; echo oops >&2; exit 7"
    code, output, errors = await cluster.kubectl("exec", "box", "--", "sh", "-c", script, **env)
    assert (code, output) == (7, "said\n")
    assert errors.startswith("oops\n")
    text = "".join(f"line {number}\n" for number in range(50_000))
    assert await cluster.kubectl("exec", "-i", "box", "--", "cat", text=text, **env) == (0, text, "")


@either
async def test_input_that_nobody_reads_keeps_no_command_and_no_session(
    cluster: NodeCluster, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_sessions, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(upgrades, "LINGER_SECONDS", 0.2)
    await cluster.client.create(pod("box", image="exec:sleep", command=["sleep", "600"]))
    box = await cluster.ready("box")
    much = "x" * (16 << 20)
    assert (await cluster.kubectl("exec", "-i", "box", "--", "true", text=much, **env))[0] == 0
    pid_file = cluster.root / "pods" / box["metadata"]["uid"] / "containers/main/rootfs/pid"
    process = await cluster.start_kubectl("exec", "-i", "box", "--", "sh", "-c", "echo $$ > pid; exec sleep 600", **env)
    assert process.stdin is not None
    process.stdin.write(much.encode())
    number = await eventually(lambda: pid_file.exists() and pid_file.read_text().strip())
    await _until_stuck(process.stdin)
    assert cluster.lives(int(number))
    process.kill()
    await process.wait()
    await eventually(lambda: not cluster.lives(int(number)))
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name() in _SESSIONS])


_SESSIONS = ("spdy", "upgrade /exec/default/box/main")


async def _until_stuck(writer: asyncio.StreamWriter) -> None:
    """Until every buffer between the client and the command is full."""
    before = -1
    while writer.transport.get_write_buffer_size() != before:
        before = writer.transport.get_write_buffer_size()
        await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def forwarded(cluster: NodeCluster, env: dict[str, str], port: int = 8000) -> AsyncIterator[int]:
    """The local port that kubectl listens on."""
    process = await cluster.start_kubectl("port-forward", "pod/web", f":{port}", **env)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("Forwarding from 127.0.0.1:"), line
        yield int(line.split(":")[1].split()[0])
    finally:
        process.kill()
        await process.communicate()


@either
async def test_port_forward(cluster: NodeCluster, env: dict[str, str]) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    await cluster.ready("web")
    async with forwarded(cluster, env) as port:
        assert await ask("127.0.0.1", port=port) == "web"
        answers = await asyncio.gather(*(ask("127.0.0.1", "/env/HOSTNAME", port) for _ in range(20)))
        assert answers == ["web"] * 20


@either
async def test_much_passes_both_ways_through_a_forwarded_port(cluster: NodeCluster, env: dict[str, str]) -> None:
    await cluster.client.create(pod("web", "echo", "8000", readinessProbe={"tcpSocket": {"port": 8000}}))
    await cluster.ready("web")
    sent = bytes(range(256)) * 8000
    async with forwarded(cluster, env) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(120):
            assert await reader.readexactly(len(sent)) == sent
        writer.close()


async def test_a_port_where_nobody_listens_is_told(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    await cluster.ready("web")
    process = await cluster.start_kubectl("port-forward", "pod/web", ":8001")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        port = int((await process.stdout.readline()).decode().split(":")[1].split()[0])

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError):  # closed in either way
            assert await reader.read() == b""
        writer.close()
        said = ""
        async with asyncio.timeout(120):
            while "error forwarding port 8001 to pod web" not in said:
                said = (await process.stderr.readline()).decode()
                assert said
        assert "connection refused" in said
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()

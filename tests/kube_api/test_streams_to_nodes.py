"""exec, attach and port-forward: what the API says to a node in its own name, and what such a stream counts for."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from regional.core import pki
from regional.kube.apiserver.front import listening
from regional.kube.apiserver.limits import Limits

from .harness import Api, Obj, make_pki, start_server
from .test_https_front import own_address
from .test_many_clusters import Hosted, running

PATIENCE = 60.0
PODS = "/api/v1/namespaces/default/pods"
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: v5.channel.k8s.io")
ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Node:
    """Plays the kubelet: notes what it is told, says yes, and sends back what comes then."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(ACCEPTED)
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()


@contextlib.asynccontextmanager
async def node_at(address: str, folder: Path) -> AsyncIterator[Node]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    node = Node()
    server = await asyncio.start_server(node.answer, address, 10250, ssl=tls)
    try:
        yield node
    finally:
        server.close()


async def place_pod(api: Api, address: str) -> None:
    node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await api.post("/api/v1/nodes", node)
    node["status"] = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    assert (await api.patch("/api/v1/nodes/n1/status", node)).status == 200
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.post("/api/v1/namespaces/default/serviceaccounts", account)
    containers = [{"name": "main", "image": "x"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": containers, "nodeName": "n1"},
    }
    assert (await api.post(PODS, pod)).status == 201


class Door:
    def __init__(self, address: str, tls: ssl.SSLContext, node: Node) -> None:
        self.address, self.tls, self.node = address, tls, node

    @contextlib.asynccontextmanager
    async def ask(self, *sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.address, 6443, ssl=self.tls)
        try:
            writer.write(b"".join(sent))
            async with asyncio.timeout(PATIENCE):
                yield reader, writer
        finally:
            writer.transport.abort()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    address = own_address()
    folder = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", folder, address=address, port=6443)
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    tls.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    await place_pod(Api(server), address)
    async with node_at(address, folder) as node, listening(server, folder):
        yield Door(address, tls, node)
    await server.stop()


def head(target: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: kubernetes", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    "ports",
    [
        "80 HTTP/1.1\r\nHost: x\r\n\r\nGET /exec/other/pod/main?command=id&output=1",
        "80\r\nX-More: 1",
        "",
        "-1",
        "65536",
    ],
)
async def test_nobody_writes_into_what_the_api_tells_a_node(door: Door, ports: str) -> None:
    """The node trusts the API with everything: a port must not be a way to ask it for something else."""
    async with door.ask(head(f"{PODS}/web/portforward?ports={quote(ports)}", *WEBSOCKET)) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    assert door.node.heads == []


async def test_ports_reach_the_node_as_they_are(door: Door) -> None:
    async with door.ask(head(f"{PODS}/web/portforward?ports=80,443&ports=8080", *WEBSOCKET)) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
    assert door.node.heads[0].startswith(b"GET /portForward/default/web?port=80,443,8080 HTTP/1.1\r\n")


@pytest.mark.parametrize("kind", ["h2c", "nonsense"])
async def test_a_connection_that_cannot_become_a_stream_opens_none_to_the_node(door: Door, kind: str) -> None:
    asked = head(f"{PODS}/web/exec?command=id&stdout=1", "Connection: Upgrade", f"Upgrade: {kind}")
    async with door.ask(asked) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    assert door.node.heads == []


@pytest.mark.parametrize("part", ["exec", "exec/", "ex%65c", "/exec"])
async def test_a_stream_is_known_however_its_path_is_written(door: Door, part: str) -> None:
    async with door.ask(head(f"{PODS}/web/{part}?command=id&stdout=1", *WEBSOCKET), b"early") as (reader, writer):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"early"
        writer.write(b"late")
        assert await reader.readexactly(4) == b"late"


async def test_a_stream_begins_after_its_own_head_only(door: Door) -> None:
    """The head may come in any pieces."""
    asked = head(f"{PODS}/web/exec?command=id&stdout=1", *WEBSOCKET)
    async with door.ask(asked[:-1]) as (reader, writer):
        await writer.drain()
        await asyncio.sleep(0.1)  # so that it probably is a piece of its own; together they must do as well
        writer.write(asked[-1:] + b"early")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(5) == b"early"


async def test_no_answer_to_another_request_gets_into_a_stream(door: Door) -> None:
    """Nor does a request that must wait for its turn open a way to the node which nobody goes."""
    asked = head("/api/v1/nodes"), head(f"{PODS}/web/exec?command=id&stdout=1", *WEBSOCKET)
    async with door.ask(*asked) as (reader, _):
        first = await reader.readuntil(b"\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 200 ")
        await reader.readexactly(int(first.lower().partition(b"content-length: ")[2].split()[0]))
        second = await reader.readline()
        assert (second[:13], door.node.heads) == (b"HTTP/1.1 400 ", []) or second[:13] == b"HTTP/1.1 101 "


async def test_an_upgrade_that_asks_for_a_watch_is_refused(door: Door) -> None:
    async with door.ask(head("/api/v1/namespaces/pods/configmaps/exec?watch=1", *WEBSOCKET)) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")


async def test_streams_count_while_they_last(tmp_path: Path) -> None:
    address = own_address()
    async with running(tmp_path) as hosted:
        kubeconfig = await hosted.host.create("shop", Limits(streams=1))
        await place_pod(await hosted.api("shop"), address)
        turnstile = hosted.host._clusters["shop"].turnstile
        async with node_at(address, _node_pki(hosted, "shop", address)) as node:
            door = Door(address, hosted.tls(kubeconfig, "shop"), node)
            asked = head(f"/c/shop{PODS}/web/exec?command=id&stdout=1", *WEBSOCKET)
            async with door.ask(asked) as (reader, _):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
                assert turnstile.connections == 1
                async with door.ask(asked) as (second, _):
                    assert (await second.readline()).startswith(b"HTTP/1.1 429 ")
            async with asyncio.timeout(PATIENCE):
                while turnstile.connections or not turnstile.empty:
                    await asyncio.sleep(0.02)


def _node_pki(hosted: Hosted, name: str, address: str) -> Path:
    """What a node of that cluster shows."""
    pair = pki.issue(hosted.host.identity(name).authority, "node", server=True, addresses=[address])
    (hosted.folder / "kubelet.crt").write_text(pair.certificate)
    (hosted.folder / "kubelet.key").write_text(pair.key)
    return hosted.folder

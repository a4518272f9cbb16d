"""The client against a listening API: certificates, tokens, a path prefix, and a server that goes and comes back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import queue
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from regional.core import pki
from regional.core.web import serving
from regional.kube.apiserver.clients import ClientConnection
from regional.kube.apiserver.connections import Received
from regional.kube.apiserver.front import Front, OneCluster, listening, tls_context
from regional.kube.apiserver.server import ApiServer
from regional.kube.client import ApiError, ApiUnreachable, Client, Informer
from regional.kube.client.transport import HttpTransport
from regional.kube.messages import Response
from regional.kube.objects import Obj, name_of
from tests.kube_clients.harness import own_address
from tests.kube_controllers.harness import eventually, write_account_key

ADDRESS = own_address()
PORT = 6443  # not one of those that the kernel gives to clients: while the server is away nobody takes it


def config(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


class Listener:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pki = directory / "pki"
        write_account_key(self.pki)
        (directory / "data").mkdir()
        self.authority = pki.create_authority("test")
        server = pki.issue(self.authority, "kube-apiserver", addresses=[ADDRESS], server=True)
        (self.pki / "ca.crt").write_text(self.authority.certificate)
        (self.pki / "apiserver.crt").write_text(server.certificate)
        (self.pki / "apiserver.key").write_text(server.key)
        self.port = PORT
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.server = ApiServer(
            self.directory / "data", self.pki, service_cidr="127.90.1.0/24", address=ADDRESS, port=self.port
        )
        await self.server.start()
        self._stack.push_async_callback(self.server.stop)
        await self._stack.enter_async_context(listening(self.server, self.pki))
        self._stack.callback(self.server.store.close_watches)

    async def stop(self) -> None:
        await self._stack.aclose()

    def kubeconfig(self, name: str = "admin", group: str = "system:masters", **cluster: Any) -> Path:
        pair = pki.issue(self.authority, name, organizations=[group])
        return self.write(
            {"client-certificate-data": _inline(pair.certificate), "client-key-data": _inline(pair.key)}, **cluster
        )

    def write(self, user: dict[str, Any], **cluster: Any) -> Path:
        ca = {"certificate-authority-data": _inline(self.authority.certificate)}
        document = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"https://{ADDRESS}:{self.port}"} | ca | cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = self.directory / f"kubeconfig-{os.urandom(4).hex()}"
        path.write_text(yaml.safe_dump(document))
        return path


def _inline(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    made = Listener(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_a_certificate_says_who_is_asking(listener: Listener) -> None:
    async with Client.from_kubeconfig(listener.kubeconfig()) as client:
        await client.create(config("a"))
        assert name_of(await client.get("v1", "ConfigMap", "a", "default")) == "a"
    async with Client.from_kubeconfig(listener.kubeconfig("joe", "nobodies")) as stranger:
        with pytest.raises(ApiError, match='User "joe" cannot get resource "configmaps"') as refusal:
            await stranger.get("v1", "ConfigMap", "a", "default")
    assert (refusal.value.status, refusal.value.reason) == (403, "Forbidden")


async def test_a_pod_uses_its_mounted_account(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client.from_kubeconfig(listener.kubeconfig()) as admin:
        await admin.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot", "namespace": "default"}}
        )
        request: Obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await admin.create_in("v1", "ServiceAccount", "bot", "default", "token", request)
    directory = listener.directory / "root/var/run/secrets/kubernetes.io/serviceaccount"
    directory.mkdir(parents=True)
    (directory / "ca.crt").write_text(listener.authority.certificate)
    (directory / "token").write_text("stale")
    monkeypatch.setenv("POD_ROOT", str(listener.directory / "root"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", ADDRESS)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(listener.port))
    review: Obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with Client.in_cluster() as client:
        with pytest.raises(ApiError) as refused:
            await client.create(review)
        assert refused.value.status == 401
        (directory / "token.new").write_text(answer["status"]["token"])
        (directory / "token.new").replace(directory / "token")
        me = await client.create(review)
    assert me["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"


async def test_a_path_prefix_is_kept(listener: Listener) -> None:
    """Many clusters behind one listener: every request carries the prefix, watches and discovery too."""
    escaped = []

    class Prefixed(Front):
        async def __call__(self, received: Received) -> Response:
            if not received.target.startswith(b"/c/mc01/"):
                escaped.append(received.target)
            received.target = received.target.removeprefix(b"/c/mc01")
            return await super().__call__(received)

    port = PORT + 1
    inner = Prefixed(OneCluster(listener.server))
    async with serving(inner, ADDRESS, port, tls=tls_context(listener.pki), http=ClientConnection):
        server = f"https://{ADDRESS}:{port}/c/mc01"
        async with Client.from_kubeconfig(listener.kubeconfig(server=server)) as client:
            await client.create(config("a"))
            assert await client.resources()
            events = client.watch("v1", "ConfigMap", "default", resource_version="0")
            async with contextlib.aclosing(events):
                kind, obj = await anext(events)
                while name_of(obj) != "a":
                    kind, obj = await anext(events)
                assert kind == "ADDED"
    assert escaped == []


async def test_a_server_that_is_not_trusted_is_named(listener: Listener) -> None:
    other = pki.create_authority("other")
    config_file = listener.write({"token": "t"}, **{"certificate-authority-data": _inline(other.certificate)})
    async with Client.from_kubeconfig(config_file) as client:
        with pytest.raises(ApiUnreachable, match="certificate is not trusted"):
            await client.list("v1", "ConfigMap")


async def test_a_server_that_is_away_is_named(listener: Listener) -> None:
    async with Client.from_kubeconfig(listener.kubeconfig()) as client:
        await client.create(config("a"))
        await listener.stop()
        with pytest.raises(ApiUnreachable, match=f"{listener.port}/api/v1/namespaces/default/configmaps: Connect"):
            await client.create(config("b"))
        await listener.start()
        assert "a" in [name_of(obj) for obj in await client.list("v1", "ConfigMap", "default")]


async def test_a_read_in_the_moment_of_a_restart_succeeds(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    refused, back = asyncio.Event(), asyncio.Event()
    send = HttpTransport._send

    async def sent(transport: HttpTransport, *request: Any) -> Any:
        """The first time nobody is there; the second time the server is, however long it took to come back."""
        if refused.is_set():
            await back.wait()
        try:
            return await send(transport, *request)
        except OSError:
            refused.set()
            raise

    async with Client.from_kubeconfig(listener.kubeconfig()) as client:
        await client.create(config("a"))
        await listener.stop()
        monkeypatch.setattr(HttpTransport, "_send", sent)
        reading = asyncio.create_task(client.get("v1", "ConfigMap", "a", "default"))
        await asyncio.wait_for(refused.wait(), 60)
        await listener.start()
        back.set()
        assert name_of(await reading) == "a"


async def test_an_informer_outlives_the_server(listener: Listener) -> None:
    async with Client.from_kubeconfig(listener.kubeconfig()) as client:
        informer = Informer(client, "v1", "ConfigMap", "default")
        informer.start()
        await client.create(config("before"))
        await listener.stop()
        await listener.start()
        async with Client.from_kubeconfig(listener.kubeconfig()) as other:
            await other.create(config("after"))

        async def both() -> bool:
            return {("default", "before"), ("default", "after")} <= set(informer.objects)

        await eventually(both)
        assert informer.relists == 1
        await informer.stop()


def _answer_and_say_no_more(listening: socket.socket, tls: ssl.SSLContext, ended: queue.Queue[str]) -> None:
    """Begin an answer, never end it, and tell how the client went away."""
    accepted, _ = listening.accept()
    with tls.wrap_socket(accepted, server_side=True, suppress_ragged_eofs=False) as connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n")
        try:
            ended.put("with a goodbye that it waits to have answered" if connection.recv(1) == b"" else "never")
        except OSError:
            ended.put("at once")


async def test_a_stream_that_is_left_does_not_wait_for_the_servers_goodbye(tmp_path: Path) -> None:
    authority = pki.create_authority("test")
    pair = pki.issue(authority, "server", addresses=[ADDRESS], server=True)
    for name, text in (("ca", authority.certificate), ("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_text(text)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    ended: queue.Queue[str] = queue.Queue()
    with socket.create_server((ADDRESS, 0)) as server:
        peer = threading.Thread(target=_answer_and_say_no_more, args=(server, tls, ended))
        peer.start()
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca"))
        transport = HttpTransport(f"https://{ADDRESS}:{server.getsockname()[1]}", tls=trust)
        stream = await transport.stream("GET", "/", [], {})
        assert [chunk async for chunk in _first(stream.chunks())] == [b"abcd"]
        await stream.close()
        await asyncio.to_thread(peer.join)
        await transport.close()
    assert ended.get_nowait() == "at once"


async def _first(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk
        return

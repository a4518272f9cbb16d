"""The API over HTTPS: certificates, tokens, limits, streams, a node's logs behind it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from regional.kube.apiserver.front import listening

from .harness import Api, config_map, make_pki, start_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def own_address() -> str:
    """A loopback address of this process's own, so that parallel tests can all use the API's port."""
    number = os.getpid()
    return f"127.{180 + number % 20}.{number // 20 % 250}.{1 + number // 5000 % 250}"


class Front:
    def __init__(self, api: Api, pki: Path, session: aiohttp.ClientSession) -> None:
        self.api, self.pki, self.session = api, pki, session
        self.url = f"https://{api.server.address}:{api.server.port}"

    def tls(self, user: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        if user:
            context.load_cert_chain(self.pki / f"{user}.crt", self.pki / f"{user}.key")
        return context

    async def call(self, method: str, path: str, user: str = "admin", **options: Any) -> tuple[int, Any, Any]:
        async with self.session.request(method, self.url + path, ssl=self.tls(user), **options) as answer:
            kind = answer.headers.get("content-type", "")
            body = await answer.json() if "json" in kind else await answer.text()
            return answer.status, body, answer.headers


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    address = own_address()
    pki = make_pki(tmp_path / "pki", address)
    server = await start_server(tmp_path / "data", pki, address=address, port=6443)
    async with listening(server, pki), aiohttp.ClientSession() as session:
        yield Front(Api(server), pki, session)
        server.store.close_watches()
    await server.stop()


async def test_certificate_names_the_user_and_none_is_anonymous(front: Front) -> None:
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    status, body, _ = await front.call("POST", who, "joe", json={})
    assert status == 201
    info = body["status"]["userInfo"]
    assert (info["username"], info["groups"]) == ("joe", ["devs", "system:authenticated"])
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    status, body, headers = await front.call("GET", CONFIG_MAPS, "")
    assert status == 403 and 'User "system:anonymous" cannot list' in body["message"]
    assert headers["Audit-Id"] and headers["Cache-Control"] == "no-cache, private"
    assert (await front.call("GET", "/healthz", ""))[1] == "ok"


async def test_token_authenticates_and_a_bad_one_is_401(front: Front) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}
    await front.api.post(accounts, account)
    token = (await front.api.post(f"{accounts}/bot/token", {})).body["status"]["token"]
    bearer = {"authorization": f"Bearer {token}"}
    status, body, _ = await front.call("GET", CONFIG_MAPS, "", headers=bearer)
    assert status == 403 and 'User "system:serviceaccount:default:bot"' in body["message"]
    status, body, _ = await front.call("GET", "/version", "", headers={"authorization": "Bearer x"})
    assert status == 401 and body["reason"] == "Unauthorized"


async def test_oversize_body_is_refused_and_warnings_are_headers(front: Front) -> None:
    big = io.BytesIO(b"x" * (3 * 1024 * 1024 + 1))
    status, body, _ = await front.call("POST", CONFIG_MAPS, data=big)
    assert (status, body["message"]) == (413, "Request entity too large: limit is 3145728")
    status, _, headers = await front.call("POST", CONFIG_MAPS, json=config_map("a") | {"junk": 1})
    assert (status, headers["Warning"]) == (201, '299 - "unknown field \\"junk\\""')


async def test_watch_sends_headers_at_once_and_ends_with_the_server(front: Front) -> None:
    url = f"{front.url}{CONFIG_MAPS}?watch=true&resourceVersion={front.api.server.store.revision}"
    async with asyncio.timeout(60), front.session.get(url, ssl=front.tls("admin")) as answer:
        assert answer.status == 200 and answer.headers["Transfer-Encoding"] == "chunked"
        await front.api.post(CONFIG_MAPS, config_map("a"))
        line = await answer.content.readline()
        assert b'"type":"ADDED"' in line
        front.api.server.store.close_watches()
        assert await answer.content.read() == b""


async def test_watcher_that_leaves_is_forgotten(front: Front) -> None:
    url = f"{front.url}{CONFIG_MAPS}?watch=true&resourceVersion=1"
    shelf = front.api.server.store.shelf("configmaps")
    async with aiohttp.ClientSession() as other:
        answer = await other.get(url, ssl=front.tls("admin"))
        assert len(shelf._mailboxes) == 1
        answer.close()
    async with asyncio.timeout(60):
        while shelf._mailboxes:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def kubelet(pki: Path, address: str) -> AsyncIterator[int]:
    """A node's log endpoint: wants the API's client certificate, tells what it was asked."""

    async def logs(request: web.Request) -> web.Response:
        place = "/".join(request.match_info[key] for key in ("namespace", "pod", "container"))
        return web.Response(text=f"{place} {request.query_string}\n")

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, address, 10250, ssl_context=tls)
    await site.start()
    try:
        yield 10250
    finally:
        await runner.cleanup()


async def test_logs_come_from_the_node_the_pod_is_on(front: Front) -> None:
    api, address = front.api, front.api.server.address
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    }
    assert (await api.post("/api/v1/nodes", node)).status == 201
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.post("/api/v1/namespaces/default/serviceaccounts", account)
    containers = [{"name": name, "image": "regional/regional:1"} for name in ("one", "two")]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert (await api.post("/api/v1/namespaces/default/pods", pod)).status == 201
    logs = "/api/v1/namespaces/default/pods/p/log"
    await api.post("/api/v1/namespaces/default/pods/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n1"}})
    status, body, _ = await front.call("GET", logs)
    assert status == 400
    assert body["message"] == "a container name must be specified for pod p, choose one of: [one two]"
    status, body, _ = await front.call("GET", f"{logs}?container=three")
    assert (status, body["message"]) == (400, "container three is not valid for pod p")
    assert (await front.call("GET", f"{logs}?container=two"))[0] == 500  # nobody listens there yet
    async with kubelet(front.pki, address):
        status, text, headers = await front.call("GET", f"{logs}?container=two&tailLines=5&follow=true")
    assert (status, text) == (200, "default/p/two tailLines=5&follow=true\n")
    assert headers["Content-Type"] == "text/plain"

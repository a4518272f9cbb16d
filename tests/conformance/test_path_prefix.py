"""A server behind a path prefix: clients keep to it, whatever they ask.

The prefix is taken off by a proxy, which any of the servers can stand behind; it notes every path that came without.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from .objects import deployment
from .servers import Cluster
from .wire import Http, Shell

PREFIX = "/c/one"


class Prefixed:
    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.escaped: list[str] = []


@pytest.fixture
async def prefixed(cluster: Cluster) -> AsyncIterator[Prefixed]:
    if cluster.users["admin"].token:
        pytest.skip("the proxy speaks for the client by its certificate")
    connector = aiohttp.TCPConnector(ssl=cluster.tls("admin"), limit=0, resolver=aiohttp.ThreadedResolver())
    session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def forward(request: web.Request) -> web.StreamResponse:
        if not request.raw_path.startswith(f"{PREFIX}/"):
            there.escaped.append(request.raw_path)
            return web.Response(status=404)
        path = request.raw_path.removeprefix(PREFIX)
        there.asked.append(path)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
        url = URL(cluster.url + path, encoded=True)
        body = await request.read()
        async with session.request(request.method, url, headers=headers, data=body or None) as answer:
            hop = ("transfer-encoding", "connection", "content-length")
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in hop}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=4 * 1024 * 1024)
    app.router.add_route("*", "/{tail:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    there = Prefixed(f"http://127.0.0.1:{runner.addresses[0][1]}{PREFIX}")
    yield there
    await runner.cleanup()
    await session.close()


@pytest.mark.check(14)
async def test_kubectl_keeps_to_the_prefix(
    prefixed: Prefixed, cluster: Cluster, namespace: str, http: Http, deployments: str, tmp_path: Path
) -> None:
    kubectl = Shell(tmp_path, cluster.kubeconfig(namespace=namespace, url=prefixed.url))
    assert "deploy" in await kubectl("api-resources")
    assert "Number of desired pods." in await kubectl("explain deploy.spec.replicas")
    (await http.post(deployments, deployment("web"))).ok(201)
    assert (await kubectl("get deploy")).splitlines()[1].startswith("web")
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: one}}"
    assert "configmap/a created" in await kubectl("apply -f -", stdin=text)
    assert "configmap/a serverside-applied" in await kubectl("apply --server-side -f -", stdin=text)
    assert 'configmap "a" deleted' in await kubectl("delete configmap a")
    assert "Server Version: v1.35" in await kubectl("version")
    assert prefixed.asked and prefixed.escaped == []

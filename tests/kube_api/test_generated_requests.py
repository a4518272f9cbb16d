"""Thousands of requests made up from the server's own OpenAPI documents: none breaks it, and it does not grow.

GENERATED_REQUESTS=100000 makes it longer, GENERATED_SEED=7 another.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from yarl import URL

from tests.conformance.servers import EmbeddedCluster

from .generating import Asked, Generator, Obj
from .test_custom_resources import CRDS, crd

COUNT = int(os.environ.get("GENERATED_REQUESTS", "3000"))
SEED = int(os.environ.get("GENERATED_SEED", "1"))
LANES = 8
GROWTH = 150_000  # kB: what is stored, and what the watch ring may hold
PATIENCE = 120.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    made = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), controllers=False)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Asking:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        connector = aiohttp.TCPConnector(ssl=cluster.tls("admin"), limit=0, resolver=aiohttp.ThreadedResolver())
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        self.session = aiohttp.ClientSession(connector=connector, timeout=timeout, skip_auto_headers=["Content-Type"])
        self.broken: list[tuple[Asked, int, bytes]] = []
        self.counts: dict[int, int] = {}

    async def document(self, path: str) -> Obj:
        async with self.session.get(self._cluster.url + path) as answer:
            assert answer.status == 200
            return msgspec.json.decode(await answer.read(), type=Obj)

    async def post(self, path: str, body: Obj) -> int:
        async with self.session.post(self._cluster.url + path, json=body) as answer:
            return answer.status

    async def all(self, requests: list[Asked]) -> None:
        waiting = iter(requests)

        async def lane() -> None:
            for asked in waiting:
                await self._one(asked)

        await asyncio.gather(*(lane() for _ in range(LANES)))

    async def _one(self, asked: Asked) -> None:
        url = URL(self._cluster.url + asked.target, encoded=True)
        async with self.session.request(
            asked.method, url, data=asked.body, headers=asked.headers, allow_redirects=False
        ) as answer:
            self.counts[answer.status] = self.counts.get(answer.status, 0) + 1
            if answer.status == 200 and asked.streams:
                answer.close()  # it may go on for ever
                return
            content = await answer.read()
            if answer.status >= 500 and not _beyond_the_server(asked, answer.status):
                self.broken.append((asked, answer.status, content[:500]))


def _beyond_the_server(asked: Asked, status: int) -> bool:
    """Pods are on nodes, of which there are none."""
    return status in (500, 502, 503) and re.search(r"/(log|exec|attach|portforward|proxy)\b", asked.target) is not None


def resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


@pytest.mark.timeout(600 + COUNT)
async def test_no_generated_request_breaks_the_server_or_makes_it_grow(cluster: EmbeddedCluster) -> None:
    (process,) = cluster._running
    asking = Asking(cluster)
    async with asking.session:
        assert await asking.post(CRDS, crd()) == 201
        await _served(asking, "apis/demo.io/v1")
        index = (await asking.document("/openapi/v3"))["paths"]
        documents = [await asking.document(entry["serverRelativeURL"]) for entry in index.values()]
        requests = Generator(documents, random.Random(SEED)).requests(COUNT)
        warm = COUNT // 2
        await asking.all(requests[:warm])
        before = resident(process.pid)
        await asking.all(requests[warm:])
        assert process.poll() is None
        assert await asking.post("/api/v1/namespaces", {"metadata": {"name": "afterwards"}}) == 201
        assert (await asking.document("/version"))["major"] == "1"
    log = (cluster.folder / "log").read_text(errors="replace")
    assert asking.broken == []
    assert "Traceback" not in log, log[-4000:]
    assert resident(process.pid) < before + GROWTH
    assert asking.counts.get(201, 0) > 3 and asking.counts.get(200, 0) > 100, asking.counts


async def _served(asking: Asking, group: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while group not in (await asking.document("/openapi/v3"))["paths"]:
            await asyncio.sleep(0.05)

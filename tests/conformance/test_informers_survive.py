"""Watches are cut, the server is killed, history is lost: in the end every cache equals the store.

Our own informers and a list-and-watch loop over the official Python client, both through a line that breaks.
SOAK_SECONDS=600 makes it longer, SOAK_SEEDS=7,8 adds seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes import watch as official_watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Key, Obj, key_of, version_of
from tests.kube_client.story import Story

from .cutting_proxy import CuttingProxy
from .servers import Cluster, ProcessCluster, flavour, make_cluster

SEEDS = [1, 2, *map(int, filter(None, os.environ.get("SOAK_SEEDS", "").split(",")))]
SECONDS = float(os.environ.get("SOAK_SECONDS", "3"))
KILLS = max(1, int(SECONDS / 10))
PATIENCE = 120.0
LONG_ABSENCE = 2_200
"""Writes that no server remembers over a restart, so that who was away has to list again."""
LANES = 16

Cache = dict[Key, str]


class Reflector(threading.Thread):
    """List and watch as the official client's users write it; a broken watch goes on from the last revision seen."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(daemon=True)
        self._api = official_config.new_client_from_config(str(kubeconfig))
        self._core = official.CoreV1Api(self._api)
        self.cache: Cache = {}
        self._version = ""
        self.leaving = False
        self.lists = 0

    def run(self) -> None:
        while not self.leaving:
            try:
                if not self._version:
                    self._list()
                self._follow()
            except ApiException as error:
                if error.status == 410:
                    self._version = ""
                time.sleep(0.05)
            except (HTTPError, OSError, ValueError):
                time.sleep(0.05)  # a cut can also leave half a line of JSON

    def _list(self) -> None:
        found = self._core.list_config_map_for_all_namespaces(label_selector="soak=yes", _request_timeout=20)
        self.cache = {_key(item): item.metadata.resource_version for item in found.items}
        self._version = found.metadata.resource_version
        self.lists += 1

    def _follow(self) -> None:
        stream = official_watch.Watch().stream(
            self._core.list_config_map_for_all_namespaces,
            label_selector="soak=yes",
            resource_version=self._version,
            timeout_seconds=3,
            _request_timeout=20,
        )
        for event in stream:
            item = event["object"]
            if event["type"] == "DELETED":
                self.cache.pop(_key(item), None)
            else:
                self.cache[_key(item)] = item.metadata.resource_version
            self._version = item.metadata.resource_version
            if self.leaving:
                return

    def close(self) -> None:
        self._api.rest_client.pool_manager.clear()
        self._api.close()


def _key(item: Any) -> Key:
    return item.metadata.namespace, item.metadata.name


class Line:
    """A direct client for the writer, and a kubeconfig that leads through the breaking line."""

    def __init__(self, cluster: ProcessCluster, proxy: CuttingProxy, folder: Path) -> None:
        self.cluster, self.proxy = cluster, proxy
        (folder / "direct").write_text(cluster.kubeconfig())
        self.kubeconfig = folder / "broken"
        self.kubeconfig.write_text(cluster.kubeconfig(url=proxy.url))
        self.direct = Client.from_kubeconfig(folder / "direct")
        self.broken = Client.from_kubeconfig(self.kubeconfig)

    async def stored(self) -> Cache:
        found = await self.direct.list("v1", "ConfigMap", labels="soak=yes")
        return {key_of(obj): version_of(obj) for obj in found}


@contextlib.asynccontextmanager
async def line(cluster: Cluster, folder: Path, chance: random.Random) -> AsyncIterator[Line]:
    assert isinstance(cluster, ProcessCluster)
    proxy = CuttingProxy(cluster.address, chance)
    await proxy.start()
    made = Line(cluster, proxy, folder)
    try:
        yield made
    finally:
        await made.direct.close()
        await made.broken.close()
        await proxy.stop()


def config_map(name: str, value: str, team: str) -> Obj:
    labels = {"soak": "yes", "team": team}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}


async def write(client: Client, chance: random.Random) -> None:
    """One change; refusals and a server that is down are part of life here."""
    name, team = f"s{chance.randrange(40)}", chance.choice("ab")
    roll, value = chance.random(), str(chance.random())
    with contextlib.suppress(ApiError):
        if roll < 0.4:
            await client.create(config_map(name, value, team))
        elif roll < 0.75:
            change = {"data": {"value": value}, "metadata": {"labels": {"team": team}}}
            await client.patch("v1", "ConfigMap", name, "default", change)
        else:
            await client.delete("v1", "ConfigMap", name, "default", missing_ok=True)


async def trouble(made: Line, chance: random.Random, until: float) -> None:
    """Until the time is over, a server was killed and a line was cut: a kill alone may take all of the time."""
    kills = 0
    while time.monotonic() < until or not kills or not made.proxy.cuts:
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        roll = chance.random()
        if roll < 0.6:
            made.proxy.cut(chance.uniform(0.2, 1.0))
        elif roll < 0.75:
            made.proxy.down = True
            made.proxy.cut(1.0)
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            made.proxy.down = False
        elif kills < KILLS:
            kills += 1
            await asyncio.to_thread(made.cluster.kill)
            await asyncio.to_thread(made.cluster.start)


async def long_absence(made: Line) -> None:
    """Nobody hears of these writes, and the server forgets them."""
    made.proxy.down = True
    made.proxy.cut(1.0)

    async def lane(number: int) -> None:
        name = f"s{number}"
        await made.direct.apply(config_map(name, "away", "a"), field_manager="soak", force=True)
        for turn in range(LONG_ABSENCE // LANES):
            await made.direct.patch("v1", "ConfigMap", name, "default", {"data": {"value": str(turn)}})

    await asyncio.gather(*(lane(number) for number in range(LANES)))
    await asyncio.to_thread(made.cluster.kill)
    await asyncio.to_thread(made.cluster.start)
    made.proxy.down = False


async def equal(made: Line, caches: dict[str, Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        wanted = await made.stored()
        wrong = {name: sorted(read().items() ^ wanted.items()) for name, read in caches.items() if read() != wanted}
        if not wrong:
            return
        assert time.monotonic() < deadline, wrong
        await asyncio.sleep(0.1)


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that may be killed; without controllers it is there again sooner."""
    if flavour() == "kubeconfig":
        pytest.skip("a cluster that others run is not killed")
    made = make_cluster(tmp_path_factory.mktemp("cluster"), controllers=False)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.timeout(600 + 2 * SECONDS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_cache_ends_equal_to_the_store(own_cluster: Cluster, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with line(own_cluster, tmp_path, chance) as made:
        story = Story()
        informer = Informer(made.broken, "v1", "ConfigMap", labels="soak=yes", handler=story.hear)
        informer.start()
        reflector = Reflector(made.kubeconfig)
        reflector.start()
        try:
            until = time.monotonic() + SECONDS
            troubled = asyncio.create_task(trouble(made, chance, until))
            while not troubled.done():
                await asyncio.gather(*(write(made.direct, chance) for _ in range(4)))
                await asyncio.sleep(0.01)  # a server that starts needs the processor more than those it refuses
            await troubled
            if seed == SEEDS[0]:
                await long_absence(made)
            await equal(
                made,
                {
                    "our informer": lambda: {key: version_of(obj) for key, obj in informer.objects.items()},
                    "official client": lambda: dict(reflector.cache),
                },
            )
            assert story.faults == []
            assert set(story.now) == set(informer.objects)
        finally:
            reflector.leaving = True
            await informer.stop()
            await asyncio.to_thread(reflector.join, PATIENCE)
            reflector.close()

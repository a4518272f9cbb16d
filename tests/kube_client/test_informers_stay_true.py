"""Whatever happens to connections and to the server, an informer's cache ends up equal to the store, and its handlers
have heard a story that adds up: added before modified, deleted once, nothing silently gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.kube.client import Client, Informer
from regional.kube.client.local import LocalTransport
from regional.kube.objects import Key, Obj, key_of, name_of, version_of
from tests.kube_client.story import Story
from tests.kube_controllers.harness import Api, Faults, eventually


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    made = Api(tmp_path)
    await made.start()
    yield made
    await made.stop()


def config(name: str, value: str = "", namespace: str = "default", **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {"value": value},
    }


async def stored(client: Client, **selection: str) -> dict[Key, str]:
    return {key_of(obj): version_of(obj) for obj in await client.list("v1", "ConfigMap", **selection)}  # type: ignore[arg-type]


async def settled(informer: Informer, client: Client, **selection: str) -> None:
    async def same() -> bool:
        wanted = await stored(client, **selection)
        return {key: version_of(obj) for key, obj in informer.objects.items()} == wanted

    await eventually(same, "cache equals store")


@pytest.mark.parametrize("seed", range(3))
async def test_cuts_and_restarts_lose_nothing(api: Api, seed: int) -> None:
    client, chance = api.client(), random.Random(seed)
    faults = Faults(LocalTransport(api.handle), seed, lost=0.2, cut=0.1)
    story = Story()
    informer = Informer(Client(faults), "v1", "ConfigMap", "default", handler=story.hear)
    labelled = Informer(Client(faults), "v1", "ConfigMap", "default", labels="team=a")
    informer.start()
    labelled.start()
    alive: set[str] = set()
    for step in range(250):
        name = f"c{chance.randrange(30)}"
        if name in alive and chance.random() < 0.4:
            await client.delete("v1", "ConfigMap", name, "default")
            alive.discard(name)
        elif name in alive:
            team = chance.choice(("a", "b"))
            patch = {"data": {"value": str(step)}, "metadata": {"labels": {"team": team}}}
            await client.patch("v1", "ConfigMap", name, "default", patch)
        else:
            await client.create(config(name, str(step), team=chance.choice(("a", "b"))))
            alive.add(name)
        if step % 80 == 79:
            await api.stop()
            await asyncio.sleep(0.05)
            await api.start()
        await asyncio.sleep(0)
    faults.on = False
    await settled(informer, client, namespace="default")
    await settled(labelled, client, namespace="default", labels="team=a")
    assert story.faults == []
    assert set(story.now) == set(informer.objects)
    await informer.stop()
    await labelled.stop()


async def test_what_vanished_during_a_gap_is_reported(api: Api) -> None:
    client = api.client()
    for name in ("stays", "goes", "returns"):
        await client.create(config(name))
    heard: list[tuple[str, str]] = []
    informer = Informer(
        client, "v1", "ConfigMap", "default", handler=lambda kind, obj: heard.append((kind, name_of(obj)))
    )
    informer.start()
    await informer.synced()
    await informer.stop()
    heard.clear()
    await client.delete("v1", "ConfigMap", "goes", "default")
    await client.delete("v1", "ConfigMap", "returns", "default")
    await client.create(config("returns", "new"))
    # As after a 410: what the informer knew is too old to continue from.
    informer._version = ""
    informer.start()
    await settled(informer, client, namespace="default")
    await informer.stop()
    assert sorted(heard) == [("ADDED", "returns"), ("DELETED", "goes"), ("DELETED", "returns")]


async def test_our_own_writes_are_seen_at_once_and_leave_no_ghosts(api: Api) -> None:
    client = api.client()
    informer = Informer(client, "v1", "ConfigMap", "default")
    informer.start()
    await informer.synced()
    made = await client.create(config("mine"))
    informer.observe(made)
    assert informer.get("default", "mine") is not None
    await client.delete("v1", "ConfigMap", "mine", "default")

    async def gone() -> bool:
        return informer.get("default", "mine") is None

    await eventually(gone)
    # A late answer about an object that came and went must not bring it back.
    informer.observe(made)
    assert informer.get("default", "mine") is None
    second = await client.create(config("mine", "again"))
    informer.observe(second)
    informer.observe_deleted(second)
    assert informer.get("default", "mine") is None
    await client.delete("v1", "ConfigMap", "mine", "default")
    await settled(informer, client, namespace="default")
    await informer.stop()


async def test_indexes_follow_their_objects(api: Api) -> None:
    client = api.client()
    informer = Informer(client, "v1", "ConfigMap", "default")
    informer.index("value", lambda obj: [obj["data"]["value"]])
    informer.start()
    await client.create(config("a", "x"))
    await client.create(config("b", "x"))

    async def indexed(value: str, *names: str) -> bool:
        return sorted(name_of(obj) for obj in informer.indexed("value", value)) == list(names)

    await eventually(lambda: indexed("x", "a", "b"))
    await client.patch("v1", "ConfigMap", "a", "default", {"data": {"value": "y"}})
    await eventually(lambda: indexed("y", "a"))
    await client.delete("v1", "ConfigMap", "b", "default")
    await eventually(lambda: indexed("x"))
    assert len(informer.in_namespace("default")) == len(informer.objects)
    await informer.stop()


async def test_a_handler_that_fails_stops_nobody_else(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    client = api.client()

    def bad(_kind: str, _obj: Obj) -> None:
        raise RuntimeError("no")

    heard: list[str] = []
    informer = Informer(client, "v1", "ConfigMap", "default", handler=bad)
    informer.add_handler(lambda kind, obj: heard.append(name_of(obj)))
    informer.start()
    await informer.synced()
    await client.create(config("a"))

    async def told() -> bool:
        return "a" in heard

    await eventually(told)
    assert "informer handler failed" in caplog.text
    await informer.stop()

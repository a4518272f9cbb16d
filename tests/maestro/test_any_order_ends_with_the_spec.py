"""Whatever is asked for, lost, doubled, late or killed, in any order: the cluster ends with what was asked for last.

The real server on PostgreSQL, the real agent on a Kubernetes API. The wire between them does the worst it can, and
either side, or the whole management cluster, may go at any moment.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from regional.kube.client import Informer
from regional.maestro.server.refusals import Refusal
from tests.maestro.harness import Postgres, eventually
from tests.maestro.loose_wire import DOWN, UP
from tests.maestro.world import World, started_api

IDS = ("a", "b")
LIMIT = 60.0
STEPS = 40
SHARED = "shared"
"""An object that both bundles may bring; it has one value, so that they do not fight about it."""


def chosen_steps(dice: random.Random, count: int) -> Iterator[tuple[Any, ...]]:
    """Changes and what happens on the wire, about as many; now and then something breaks."""
    for _ in range(count):
        bundle, way, number = dice.choice(IDS), dice.choice([DOWN, UP]), dice.randrange(100)
        parts = set(dice.choices(["x", "y", SHARED], k=2))
        yield dice.choice(
            [
                *[(what, bundle, parts) for what in ("create", "create", "update", "update")],
                *[("delete", bundle), ("delete", bundle)],
                *[(what, way, number) for what in ("deliver", "deliver", "deliver", "lose", "repeat", "late")],
                *[("all arrive",)] * 5,
                dice.choice([("cut", way), ("join", way), ("deleted by hand", bundle)]),
                dice.choice([(f"{side} {what}",) for side in ("server", "agent") for what in ("dies", "starts")]),
            ]
            if number
            else [("cluster lost",)]
        )


class Model:
    """What was acknowledged: of each bundle that is to be there, its objects and their values."""

    def __init__(self) -> None:
        self.wanted: dict[str, dict[str, str]] = {}
        self._numbers = itertools.count(1)

    def content(self, bundle: str, chosen: set[str]) -> dict[str, str]:
        number = str(next(self._numbers))
        return {(p if p == SHARED else f"{bundle}-{p}"): ("0" if p == SHARED else number) for p in chosen}

    def objects(self) -> dict[str, str]:
        return {name: value for content in self.wanted.values() for name, value in content.items()}


class Witness:
    """Sees every change on the cluster: no object ever goes back to an older value, or comes back from the dead.

    Only the loss of the agent's memory may let that happen: it remembers what is deleted for as long as it lives, and
    over a restart what is to be there.
    """

    def __init__(self, world: World) -> None:
        self._client = world.client
        self._informer = Informer(world.client, "v1", "ConfigMap", handler=self._seen)
        self._turns = itertools.count(1)
        self._newest: dict[str, int] = {}
        self._ended: set[str] = set()
        self.faults: list[str] = []

    async def start(self) -> None:
        self._informer.start()
        await self._informer.synced()

    async def stop(self) -> None:
        await self._informer.stop()

    async def caught_up(self) -> None:
        """With all that was written until now."""
        turn = str(next(self._turns))
        mark = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mark", "namespace": "kube-system"}}
        await self._client.apply(mark | {"data": {"turn": turn}}, field_manager="witness", force=True)

        async def seen() -> bool:
            found = self._informer.get("kube-system", "mark")
            return found is not None and found["data"]["turn"] == turn

        await eventually(seen, LIMIT)

    def _seen(self, kind: str, found: Mapping[str, Any]) -> None:
        name, value = found["metadata"]["name"], int((found.get("data") or {}).get("key") or 0)
        if kind == "DELETED" or not value:
            return
        if value < self._newest.get(name, 0):
            self.faults.append(f"{name} went from {self._newest[name]} back to {value}")
        self._newest[name] = max(value, self._newest.get(name, 0))

    def deletion_asked(self, bundle: str) -> None:
        self._ended.add(bundle)

    def memory_lost(self, *, all_of_it: bool) -> None:
        for name in list(self._newest):
            if all_of_it or name.partition("-")[0] in self._ended:
                del self._newest[name]


class Play:
    def __init__(self, world: World) -> None:
        self.world, self.model, self.witness = world, Model(), Witness(world)

    async def run(self, dice: random.Random) -> None:
        await self.world.begin()
        await self.world.start_agent()
        await self.witness.start()
        try:
            for step in chosen_steps(dice, STEPS):
                await self.step(*step)
                await asyncio.sleep(dice.choice([0.0, 0.0, 0.002, 0.01]))
            await self.heal()
            await eventually(self.agreed, LIMIT)
            await self.all_of_it_again(dice)
            await eventually(self.agreed, LIMIT)
            assert not self.witness.faults
        finally:
            await self.witness.stop()
            await self.world.end()

    async def all_of_it_again(self, dice: random.Random) -> None:
        """Later than anything can be, and in no order: every word of every life."""
        past = [(way, packet) for way, packets in self.world.wire.past.items() for packet in packets]
        dice.shuffle(past)
        for way, packet in past:
            self.world.wire.repeat(way, packet)
            await asyncio.sleep(dice.choice([0.0, 0.0, 0.002]))

    async def step(self, what: str, *arguments: Any) -> None:
        world, wire = self.world, self.world.wire
        if what in ("create", "update", "delete"):
            if world.server is not None:
                await self.change(what, *arguments)
        elif what in ("deliver", "lose", "repeat", "late"):
            self.on_the_wire(what, *arguments)
        elif what == "all arrive":
            for _ in range(10):
                wire.deliver_all()
                await asyncio.sleep(0.002)
        elif what == "cut":
            wire.separate(*arguments)
        elif what == "join":
            wire.join(*arguments)
        elif what == "server dies":
            await world.kill_server()
        elif what == "server starts":
            await world.start_server()
        elif what == "deleted by hand":
            await world.client.delete("v1", "ConfigMap", f"{arguments[0]}-x", "default", missing_ok=True)
        else:
            await (world.lose_cluster() if what == "cluster lost" else world.kill_agent())
            await self.witness.caught_up()  # with what the agent wrote last
            self.witness.memory_lost(all_of_it=what == "cluster lost")
            if what == "agent starts":
                await world.start_agent()

    async def change(self, what: str, bundle: str, chosen: set[str] | None = None) -> None:
        try:
            if chosen is None:
                await self.world.delete(bundle)
                self.witness.deletion_asked(bundle)
                self.model.wanted.pop(bundle, None)
                return
            content = self.model.content(bundle, chosen)
            if what == "create":
                await self.world.create(bundle, content)
            else:
                await self.world.update(bundle, content)
            self.model.wanted[bundle] = content
        except Refusal:
            pass  # it is there already, or not any more: nothing was promised

    def on_the_wire(self, what: str, way: str, number: int) -> None:
        wire = self.world.wire
        past, waiting = wire.past[way], wire.waiting[way]
        if what == "late" and past:
            wire.repeat(way, past[number % len(past)])
        elif what == "lose" and waiting:
            del waiting[number % len(waiting)]
        elif waiting and what != "late":
            wire.deliver(way, number % len(waiting), keep=what == "repeat")

    async def heal(self) -> None:
        """From now on nothing is lost any more, and each side has a new session."""
        world = self.world
        if world.server is None:
            await world.start_server()
        if world.agent is None:
            await world.start_agent()
        world.wire.flowing = True
        world.wire.deliver_all()
        for way in (UP, DOWN):
            world.wire.join(way)

    async def agreed(self) -> bool:
        world, wanted = self.world, self.model.wanted
        world.check_alive()
        rows = {row["id"]: row for row in await world.query("SELECT * FROM resources")}
        assert set(rows) == set(wanted)
        for bundle, row in rows.items():
            assert row["deleted_at"] is None and row["due_at"] is None and row["applied"], dict(row)
            assert row["status_version"] == row["version"]
            assert told_by(row["status"]) == wanted[bundle]
        assert await world.on_cluster() == self.model.objects()
        assert await world.records() == set(wanted)
        assert world.agent is not None
        assert {work.id: work.generation for work in world.agent.works} == {
            i: row["version"] for i, row in rows.items()
        }
        return True


def told_by(status: str) -> dict[str, str]:
    """What the agent has fed back, by object."""
    values = [
        value
        for found in msgspec.json.decode(status)["resourceStatus"]
        for value in (found.get("statusFeedback") or {}).get("values") or []
    ]
    return {value["name"]: value["fieldValue"]["string"] for value in values}


@pytest.fixture(scope="module")
def world(
    shared_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, World]]:
    directory = tmp_path_factory.mktemp("world")
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patching:
        api = runner.run(started_api(directory / "api"))
        made = World(directory, runner.run(shared_postgres.database()), api)
        made.patch(patching)
        yield runner, made
        runner.run(api.stop())


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_everything_ends_with_the_spec_and_nothing_resurrected(
    world: tuple[asyncio.Runner, World], seed: int
) -> None:
    runner, made = world
    runner.run(Play(made).run(random.Random(seed)))

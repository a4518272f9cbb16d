"""Any process may die at any instruction: what was accepted still happens, once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from regional.clm.adapter.engine import ResourceGone
from regional.clm.adapter.transport import bundle_id
from regional.clm.client import ClmClient, ClmError, ClmUnreachable
from regional.maestro.client import MaestroClient, MaestroUnreachable
from tests.clm.conftest import Region, add_management_cluster, condition, until
from tests.clm.harness import Operator, engines, register, roles
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, running


class Killed(BaseException):
    """In place of kill -9: nothing after the instruction is done, no handler sees it as an error."""


class Fuse:
    """Burns at the given instant of a run: before or after one of its calls to another process."""

    def __init__(self, instant: int) -> None:
        self.instant = instant
        self.passed = 0

    def burn(self) -> None:
        self.passed += 1
        if self.passed == self.instant:
            raise Killed


class MortalClm(ClmClient):
    fuse: Fuse

    async def call(self, *args: Any, **named: Any) -> dict[str, Any]:
        self.fuse.burn()
        answer = await super().call(*args, **named)
        self.fuse.burn()
        return answer


class MortalMaestro(MaestroClient):
    fuse: Fuse

    async def _call(self, *args: Any, **named: Any) -> dict[str, Any]:
        self.fuse.burn()
        answer = await super()._call(*args, **named)
        self.fuse.burn()
        return answer


class Mortal:
    """Runs our task files and dies on the way, at every instant there is, one after the other."""

    def __init__(self, clm_url: str, maestro_url: str) -> None:
        self.clm, self.maestro = MortalClm(clm_url), MortalMaestro(maestro_url)
        self._engines = engines(self.clm, self.maestro)
        self.deaths = 0

    async def run_in_spite_of_deaths(self, resource: dict[str, Any]) -> None:
        for instant in range(1, 100):
            self.clm.fuse = self.maestro.fuse = Fuse(instant)
            try:
                await self._engines[resource["kind"]].run({"data": {"id": resource["id"]}}, "req")
                return
            except Killed:
                self.deaths += 1
            except ResourceGone:
                return
        raise AssertionError("a run never came to its end")

    async def close(self) -> None:
        await self.clm.close()
        await self.maestro.close()


async def test_an_adapter_that_dies_between_any_two_steps_ends_where_one_that_lives_does(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    operator = Operator(cluster)
    await operator.prepare()
    await add_management_cluster(clm)
    async with maestro.server() as client:
        await register(client, "mc01")
        made = await clm.create("Cluster", "demo", {})
        mortal = Mortal(region.url, client._base.removesuffix("/api/maestro/v1"))
        try:
            async with maestro.agent(cluster.api.client("work-agent"), "mc01"), running(operator.operate()):
                await mortal.run_in_spite_of_deaths(made)
                assert (await client.list_bundles())["total"] == 1
                assert (await client.get_bundle(bundle_id("mc01", f"cluster-{made['id']}")))["version"] == 1
                await _again_until(mortal, made, lambda: _is_reconciled(clm, made))

                await clm.patch("Cluster", made["id"], spec={"channel": "stable-4.22"})
                await mortal.run_in_spite_of_deaths(made)
                assert (await client.get_bundle(bundle_id("mc01", f"cluster-{made['id']}")))["version"] == 2
                await _again_until(mortal, made, lambda: _is_reconciled(clm, made))

                pool = await clm.create("NodePool", "workers", {"replicas": 1}, parent_id=made["id"])
                await _again_until(mortal, pool, lambda: _is_reconciled(clm, pool))

                await clm.delete("Cluster", made["id"])
                await mortal.run_in_spite_of_deaths(made)
                assert await operator.hosted_or_none(made["id"]) is not None  # its pool goes first
                await _again_until(mortal, pool, lambda: _is_gone(clm, pool))
                await _again_until(mortal, made, lambda: _is_gone(clm, made))
                assert (await client.list_bundles())["total"] == 0
                await until(lambda: _nothing(operator))
        finally:
            await mortal.close()
        assert mortal.deaths > 30
    entries = (await clm.history("Cluster", made["id"]))["items"]
    changes = Counter(entry["change"] for entry in entries)
    assert {name: changes[name] for name in ("created", "placed", "updated", "deleted", "removed")} == {
        "created": 1, "placed": 1, "updated": 1, "deleted": 1, "removed": 1
    }  # fmt: skip


async def _again_until(mortal: Mortal, resource: dict[str, Any], true: Any) -> None:
    async def step() -> Any:
        await mortal.run_in_spite_of_deaths(resource)
        return await true()

    await until(step, 60)


async def _is_reconciled(clm: ClmClient, resource: dict[str, Any]) -> bool:
    found = await clm.get(resource["kind"], resource["id"])
    return bool(condition(found, "Reconciled")["status"] == "True")


async def _is_gone(clm: ClmClient, resource: dict[str, Any]) -> bool:
    return await clm.get_or_none(resource["kind"], resource["id"]) is None


async def _nothing(operator: Operator) -> bool:
    return await operator.left() == []


async def test_a_request_whose_connection_dies_happened_whole_or_not_at_all(clm: ClmClient, region: Region) -> None:
    """The backends of the API are ended by the server in the middle of transactions."""
    await add_management_cluster(clm, "mc01", 1000)
    done: list[Any] = []
    cut: list[ClmUnreachable] = []

    async def creates(worker: int) -> None:
        """Until there was enough of both, whatever the machine lets happen."""
        for number in itertools.count():
            if number >= 25 and done and cut:
                return
            try:
                done.append(await clm.create("Cluster", f"made-{worker}-{number}", {}))
            except ClmUnreachable as error:  # never a 500
                cut.append(error)

    async def kills() -> None:
        """Ever less often: where everything takes its time no transaction would ever get to its end."""
        pause = 0.005
        async with region.connection() as connection:
            while True:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test'"
                    " AND datname = current_database() AND state LIKE '%transaction%' OR random() < 0.02"
                    " AND application_name = 'test' AND datname = current_database()"
                )
                await asyncio.sleep(pause)
                pause = min(pause * 1.02, 0.5)

    async with running(kills()):
        await asyncio.gather(*(creates(worker) for worker in range(6)))
    rows = await region.rows(
        "SELECT r.id,"
        " (SELECT count(*) FROM resource_history WHERE resource_id = r.id AND change = 'created') AS created,"
        " (SELECT count(*) FROM resource_history WHERE resource_id = r.id AND change = 'placed') AS placed,"
        " (SELECT count(*) FROM changes WHERE resource_id = r.id) AS fed,"
        " (SELECT count(*) FROM pulses WHERE resource_id = r.id) AS pulses,"
        " (SELECT count(*) FROM placements WHERE cluster_id = r.id AND management_cluster_id IS NOT NULL) AS slots"
        " FROM resources AS r WHERE kind = 'Cluster'"
    )
    assert {tuple(row.values())[1:] for row in rows} == {(1, 1, 1, 1, 1)}
    assert {made["id"] for made in done} <= {str(row["id"]) for row in rows}
    assert await region.value("SELECT used FROM management_cluster_capacity") == len(rows)
    assert cut
    stray = "SELECT count(*) FROM resource_history AS h WHERE NOT EXISTS"
    stray += " (SELECT FROM resources WHERE resources.id = h.resource_id)"
    assert await region.value(stray) == 0


async def test_creates_end_ready_and_deletes_end_gone_while_processes_are_killed(
    region: Region,
    tmp_path: Path,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    chance = random.Random(4)
    operator = Operator(cluster)
    await operator.prepare()
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(maestro.server())
        await register(client, "mc01")
        await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
        await stack.enter_async_context(running(operator.operate()))
        running_roles = stack.enter_context(roles(tmp_path, region, client._base.removesuffix("/api/maestro/v1")))
        clm = await stack.enter_async_context(ClmClient(region.url, timeout=60))
        await patiently(lambda: add_management_cluster(clm))
        killing = await stack.enter_async_context(running(_kill_at_random(running_roles, chance)))
        lives = [asyncio.create_task(_life(clm, f"made-{number}", killing)) for number in range(6)]
        await killing
        ids = await asyncio.gather(*lives)
        await until(lambda: _nothing(operator))
        assert (await client.list_bundles())["total"] == 0
    for resource_id in itertools.chain(*ids):
        rows = await region.rows("SELECT change FROM resource_history WHERE resource_id = $1", UUID(resource_id))
        changes = Counter(row["change"] for row in rows)
        assert [changes[name] for name in ("created", "placed", "deleted", "removed")] == [1, 1, 1, 1]
    assert await region.value("SELECT used FROM management_cluster_capacity") == 0
    assert await region.value("SELECT count(*) FROM resources WHERE kind <> 'ManagementCluster'") == 0


async def _kill_at_random(running_roles: dict[str, Any], chance: random.Random) -> None:
    """Only who is at work: killing one that is still starting would test nothing, and on a slow machine for ever."""
    enough = time.monotonic() + 60  # on a slow machine each of them takes its time to start
    for kills in itertools.count(1):
        if kills > 15 or (kills > 5 and time.monotonic() > enough):
            return
        await asyncio.sleep(chance.uniform(0.1, 0.8))
        role = running_roles[chance.choice(sorted(running_roles))]
        await until(lambda role=role: role.is_ready(), 60)
        await asyncio.to_thread(role.kill)
        role.start()


async def patiently(work: Any) -> Any:
    """As a client does: no answer means to ask again, and that it is there already means that it was done."""
    while True:
        try:
            return await work()
        except ClmUnreachable:
            await asyncio.sleep(0.1)


async def _life(clm: ClmClient, name: str, others: asyncio.Task[None]) -> list[str]:
    """A create, Ready, a delete, gone; again and again while others are being killed."""
    ids = []
    while not ids or not others.done():
        ids.append(await _one_life(clm, f"{name}-{len(ids)}"))
    return ids


async def _one_life(clm: ClmClient, name: str) -> str:
    async def create() -> Any:
        try:
            return await clm.create("Cluster", name, {})
        except ClmError as error:
            if not error.exists:
                raise
            return await clm.find("Cluster", name)

    made = await patiently(create)

    async def ready() -> bool:
        return bool(await patiently(lambda: _is_reconciled(clm, made)))

    await until(ready, 120)
    with contextlib.suppress(ClmError):  # a delete without an answer may have happened, and all that follows too
        await patiently(lambda: clm.delete("Cluster", made["id"]))

    async def gone() -> bool:
        return bool(await patiently(lambda: _is_gone(clm, made)))

    await until(gone, 120)
    return str(made["id"])


async def test_a_bundle_that_outlived_its_resource_is_swept_and_a_strangers_is_not(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    """As an adapter makes it that stood still while its resource was deleted."""
    from tests.clm.harness import adapter

    made = await clm.create("Cluster", "demo", {})
    await clm.delete("Cluster", made["id"])
    await clm.force_delete("Cluster", made["id"], "test")
    async with maestro.server() as client, adapter(region, client, clm):
        await register(client, "mc01")
        left = {}
        for name, resource in (("outlived", made["id"]), ("stranger", "01890000-0000-7000-8000-000000000000")):
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
            labels = {"regional.io/resource-id": resource}
            bundle = await client.create_bundle("mc01", [manifest], source="clm", metadata={"labels": labels})
            left[name] = bundle["id"]
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):

            async def swept() -> bool:
                return await client.get_bundle_or_none(left["outlived"]) is None

            await until(swept)
            stranger = await client.get_bundle(left["stranger"])
            assert "deleted_at" not in stranger


async def test_a_bundle_that_could_not_be_swept_is_swept_by_the_next_life(
    clm: ClmClient,
    region: Region,
    maestro: Maestro,
    cluster: Cluster,
) -> None:
    """Maestro took no deletion, then the adapter was killed: the stream does not tell of the bundle again."""
    from tests.clm.harness import adapter

    class Deaf(MaestroClient):
        async def delete_bundle(self, bundle_id: str, *, request_id: str | None = None) -> None:
            raise MaestroUnreachable(0, "", "no answer")

    made = await clm.create("Cluster", "demo", {})
    await clm.delete("Cluster", made["id"])
    await clm.force_delete("Cluster", made["id"], "test")
    async with maestro.server() as client, contextlib.AsyncExitStack() as stack:
        await register(client, "mc01")
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "namespace": "default"}}
        labels = {"regional.io/resource-id": made["id"]}
        bundle = await client.create_bundle("mc01", [manifest], source="clm", metadata={"labels": labels})
        await stack.enter_async_context(maestro.agent(cluster.api.client("work-agent"), "mc01"))
        async with Deaf(client._base.removesuffix("/api/maestro/v1")) as deaf, adapter(region, deaf, clm):
            await until(lambda: region.value("SELECT count(*) FROM outlived_bundles WHERE due > now()"))
            await until(lambda: region.value("SELECT count(*) FROM watch_cursors"))
        assert await client.get_bundle(bundle["id"])
        async with region.connection() as connection:
            await connection.execute("UPDATE outlived_bundles SET due = now()")
        async with adapter(region, client, clm):

            async def swept() -> bool:
                return await client.get_bundle_or_none(bundle["id"]) is None

            async def done_with() -> bool:
                return not await region.value("SELECT count(*) FROM outlived_bundles")

            await until(swept)
            await until(done_with)


async def test_a_sentinel_killed_between_reading_and_writing_publishes_all_the_same(
    clm: ClmClient, region: Region
) -> None:
    """Its place in the feed and its events are one transaction: either both are written or neither is."""
    from regional.clm.sentinel.main import Sentinel, Settings

    sentinel = Sentinel(Settings())
    made = [await clm.create("Cluster", f"made-{number}", {}) for number in range(10)]
    for _ in range(6):
        task = asyncio.create_task(region.database.keep_session(sentinel.follow))
        await asyncio.sleep(random.uniform(0, 0.03))
        async with region.connection() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test'"
                " AND datname = current_database() AND backend_start > now() - interval '1 second'"
            )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with running(region.database.keep_session(sentinel.follow)):

        async def all_there() -> bool:
            return bool(await region.value("SELECT count(*) = 10 FROM events"))

        await until(all_there)
    assert {str(row["resource_id"]) for row in await region.rows("SELECT resource_id FROM events")} == {
        found["id"] for found in made
    }

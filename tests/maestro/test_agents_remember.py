"""An agent that is restarted knows its works: nothing is applied anew, and what was deleted does not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from regional.kube.client import Client
from regional.kube.client.transport import Answer, Query
from regional.maestro.agent.shelf import Shelf
from regional.maestro.agent.works import Works
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, applied, config_for, config_map, eventually, gone
from tests.maestro.test_works_never_go_back import spec


class Counted:
    """A way to the API that notes every write."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.writes: list[str] = []

    async def request(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        if method != "GET":
            self.writes.append(f"{method} {path}")
        answer: Answer = await self._transport.request(method, path, query, headers, body)
        return answer

    async def stream(self, *given: Any) -> Any:
        return await self._transport.stream(*given)

    async def close(self) -> None:
        await self._transport.close()


def counting(cluster: Cluster) -> tuple[Client, Counted]:
    counted = Counted(cluster.api.client("work-agent").transport)
    return Client(counted, user_agent="work-agent"), counted


async def test_a_restart_applies_nothing_that_has_not_changed(
    maestro: Maestro, cluster: Cluster, tmp_path: Path
) -> None:
    kept = str(tmp_path / "works")
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        async with maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=kept):
            plain = await client.create_bundle("mc01", [config_map("a")])
            server_side = await client.create_bundle(
                "mc01", [config_map("b")], manifest_configs=[config_for("b", ("key", ".data.key"))]
            )
            before = [await applied(client, made["id"]) for made in (plain, server_side)]
            later = await client.create_bundle("mc01", [config_map("c")])
            await applied(client, later["id"])
        again, counted = counting(cluster)
        async with maestro.agent(again, "mc01", works_dir=kept) as agent:

            async def looked() -> bool:
                return len(agent.works) == 3 and all(work.outcome is not None for work in agent.works)

            await eventually(looked)
            # Something new goes through the whole of it: by then the old works have had their turn.
            fresh = await client.create_bundle("mc01", [config_map("d")])
            await applied(client, fresh["id"])
            assert not [write for write in counted.writes if not _of_the_new(write)], counted.writes
            for former in before:
                now = await client.get_bundle(former["id"])
                assert now["status"]["conditions"] == former["status"]["conditions"]


def _of_the_new(write: str) -> bool:
    return write.endswith("/configmaps") or "/appliedmanifestworks" in write


async def test_what_changed_while_it_was_away_is_put_right(maestro: Maestro, cluster: Cluster, tmp_path: Path) -> None:
    kept = str(tmp_path / "works")
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        async with maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=kept):
            made = await client.create_bundle("mc01", [config_map("a"), config_map("b")])
            await applied(client, made["id"])
        await cluster.client.delete("v1", "ConfigMap", "a", "default")
        await cluster.client.patch("v1", "ConfigMap", "b", "default", {"data": {"key": "drifted"}})
        newer = await client.patch_bundle(made["id"], manifests=[config_map("a"), config_map("b"), config_map("c")])
        async with maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=kept):
            await applied(client, made["id"], newer["version"])
            for name in ("a", "b", "c"):
                found = await cluster.client.get("v1", "ConfigMap", name, "default")
                assert found["data"] == {"key": "value"}


async def test_what_was_deleted_while_it_was_away_goes(maestro: Maestro, cluster: Cluster, tmp_path: Path) -> None:
    kept = tmp_path / "works"
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        async with maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=str(kept)):
            made = await client.create_bundle("mc01", [config_map("a")])
            await applied(client, made["id"])
        await client.delete_bundle(made["id"])
        async with maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=str(kept)):
            await gone(client, made["id"])
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None
        assert list(kept.rglob("*.work")) == []


async def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path), "mc01-hub")
    works = Works()
    works.take(spec(3), 0.0)
    (work,) = works
    shelf.load(Works())
    shelf.keep_now(work)
    directory = tmp_path / "mc01-hub"
    (kept,) = directory.iterdir()
    whole = kept.read_bytes()
    for torn in (b"", whole[:50], b"[]", b'{"id": 3}', b"\xff" * 10):
        kept.write_bytes(torn)
        (directory / "half.new").write_bytes(b"x")
        found = Works()
        assert Shelf(str(tmp_path), "mc01-hub").load(found) == 0 and len(found) == 0
        assert list(directory.iterdir()) == []
    kept.write_bytes(whole)
    found = Works()
    assert Shelf(str(tmp_path), "mc01-hub").load(found) == 1
    (again,) = found
    assert again.generation == 3 and again.bundle == work.bundle
    assert Shelf(str(tmp_path), "mc02-hub").load(Works()) == 0


async def test_many_changes_of_a_work_are_few_writes(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path), "mc01-hub")
    works = Works()
    works.take(spec(1), 0.0)
    (work,) = works
    assert shelf.load(Works()) == 0
    writing = asyncio.create_task(shelf.keep_writing())
    for _ in range(1000):
        shelf.keep(work)
    work.sent_hash = "last"
    shelf.keep(work)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    shelf.flush()
    found = Works()
    Shelf(str(tmp_path), "mc01-hub").load(found)
    assert [known.sent_hash for known in found] == ["last"]


def test_an_agent_that_is_a_process_keeps_its_works_below_its_own_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two regions of one machine had one directory for them, and the second took up what the first had left."""
    works = Works()
    works.take(spec(1), 0.0)
    (work,) = works
    for pod in ("first", "second"):
        monkeypatch.setenv("POD_ROOT", str(tmp_path / pod))
        shelf = Shelf("/var/lib/maestro-agent", "mc01-hub")
        assert shelf.load(Works()) == 0
        shelf.keep(work)
        shelf.flush()
        assert len(list((tmp_path / pod / "var/lib/maestro-agent/mc01-hub").iterdir())) == 1

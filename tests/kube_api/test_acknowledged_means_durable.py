"""An acknowledgement follows the disk's: every batch is synced first, and a power cut after it takes nothing away."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from regional.kube.apiserver import writers
from regional.kube.apiserver.storage import Storage
from regional.kube.apiserver.store import Put, SelectableFields, Store

from .disk import WatchedDisk
from .harness import Api, config_map, start_server

MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"


def new_store(path: Path) -> Store:
    return Store(path, lambda resource: SelectableFields())


async def put(store: Store, name: str, text: str = "x") -> int:
    content = {"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"n": text}}
    return (await store.write("configmaps", "default", name, lambda live: Put(content))).revision


async def test_each_acknowledged_batch_has_a_sync_of_its_own_behind_it(tmp_path: Path) -> None:
    disk = WatchedDisk()
    with disk.watching():
        store = new_store(tmp_path / "kube.db")
        store.start()

        async def lane(number: int) -> None:
            for turn in range(25):
                await put(store, f"{number}-{turn}")
                disk.log.append(("acknowledged", f"{number}-{turn}"))

        await asyncio.gather(*(lane(number) for number in range(8)))
        store.close()
    unsynced = False
    syncs = acknowledged = 0
    for what, name in disk.log:
        if what == "acknowledged":
            acknowledged += 1
            assert syncs, "an acknowledgement before any sync"
        elif name == "kube.db-wal":
            syncs += what == "sync"
            unsynced = what == "write"
    assert acknowledged == 200
    assert not unsynced
    # Lanes wait for their answers, so one sync can stand behind at most one write of each.
    assert syncs >= acknowledged / 8


async def test_one_writer_alone_waits_for_one_sync_a_write(tmp_path: Path) -> None:
    disk = WatchedDisk()
    with disk.watching():
        store = new_store(tmp_path / "kube.db")
        store.start()
        for turn in range(50):
            seen = len(disk.log)
            await put(store, f"object-{turn}")
            log = [entry for entry in disk.log[seen:] if entry[1] == "kube.db-wal"]
            assert ("write", "kube.db-wal") in log
            assert log[-1] == ("sync", "kube.db-wal"), "something was written after the last sync"
        store.close()


def _cut(folder: Path, durable: Path, turn: int) -> Path:
    """What a power cut would leave: files as they were last synced. Nothing is on its way to the disk now."""
    cut = folder / f"cut-{turn}"
    cut.mkdir()
    for file in durable.iterdir():
        if (folder / file.name).exists():  # the folder was synced once the first journal was gone from it
            shutil.copy(file, cut)
    return cut


async def test_power_cut_after_an_acknowledgement_takes_nothing_away(tmp_path: Path) -> None:
    disk = WatchedDisk()
    disk.durable = tmp_path / "durable"
    disk.durable.mkdir()
    cuts: list[tuple[Path, dict[str, int]]] = []
    acknowledged: dict[str, int] = {}
    with disk.watching():
        store = new_store(tmp_path / "kube.db")
        store.start()
        for turn in range(40):
            written = await asyncio.gather(*(put(store, f"{turn}-{lane}", "y" * 3000) for lane in range(3)))
            acknowledged |= {f"{turn}-{lane}": revision for lane, revision in enumerate(written)}
            if turn % 4 == 0:
                cuts.append((_cut(tmp_path, disk.durable, turn), dict(acknowledged)))
        store.close()
    for cut, expected in cuts:
        storage = Storage(cut / "kube.db")
        stored = {name: revision for _, _, name, revision, _, _ in storage.objects()}
        assert storage.revision >= max(expected.values())
        storage.close()
        assert expected.items() <= stored.items()


async def test_full_disk_refuses_writes_clearly_serves_reads_and_recovers(tmp_path: Path, keys: Path) -> None:
    disk = WatchedDisk()
    with disk.watching():
        server = await start_server(tmp_path / "data", keys)
        api = Api(server)
        assert (await api.post(MAPS, config_map("before"))).status == 201
        disk.full = True
        refused = await api.post(MAPS, config_map("refused"))
        assert (refused.status, refused.body["reason"]) == (500, "InternalError")
        assert "database space exceeded" in refused.message and "disk" in refused.message
        assert str(tmp_path) not in refused.message
        assert (await api.get(f"{MAPS}/before")).status == 200
        assert (await api.get(f"{MAPS}/refused")).status == 404
        assert (await api.get("/readyz")).status == 500
        assert (await api.get("/readyz?exclude=ping&exclude=nope")).status == 500
        without = await api.get("/readyz?exclude=etcd&exclude=nope&verbose")
        assert without.status == 200
        assert b"[+]etcd excluded: ok" in without.body
        assert b'health checks cannot be excluded: no matches for "nope"' in without.body
        wanted = {"metadata": {"name": "one"}, "spec": {"clusterIP": "127.64.1.99", "ports": [{"port": 80}]}}
        assert (await api.post(SERVICES, wanted)).status == 500
        disk.full = False
        wanted["metadata"] = {"name": "two"}
        assert (await api.post(SERVICES, wanted)).status == 201, "what was refused holds no address"
        after = await api.post(MAPS, config_map("after"))
        assert after.status == 201
        assert (await api.get("/readyz")).status == 200
        await server.stop()
    again = await start_server(tmp_path / "data", keys)
    names = [item["metadata"]["name"] for item in (await Api(again).get(MAPS)).body["items"]]
    assert {"before", "after"} <= set(names) and "refused" not in names
    assert again.store.revision >= int(after.body["metadata"]["resourceVersion"])
    await again.stop()


async def test_synchronous_commit_is_really_on(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "kube.db")
    connection = storage._connection
    assert connection is not None
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    storage.close()
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


async def test_a_write_that_cannot_be_stored_is_refused_and_holds_up_nobody(tmp_path: Path) -> None:
    store = new_store(tmp_path / "kube.db")
    store.start()
    content = {"metadata": {"name": "a", "namespace": "default", "uid": "a"}}
    async with asyncio.timeout(60):
        for _ in range(writers.THREADS + 1):
            with pytest.raises(UnicodeEncodeError):
                await store.write("\ud800", "default", "a", lambda live: Put(content))
        await put(store, "b")
        await asyncio.to_thread(store.close)


async def test_a_file_that_is_taken_away_while_it_rests_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "kube.db"
    store = new_store(path)
    store.start()
    await put(store, "a")
    assert store._storage.rest()
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(sqlite3.Error, match="is gone"):
        await put(store, "b")
    assert not path.exists()
    (tmp_path / "elsewhere").rename(path)
    await put(store, "b")
    store.close()

"""A cluster's objects are copied while it is served, put back while it is not, and its revisions only ever go up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from regional.cli.kube import kube
from regional.core.problems import UserError
from regional.kube.apiserver import snapshots
from regional.kube.apiserver.restoring import UNKNOWN_GAP, restore
from regional.kube.apiserver.server import ApiServer
from regional.kube.apiserver.storage import Storage

from .harness import Api, config_map, start_server

MAPS = "/api/v1/namespaces/default/configmaps"


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(kube, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


async def maps_of(server: ApiServer) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in (await Api(server).get(MAPS)).body["items"]}


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(content)


async def test_restore_brings_objects_back_under_higher_revisions_and_watchers_list_again(
    tmp_path: Path, keys: Path
) -> None:
    file = tmp_path / "kube.db"
    server = await start_server(tmp_path, keys)
    api = Api(server)
    await api.post(MAPS, config_map("kept", {"state": "old"}))
    await api.post(MAPS, config_map("deleted-later"))
    said = run("snapshot", "--file", file)
    assert f"revision {server.store.revision}" in said
    await api.patch(f"{MAPS}/kept", {"data": {"state": "new"}})
    await api.delete(f"{MAPS}/deleted-later")
    await api.post(MAPS, config_map("created-later"))
    before = await maps_of(server)
    reached = server.store.revision
    with pytest.raises(UserError, match="in use by another process"):
        run("restore", "--file", file)  # before it asks
    await server.stop()
    for left in (".restored.db", ".restored.db-journal"):
        (tmp_path / left).write_bytes(b"of a restore that was killed")

    assert "objects are back" in run("restore", "--file", file, "-y")
    assert not list(tmp_path.glob(".restored*"))
    again = await start_server(tmp_path, keys)
    after = await maps_of(again)
    assert after["kept"]["data"] == {"state": "old"}
    assert "deleted-later" in after and "created-later" not in after
    assert int(after["kept"]["metadata"]["resourceVersion"]) > int(before["kept"]["metadata"]["resourceVersion"])
    assert all(int(item["metadata"]["resourceVersion"]) > reached for item in after.values())
    assert again.store.revision > reached
    assert after["kept"]["metadata"]["uid"] == before["kept"]["metadata"]["uid"]

    watch = await Api(again).watch(f"{MAPS}?resourceVersion={reached}")
    event = await watch.next()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    exact = await Api(again).get(f"{MAPS}?resourceVersion={reached}&resourceVersionMatch=Exact")
    assert exact.status == 410
    stale = before["kept"] | {"data": {"state": "from a stale cache"}}
    assert (await Api(again).put(f"{MAPS}/kept", stale)).status == 409
    await again.stop()


async def test_snapshot_under_load_is_one_consistent_state(tmp_path: Path, keys: Path) -> None:
    """Two objects are always written in the order a, b: no copy may have a b that is ahead of its a."""
    server = await start_server(tmp_path, keys)
    api = Api(server)
    for name in ("a", "b"):
        await api.post(MAPS, config_map(name, {"n": "0"}))

    async def load() -> None:
        for number in range(1, 10_000):
            for name in ("a", "b"):
                await api.patch(f"{MAPS}/{name}", {"data": {"n": str(number), "pad": "x" * 2000}})

    loading = asyncio.create_task(load())
    taken: list[tuple[int, snapshots.Snapshot]] = []
    for _ in range(8):
        acknowledged = server.store.revision
        taken.append((acknowledged, await asyncio.to_thread(snapshots.take, tmp_path / "kube.db")))
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading
    await server.stop()
    for acknowledged, snapshot in taken:
        assert snapshot.revision >= acknowledged
        other = tmp_path / f"restored-{snapshot.revision}"
        restore(other / "kube.db", snapshot.path)
        copy = await start_server(other, keys)
        maps = await maps_of(copy)
        assert 0 <= int(maps["a"]["data"]["n"]) - int(maps["b"]["data"]["n"]) <= 1
        await copy.stop()


async def test_damaged_file_is_refused_and_names_the_last_good_snapshot(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "kube.db"
    server = await start_server(tmp_path, keys)
    await Api(server).post(MAPS, config_map("kept"))
    good = snapshots.take(file)
    await Api(server).post(MAPS, config_map("newer"))
    bad = snapshots.take(file)
    await server.stop()
    spoil(bad.path)
    spoil(file)
    with pytest.raises(UserError) as refused:
        await start_server(tmp_path, keys)
    assert "is damaged" in refused.value.message
    assert f"the last good snapshot is {good.path} (revision {good.revision}" in refused.value.message
    assert f"--from {good.path}" in refused.value.hint
    with pytest.raises(UserError, match="is not a sound snapshot"):
        restore(file, bad.path)

    # How far the damaged file had come is not known, so the counter leaps.
    assert str(bad.path) in run("snapshots", "--file", file) and "NO" in run("snapshots", "--file", file)
    restored = restore(file, good.path)
    assert restored.revision > bad.revision + UNKNOWN_GAP
    assert restored.before is not None and restored.before.exists()
    again = await start_server(tmp_path, keys)
    assert "kept" in await maps_of(again)
    await again.stop()


async def test_file_with_an_unreadable_object_is_refused_too(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    await Api(server).post(MAPS, config_map("victim", {"text": "MARK" * 10}))
    snapshot = snapshots.take(tmp_path / "kube.db")
    await server.stop()
    file = tmp_path / "kube.db"
    file.write_bytes(file.read_bytes().replace(b"MARKMARK", b'"}}}}}}}'))
    with pytest.raises(UserError, match="an object in it cannot be read") as refused:
        await start_server(tmp_path, keys)
    assert str(snapshot.path) in refused.value.message
    Storage(file).close()  # and nothing holds on to the file


def test_damaged_file_without_a_snapshot_says_so(tmp_path: Path) -> None:
    file = tmp_path / "kube.db"
    file.write_bytes(b"this is no database" * 100)
    with pytest.raises(UserError, match="there is no good snapshot of it"):
        Storage(file)


async def test_periodic_snapshots_follow_writes_and_only_the_newest_are_kept(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    api, file = Api(server), tmp_path / "kube.db"
    keeping = asyncio.create_task(snapshots.keep_taking(file, lambda: server.store.revision, 0.01, keep=2))
    for number in range(5):
        await api.post(MAPS, config_map(f"map-{number}"))
        async with asyncio.timeout(60):
            while next((each.revision for each in snapshots.known(file)), 0) < server.store.revision:
                await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        while len(snapshots.known(file)) > 2:
            await asyncio.sleep(0.01)
    keeping.cancel()
    assert snapshots.is_good(snapshots.known(file)[0].path)
    await server.stop()


async def test_what_a_killed_process_left_half_copied_goes_with_the_next_snapshot(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    folder = snapshots.folder_of(tmp_path / "kube.db")
    folder.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = [folder / f".unfinished-{ended.pid}-0badcafe.db{suffix}" for suffix in ("", "-journal")]
    going_on = folder / f".unfinished-{os.getpid()}-0badcafe.db"
    for file in (*left, going_on):
        file.write_bytes(b"half")
    taken = snapshots.take(tmp_path / "kube.db")
    assert set(folder.iterdir()) == {taken.path, going_on}
    await server.stop()


async def test_restore_refuses_what_is_no_snapshot_and_changes_nothing(tmp_path: Path, keys: Path) -> None:
    server = await start_server(tmp_path, keys)
    await server.stop()
    file = tmp_path / "kube.db"
    content = file.read_bytes()
    (tmp_path / "letter.txt").write_text("dear cluster")
    for wrong in (tmp_path / "letter.txt", tmp_path / "absent.db"):
        with pytest.raises(UserError):
            restore(file, wrong)
    taken = snapshots.take(file, tmp_path / "mine.db")
    with pytest.raises(UserError, match="exists already"):
        run("snapshot", "--file", file, "--into", taken.path)
    assert file.read_bytes() == content

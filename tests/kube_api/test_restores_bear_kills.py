"""A restore or a snapshot that dies leaves a cluster that is served; a restore never takes revisions back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from regional.kube.apiserver import snapshots
from regional.kube.apiserver.restoring import UNKNOWN_GAP, restore

from .harness import Api, config_map, start_server
from .killed_restores import Report

MAPS = "/api/v1/namespaces/default/configmaps"
KILLS = 30


@pytest.mark.timeout(600)
def test_restores_and_snapshots_killed_at_any_step_leave_a_whole_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.kube_api.killed_restores", str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.faults == []
    assert report.before and report.after and report.snapshots  # some died before the moment that counts, some after


@pytest.mark.parametrize("lost", ["the file", "the file and its snapshots"])
async def test_a_restore_without_the_old_file_leaps_over_what_it_may_have_given_out(
    tmp_path: Path, keys: Path, lost: str
) -> None:
    """Clients remember revisions of the lost file: none of them may come to mean something else."""
    file, copy = tmp_path / "kube.db", tmp_path / "elsewhere" / "copy.db"
    server = await start_server(tmp_path, keys)
    await Api(server).post(MAPS, config_map("kept"))
    taken = snapshots.take(file, copy)
    snapshots.take(file)
    for number in range(60):  # more than there are objects to stamp anew
        await Api(server).post(MAPS, config_map(f"later-{number}"))
    reached = server.store.revision
    await server.stop()
    file.unlink()
    if lost != "the file":
        for snapshot in snapshots.known(file):
            snapshot.path.unlink()

    done = restore(file, copy)
    assert done.before is None
    again = await start_server(tmp_path, keys)
    try:
        assert again.store.revision > reached
        assert again.store.revision > taken.revision + UNKNOWN_GAP
        watch = await Api(again).watch(f"{MAPS}?resourceVersion={reached}")
        assert (await watch.next())["object"]["code"] == 410
    finally:
        await again.stop()

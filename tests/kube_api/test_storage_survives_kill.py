"""Acknowledged writes are on disk: a writer process is killed in mid-stream, again and again."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from regional.core.problems import UserError
from regional.kube.apiserver.storage import HISTORY_KEEP, HISTORY_SLACK, Storage
from regional.kube.apiserver.store import Put, Remove, SelectableFields, Store

# Writes without end and says the name and revision of each object only once the store has acknowledged it.
_WRITER = """
import asyncio, sys
from pathlib import Path
from regional.kube.apiserver.store import Put, SelectableFields, Store

async def main():
    store = Store(Path(sys.argv[1]), lambda resource: SelectableFields())
    store.start()
    print("revision", store.revision, flush=True)

    async def one(lane):
        number = 0
        while True:
            number += 1
            name = f"{sys.argv[2]}-{lane}-{number}"
            entry = await store.write("configmaps", "default", name, lambda live: Put(
                {"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"n": "x" * 100}}))
            print("ack", name, entry.revision, flush=True)

    await asyncio.gather(*(one(lane) for lane in range(8)))

asyncio.run(main())
"""


def _run_and_kill(file: Path, turn: int, acknowledgements: int) -> tuple[int, dict[str, int]]:
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(file), str(turn)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = int(process.stdout.readline().split()[1])
    acknowledged: dict[str, int] = {}
    for line in process.stdout:
        if line.endswith("\n") and line.startswith("ack "):
            _, name, revision = line.split()
            acknowledged[name] = int(revision)
        if len(acknowledged) == acknowledgements:
            process.send_signal(signal.SIGKILL)  # what is still in the pipe was acknowledged too
    process.wait()
    process.stdout.close()
    return first, acknowledged


def test_killed_writer_loses_no_acknowledged_write_and_no_revision_comes_twice(tmp_path: Path) -> None:
    file = tmp_path / "kube.db"
    everything: dict[str, int] = {}
    for turn in range(4):
        first, acknowledged = _run_and_kill(file, turn, 40 + 60 * turn)
        assert first >= max(everything.values(), default=0), "the counter went back"
        assert not set(acknowledged.values()) & set(everything.values())
        everything |= acknowledged
    storage = Storage(file)
    stored = {name: revision for _, _, name, revision, _, _ in storage.objects()}
    assert everything.items() <= stored.items()
    assert storage.revision >= max(stored.values())
    storage.close()


async def test_history_is_trimmed_but_the_counter_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "kube.db", lambda resource: SelectableFields())
    store.start()
    rounds = (HISTORY_KEEP + HISTORY_SLACK) // 2 + 10
    for _ in range(rounds):
        await store.write("things", "", "one", lambda live: Put({"metadata": {"name": "one", "uid": "u"}}))
        await store.write("things", "", "one", lambda live: Remove({"metadata": {"name": "one", "uid": "u"}}))
    last = store.revision
    store.close()
    connection = sqlite3.connect(tmp_path / "kube.db")
    rows, oldest = connection.execute("SELECT count(*), min(revision) FROM history").fetchone()
    connection.close()
    assert rows < HISTORY_KEEP + HISTORY_SLACK
    again = Store(tmp_path / "kube.db", lambda resource: SelectableFields())
    assert again.revision == last == 2 * rounds
    assert again.shelf("things").floor == oldest - 1
    again.close()


def test_damaged_file_is_refused_in_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "kube.db"
    file.write_bytes(b"this is no database" * 100)
    with pytest.raises(UserError, match=r"kube\.db cannot be opened"):
        Storage(file)


def test_file_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    first = Storage(tmp_path / "kube.db")
    with pytest.raises(UserError, match="is in use by another process"):
        Storage(tmp_path / "kube.db")
    first.close()
    Storage(tmp_path / "kube.db").close()

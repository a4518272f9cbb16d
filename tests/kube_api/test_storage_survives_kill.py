"""Acknowledged writes outlive the process: writers are killed in mid-stream, again and again."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from regional.core.problems import UserError
from regional.kube.apiserver.storage import HISTORY_KEEP, HISTORY_SLACK, Storage
from regional.kube.apiserver.store import Put, Remove, SelectableFields, Store

from .killed_writers import Report

KILLS = 200


@pytest.mark.timeout(900)
def test_two_hundred_killed_writers_lose_nothing_and_resurrect_nothing(tmp_path: Path) -> None:
    """In a process of its own: writers are forked from a parent without threads."""
    command = [sys.executable, "-m", "tests.kube_api.killed_writers", str(tmp_path / "kube.db"), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.faults == []
    assert report.rounds == KILLS
    # It was a load: there were acknowledgements to lose, deletions to undo, and writes on their way at the kill.
    assert report.acknowledged > KILLS and report.deletes and report.open_questions


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

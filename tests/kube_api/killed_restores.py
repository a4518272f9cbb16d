"""A parent without threads that forks restores of one cluster's file and snapshots of it, kills each at another of its
steps (-9), and checks what it left behind.

Run as a program: `python -m tests.kube_api.killed_restores FOLDER KILLS`. A step is a call out of Python: every system
call and every statement of SQLite's is one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from regional.kube.apiserver import snapshots
from regional.kube.apiserver.restoring import restore
from regional.kube.apiserver.store import Put, SelectableFields, Store

OLD, NEW = 40, 7  # objects of the snapshot; written since


class Report(msgspec.Struct):
    kills: int = 0
    before: int = 0  # restores that had changed nothing when they died
    after: int = 0  # restores that had done their work
    snapshots: int = 0  # kills that left a new snapshot
    faults: list[str] = []


async def _prepare(folder: Path) -> None:
    """A cluster with a snapshot, written to since, and left as by a crash: with its log beside it."""
    file = folder / "kube.db"
    store = _opened(file)
    store.start()
    for number in range(OLD):
        await _put(store, f"old-{number}")
    snapshots.take(file)
    for number in range(NEW):
        await _put(store, f"new-{number}")
    shutil.copytree(folder, folder.with_name("crashed"))  # before a close folds the log into the file
    store.close()


def _opened(file: Path) -> Store:
    return Store(file, lambda resource: SelectableFields())


async def _put(store: Store, name: str) -> None:
    content = {"metadata": {"name": name, "namespace": "default", "uid": name}}
    await store.write("configmaps", "default", name, lambda live: Put(content))


def _in_a_child(work: Callable[[], Any], step: int) -> bool:
    """Whether the work came to its end before the step at which it dies; 0: never."""
    child = os.fork()
    if child == 0:
        taken = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal taken
            if event == "c_call":
                taken += 1
                if taken == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        try:
            work()
        except BaseException as error:
            sys.setprofile(None)
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status):
        raise RuntimeError("a restore failed by itself")
    return True


def _steps(act: Callable[[int], bool]) -> int:
    """How many there are, found by halving: the last at which it dies."""
    low, high = 1, 64
    while not act(high):
        low, high = high, high * 2
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (low, middle) if act(middle) else (middle, high)
    return low


def _names(file: Path) -> tuple[set[str], int]:
    store = _opened(file)
    try:
        return {entry.name for entry in store.shelf("configmaps").entries.values()}, store.revision
    finally:
        store.close()


def _look_after_restore(file: Path, reached: int, report: Report, step: int) -> None:
    old = {f"old-{number}" for number in range(OLD)}
    names, revision = _names(file)
    if names == old | {f"new-{number}" for number in range(NEW)} and revision == reached:
        report.before += 1
    elif names == old and revision > reached:
        report.after += 1
    else:
        report.faults.append(f"step {step}: {len(names)} objects at revision {revision}, {reached} was reached")
    done = restore(file, snapshots.known(file)[-1].path)
    again, final = _names(file)
    if again != old or final != done.revision or final <= revision:
        report.faults.append(f"step {step}: the next restore left {len(again)} objects at revision {final}")
    if left := [str(each.name) for each in file.parent.iterdir() if each.name.startswith(".restored")]:
        report.faults.append(f"step {step}: {left} are still there")


def _look_after_snapshot(file: Path, report: Report, step: int) -> None:
    known = snapshots.known(file)
    report.snapshots += len(known) - 1
    if bad := [each.path.name for each in known if not snapshots.is_good(each.path)]:
        report.faults.append(f"step {step}: {bad} cannot be restored")
    snapshots.take(file)
    if left := [each.name for each in snapshots.folder_of(file).iterdir() if each.name.startswith(".")]:
        report.faults.append(f"step {step}: {left} are still there")


def main(folder: Path, kills: int) -> Report:
    place, master = folder / "cluster", folder / "crashed"
    place.mkdir(parents=True)
    _in_a_child(lambda: asyncio.run(_prepare(place)), 0)  # which has threads
    file, report = place / "kube.db", Report()

    def anew() -> Path:
        shutil.rmtree(place)
        shutil.copytree(master, place)
        return snapshots.known(file)[-1].path

    def restoring(step: int) -> bool:
        snapshot = anew()
        return _in_a_child(lambda: restore(file, snapshot), step)

    def taking(step: int) -> bool:
        anew()
        return _in_a_child(lambda: snapshots.take(file), step)

    restore(file, anew())  # what is done once in a process (patterns, imports) is no step
    snapshots.take(file)
    for act in (restoring, taking):
        last = _steps(act)
        spread = [max(1, last * number // kills) for number in range(1, kills // 2)]
        for step in spread + list(range(last - kills // 2, last + 1)):  # near its end it changes names
            act(step)
            report.kills += 1
            if act is restoring:
                _look_after_restore(file, OLD + NEW, report, step)
            else:
                _look_after_snapshot(file, report, step)
    return report


if __name__ == "__main__":
    print(msgspec.json.encode(main(Path(sys.argv[1]), int(sys.argv[2]))).decode())

"""A warm parent that forks writers on one cluster's file, kills each in mid-stream (-9) and checks what the next finds.

Run as a program: `python -m tests.kube_api.killed_writers FILE ROUNDS`. A writer says on a pipe what it is about to do
and what has been acknowledged, so for each key there are at most two truths: the last acknowledged state, or that of
the one write that was on its way.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
from pathlib import Path

import msgspec

from regional.kube.apiserver.store import Decision, Entry, Put, Remove, SelectableFields, Store

LANES = 8
State = str  # the content's stamp; "" is "not there"


class Report(msgspec.Struct):
    rounds: int = 0
    acknowledged: int = 0
    deletes: int = 0
    open_questions: int = 0  # writes that were on their way when the writer died
    faults: list[str] = []


def _content(name: str, stamp: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "data": {"stamp": stamp, "n": "x" * 200}}


def _open(file: Path) -> Store:
    return Store(file, lambda resource: SelectableFields())


async def _write_forever(file: Path, turn: int, pipe: int) -> None:
    store = _open(file)
    store.start()
    found = [f"{entry.name}={entry.obj()['data']['stamp']}" for entry in store.shelf("configmaps").entries.values()]
    os.write(pipe, f"found {store.revision} {' '.join(found)}\n".encode())

    async def lane(number: int) -> None:
        step = 0
        while True:
            step += 1
            name, stamp = f"lane-{number}-{step % 3}", f"{turn}.{number}.{step}"
            there = store.get("configmaps", "default", name) is not None
            state = "" if there and step % 2 else stamp

            def decide(live: Entry | None, state: State = state, name: str = name) -> Decision:
                return Put(_content(name, state)) if state else Remove(_content(name, "gone"))

            os.write(pipe, f"try {name} {state}\n".encode())
            entry = await store.write("configmaps", "default", name, decide)
            os.write(pipe, f"done {name} {entry.revision} {state}\n".encode())

    await asyncio.gather(*(lane(number) for number in range(LANES)))


class Ledger:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.truth: dict[str, State] = {}
        self.trying: dict[str, State] = {}
        self.revision = 0
        self._given: set[int] = set()

    def compare(self, revision: int, found: dict[str, State]) -> None:
        if revision < self.revision:
            self.report.faults.append(f"the counter went back from {self.revision} to {revision}")
        self.revision = revision
        for name in {*self.truth, *self.trying, *found}:
            now, sure = found.get(name, ""), self.truth.get(name, "")
            if now not in (sure, self.trying.get(name, sure)):
                self.report.faults.append(f"{name} is {now!r} after {sure!r}, then {self.trying.get(name)!r}")
        self.report.open_questions += len(self.trying)
        self.truth, self.trying = {name: state for name, state in found.items() if state}, {}

    def hear(self, line: str) -> None:
        what, name, *rest = line.split(" ")
        if what == "found":
            pairs = (item.split("=") for item in rest if item)
            self.compare(int(name), dict(pairs))
        elif what == "try":
            self.trying[name] = rest[0]
        else:
            revision, self.truth[name] = int(rest[0]), rest[1]
            del self.trying[name]
            if revision in self._given:
                self.report.faults.append(f"revision {revision} was given out twice")
            self._given.add(revision)
            self.report.acknowledged += 1
            self.report.deletes += not rest[1]
            self.revision = max(self.revision, revision)


def _round(file: Path, turn: int, ledger: Ledger, patience: int) -> None:
    """One writer's life: killed after so many acknowledgements, at whatever it is doing then."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            asyncio.run(_write_forever(file, turn, writer))
        finally:
            os._exit(1)
    os.close(writer)
    rest, enough, killed = b"", ledger.report.acknowledged + patience, False
    while chunk := os.read(reader, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            ledger.hear(line.decode())
        if not killed and ledger.report.acknowledged >= enough:
            select.select([], [], [], random.random() / 500)  # somewhere within the next batches
            os.kill(child, signal.SIGKILL)  # what is still in the pipe was said before
            killed = True
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        ledger.report.faults.append(f"writer {turn} ended by itself: {status}")


def main(file: Path, rounds: int) -> Report:
    report = Report()
    ledger = Ledger(report)
    for turn in range(rounds):
        _round(file, turn, ledger, random.randrange(0, 40))
        report.rounds += 1
    store = _open(file)
    entries = store.shelf("configmaps").entries.values()
    ledger.compare(store.revision, {entry.name: entry.obj()["data"]["stamp"] for entry in entries})
    store.close()
    return report


if __name__ == "__main__":
    print(msgspec.json.encode(main(Path(sys.argv[1]), int(sys.argv[2]))).decode())

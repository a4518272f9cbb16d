"""kill -9 whatever the live process tree offers, twenty times: the region heals, no acknowledged write is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from regional.core.paths import tools
from tests.region import processes
from tests.region.conftest import LiveRegion, new_home

pytestmark = [pytest.mark.xdist_group("region-killed"), pytest.mark.timeout(900)]
KILLS = 20


class Writer(threading.Thread):
    """Creates ConfigMaps one after the other and remembers those that the API acknowledged."""

    def __init__(self, region: LiveRegion, cluster: str) -> None:
        super().__init__(daemon=True)
        self._command = [str(tools() / "bin" / "kubectl"), "--kubeconfig", str(region.kubeconfig(cluster))]
        self.acknowledged: list[str] = []
        self.leaving = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.leaving.is_set():
            number += 1
            name = f"written-{number}"
            done = subprocess.run(
                [*self._command, "create", "configmap", name, "--request-timeout=5s"], capture_output=True, check=False
            )
            if done.returncode == 0:
                self.acknowledged.append(name)
            time.sleep(0.2)


def test_twenty_random_kills(region: LiveRegion) -> None:
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    print(f"seed {seed}")
    region.wait_healthy()
    writers = [Writer(region, cluster) for cluster in ("rc", "mc01")]
    for writer in writers:
        writer.start()
    killed = []
    try:
        for _ in range(KILLS):
            candidates = sorted(processes.of_home(region.home))
            victim = choose.choice(candidates)
            killed.append(f"{victim} {processes.command(victim)[:120]}")
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            time.sleep(choose.uniform(0.2, 2.0))
        try:
            region.wait_healthy()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, killed: {killed}\n{error}") from None
    finally:
        for writer in writers:
            writer.leaving.set()
            writer.join(30)
    for cluster, writer in zip(("rc", "mc01"), writers, strict=True):
        present = set(region.kubectl(cluster, "get", "configmaps", "-o", "name").split())
        lost = [name for name in writer.acknowledged if f"configmap/{name}" not in present]
        assert not lost, f"seed {seed}, killed: {killed}"
        assert writer.acknowledged
        region.kubectl(cluster, "delete", "configmap", *writer.acknowledged)


@pytest.mark.parametrize("service", ["postgres", "broker", "aws", "warm", "gateway", "rc-api", "mc01-node"])
def test_each_part_comes_back(region: LiveRegion, service: str) -> None:
    region.wait_healthy()
    old = region.pid(service)
    assert old
    os.kill(old, signal.SIGKILL)
    region.eventually(lambda: region.pid(service) not in (0, old), f"{service} runs again")
    region.wait_healthy()


def test_an_interrupted_up_is_finished_by_the_next() -> None:
    """kill -9 of `up` at several moments of its first run; what it leaves is picked up, never doubled."""
    live = LiveRegion(new_home())
    try:
        for seconds in (0.8, 3.0, 5.0, 7.0):
            first = subprocess.Popen(
                [sys.executable, "-m", "regional.cli.main", "up", "local", "--worktree"],
                env=live.env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(seconds)
            first.kill()
            first.wait()
        live.up()
        live.wait_healthy()
        accounts = live.regionctl("pipeline", "list", "--region", "local").stdout
        assert "provision-regional" in accounts
    finally:
        live.regionctl("down", "--region", live.name, "--purge", "--yes", check=False)
        live.eventually(lambda: not processes.of_home(live.home), "nothing is left running")
        assert not live.paths.root.exists()
        live.home.rmdir() if not any(live.home.iterdir()) else None

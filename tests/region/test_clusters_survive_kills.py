"""Twenty clusters and more are created and deleted while random processes of the region are killed. Each create ends
Ready, each delete ends gone, nothing exists twice, nothing is left."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.region import processes
from tests.region.conftest import LONGEST_BACKOFF, LiveRegion
from tests.region.customer import Customer, is_ready
from tests.region.test_the_request_path import MANAGEMENT_CLUSTERS, leftovers

pytestmark = [pytest.mark.xdist_group("region-killed"), pytest.mark.timeout(1500)]
CLUSTERS, AT_ONCE = 20, 4
LEAST_KILLS, MOST_KILLS = 20, 60
"""A quick machine is done with its clusters after few kills, and makes more of them.

A pod that is killed again and again waits ever longer before it starts, five minutes at last. On a slow machine
kills without an end would come faster than that, and nothing would ever be done."""
PATIENCE = 2 * LONGEST_BACKOFF


class Killer(threading.Thread):
    """kill -9 of one process of the region after the other: services, APIs, nodes, pods, hosted control planes."""

    def __init__(self, region: LiveRegion, choose: random.Random) -> None:
        super().__init__(daemon=True)
        self._home = region.home
        self._choose = choose
        self.killed: list[str] = []
        self.leaving = threading.Event()

    def run(self) -> None:
        while len(self.killed) < MOST_KILLS and not self.leaving.wait(self._choose.uniform(1.0, 3.0)):
            victim = self._choose.choice(sorted(processes.of_home(self._home)))
            said = processes.command(victim)[:100]
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.killed.append(f"{victim} {said}")


class Owner(threading.Thread):
    """A customer who takes no for "not now": asks again until the cluster is Ready, and then until it is gone."""

    def __init__(self, region: LiveRegion, name: str, enough: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._customer = Customer(region)
        self._name, self._enough = name, enough
        self.asked: list[str] = []
        self.seen_ready: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number in itertools.count():
                if number >= CLUSTERS // AT_ONCE and self._enough():
                    break
                name = f"{self._name}-{number}"
                self.asked.append(name)
                found = self._insist(lambda name=name: self._created(name), f"{name} is accepted")
                path = f"/clusters/{found['id']}"
                self._insist(lambda path=path: self._is_ready(path), f"{name} is Ready")
                self.seen_ready.append(name)
                self._insist(lambda path=path: self._is_gone(path), f"{name} is gone")
        except BaseException as error:
            self.error = error
        finally:
            self._customer.api.close()

    def _created(self, name: str) -> dict[str, Any] | None:
        """An answer may be lost after the deed: then the name is taken, and by us."""
        status, body = self._customer.ask("POST", "/clusters", {"name": name})
        if status == 201:
            return dict(body)
        assert status in (0, 409) or status >= 500, body
        if status == 409:
            known = [found for found in self._all() if found["name"] == name]
            assert len(known) <= 1, f"{name} exists twice: {known}"
            return known[0] if known else None
        return None

    def _all(self) -> list[dict[str, Any]]:
        status, body = self._customer.ask("GET", "/clusters", limit="100")
        return list(body["items"]) if status == 200 else []

    def _is_ready(self, path: str) -> bool:
        status, body = self._customer.ask("GET", path)
        assert status in (0, 200) or status >= 500, body
        return status == 200 and is_ready(body)

    def _is_gone(self, path: str) -> bool:
        status, body = self._customer.ask("DELETE", path)
        assert status in (0, 202, 404) or status >= 500, body
        return status == 404

    def _insist(self, attempt: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := attempt()):
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
            time.sleep(0.3)
        return found


def test_twenty_clusters_among_random_kills(region: LiveRegion) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    region.wait_healthy()
    before = {host: leftovers(region, host) for host in MANAGEMENT_CLUSTERS}
    killer = Killer(region, random.Random(seed))

    def enough() -> bool:
        return len(killer.killed) >= LEAST_KILLS or not killer.is_alive()

    owners = [Owner(region, f"kill-{seed % 100000}-{number}", enough) for number in range(AT_ONCE)]
    killer.start()
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join()
    killer.leaving.set()
    killer.join()
    story = f"seed {seed}, killed: {killer.killed}"
    failed = [repr(owner.error) for owner in owners if owner.error is not None]
    assert not failed, f"{failed}; {story}"
    names = [name for owner in owners for name in owner.asked]
    assert len(names) >= CLUSTERS
    assert Counter(name for owner in owners for name in owner.seen_ready) == Counter(names)
    assert len(killer.killed) >= LEAST_KILLS, story
    region.wait_healthy()
    for host in MANAGEMENT_CLUSTERS:
        region.eventually(lambda host=host: leftovers(region, host) == before[host], f"{host} is as it was; {story}")
    customer = Customer(region)
    try:
        assert not [found for found in customer.get("/clusters")["items"] if found["name"] in names]
        bundles = customer.get("/resource_bundles", size="100")["items"]
        assert not [bundle for bundle in bundles if bundle["name"].startswith("cluster-")]
    finally:
        customer.api.close()

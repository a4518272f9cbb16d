from __future__ import annotations

import shutil
import tempfile
import time
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from regional.core.loop import new_event_loop
from tests.kube_node.harness import NodeCluster, Warm


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    """The loop that nodes run on: these tests are about sockets and processes, where loops differ."""
    return {"ours": new_event_loop}


@pytest.fixture(scope="session")
def shared_warm() -> Iterator[Warm]:
    yield from _warm()


@pytest.fixture
def own_warm() -> Iterator[Warm]:
    """For tests that kill it."""
    yield from _warm()


def _warm() -> Iterator[Warm]:
    directory = Path(tempfile.mkdtemp(prefix="warm-"))
    warm = Warm(directory)
    try:
        warm.start()
        yield warm
    finally:
        warm.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def region_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="node-test-"))
    yield directory
    while directory.exists():  # the warm parent may still be noting how the last processes ended
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.01)


@pytest.fixture
async def cluster(region_directory: Path, shared_warm: Warm) -> AsyncIterator[NodeCluster]:
    async with NodeCluster(region_directory, shared_warm).running() as running:
        yield running

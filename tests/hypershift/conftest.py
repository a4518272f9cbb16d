from __future__ import annotations

import tempfile
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from regional.core.loop import new_event_loop
from regional.kube.client import Client
from tests.hypershift.harness import ManagementCluster, Operated, remove


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"ours": new_event_loop}


@pytest.fixture(scope="session")
def management_cluster() -> Iterator[ManagementCluster]:
    """One for all: tests keep to namespaces of their own, and whoever kills something waits until it is back."""
    directory = Path(tempfile.mkdtemp(prefix="hypershift-test-"))
    cluster = ManagementCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        remove(directory)


@pytest.fixture
async def mc(management_cluster: ManagementCluster) -> AsyncIterator[Operated]:
    async with Client.from_kubeconfig(management_cluster.kubeconfig) as client:
        operated = Operated(management_cluster, client)
        yield operated
        await operated.clean_up()

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .harness import Cluster, Shell, running


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
def shell(cluster: Cluster) -> Shell:
    return cluster.shell

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kube_controllers.harness import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """API, node stand-in and controllers, all running."""
    made = Cluster(tmp_path)
    await made.start()
    await made.control()
    yield made
    await made.stop()


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[Cluster]:
    """API and node stand-in; the test starts the controllers."""
    made = Cluster(tmp_path)
    await made.start()
    yield made
    await made.stop()

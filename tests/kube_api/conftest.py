"""One API server per test; keys and certificates once per worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .harness import Api, make_pki, start_server


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def api(tmp_path: Path, keys: Path) -> AsyncIterator[Api]:
    server = await start_server(tmp_path, keys)
    yield Api(server)
    await server.stop()

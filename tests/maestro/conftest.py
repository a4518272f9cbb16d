from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from regional.local.provisioner import postgres
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import OTHERS, Maestro, Mosquitto, Postgres, applied_work_definition, connect, eventually


def _reachable() -> Path:
    """A directory that a server's unprivileged user may enter, unlike pytest's own."""
    directory = Path(tempfile.mkdtemp(prefix="maestro-"))
    directory.chmod(0o711)
    return directory


def _postgres(*, durable: bool) -> Iterator[Postgres]:
    directory = _reachable()
    service = Postgres(directory, durable=durable)
    asyncio.run(postgres.lay_out(service.server))
    service.start()
    yield service
    service.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[Postgres]:
    yield from _postgres(durable=False)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """To be killed: what it said is committed must be there afterwards."""
    yield from _postgres(durable=True)


@pytest.fixture
def broker() -> Iterator[Mosquitto]:
    directory = _reachable()
    service = Mosquitto(directory)
    service.start()
    yield service
    service.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_database(shared_postgres: Postgres) -> dict[str, str]:
    return asyncio.run(shared_postgres.database())


@pytest.fixture
async def database(shared_database: dict[str, str]) -> dict[str, str]:
    """Empty. Making a new one for each test would take longer than most tests."""
    connection = await connect(shared_database)
    while await connection.fetch(OTHERS):  # what was killed may still have a statement under way
        await asyncio.sleep(0.005)
    await connection.execute("DROP OWNED BY CURRENT_USER")
    await connection.close()
    return shared_database


@pytest.fixture
async def maestro(tmp_path: Path, database: dict[str, str], broker: Mosquitto) -> Maestro:
    return Maestro(tmp_path, database, broker)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A management cluster: API, controllers, and the definition that the agent's chart brings."""
    made = Cluster(tmp_path / "cluster")
    await made.start(kubelet=False)
    await made.control()
    await made.client.create(applied_work_definition())

    async def served() -> bool:
        return await made.client.list("work.open-cluster-management.io/v1", "AppliedManifestWork") == []

    await eventually(served)
    if await made.client.get_or_none("v1", "Namespace", "default") is None:
        await made.namespace("default")
    yield made
    await made.stop()

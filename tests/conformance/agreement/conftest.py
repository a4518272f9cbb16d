"""A server for the plays, a node on it, and a stage (a namespace with pods that act) for each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from regional.kube.client import Client

from ..servers import Cluster, Missing, make_cluster
from ..stage import NODE, NodeKeeper, Stage, eventually


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server of these plays' own: its nodes would be in the way of others."""
    try:
        made = make_cluster(tmp_path_factory.mktemp("theatre"))
    except Missing as missing:
        pytest.fail(str(missing))
    if made.flavour == "kubeconfig":
        pytest.skip("a cluster with nodes of its own plays its pods itself")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
async def client(theatre: Cluster, tmp_path: Path) -> AsyncIterator[Client]:
    path = tmp_path / "kubeconfig"
    path.write_text(theatre.kubeconfig())
    async with Client.from_kubeconfig(path, user_agent="play") as made:
        yield made
    await asyncio.sleep(0.1)  # TLS connections take their leave


@pytest.fixture
async def keeper(client: Client) -> AsyncIterator[NodeKeeper]:
    made = NodeKeeper(client)
    await made.add(NODE)
    yield made
    await made.stop()


@pytest.fixture
async def stage(client: Client, keeper: NodeKeeper) -> AsyncIterator[Stage]:
    namespace = f"play-{os.urandom(4).hex()}"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    async def furnished() -> bool:
        return await client.get_or_none("v1", "ServiceAccount", "default", namespace) is not None

    await eventually(furnished)
    made = Stage(client, namespace)
    await made.open()
    yield made
    await made.close()
    await client.delete("v1", "Namespace", namespace, missing_ok=True)

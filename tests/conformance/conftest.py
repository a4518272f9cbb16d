"""One server per worker; each test in a namespace of its own, with custom kinds in a group of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from .objects import Custom, define, definition
from .servers import Cluster, Missing, make_cluster
from .wire import Http, Obj, Shell


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("cluster")


def _made(folder: Path) -> Cluster:
    try:
        return make_cluster(folder)
    except Missing as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The server that all tests of this worker share: do not restart it."""
    made = _made(_folder(tmp_path_factory))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server for one test alone, which may kill it and start it again."""
    made = _made(_folder(tmp_path_factory))
    if made.flavour == "kubeconfig":
        pytest.skip("a cluster that others run is not killed")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Ours and theirs, without controllers: nothing but a test's own requests writes."""
    made: list[Cluster] = []
    try:
        for kind in ("embedded", "real"):
            try:
                made.append(make_cluster(tmp_path_factory.mktemp(kind), kind, controllers=False))
            except Missing as missing:
                pytest.skip(str(missing))
        for each in made:
            each.start()
        yield made[0], made[1]
    finally:
        for each in made:
            each.close()


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[Http]:
    client = Http(cluster)
    yield client
    await client.close()


@pytest.fixture
async def namespace(http: Http) -> AsyncIterator[str]:
    """A new namespace, with the two objects in it that controllers put into every one."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    (await http.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        await http.until(f"/api/v1/namespaces/{name}/{path}", lambda answer: answer.status == 200)
    yield name
    await http.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str, tmp_path: Path) -> Shell:
    """`await kubectl("get deploy")`, in the test's namespace; `kubectl.run("helm …")` for other programs."""
    return Shell(tmp_path, cluster.kubeconfig(namespace=namespace))


@pytest.fixture
def group() -> str:
    """An API group of this test's own."""
    return f"g{uuid.uuid4().hex[:10]}.demo.io"


Define = Callable[[Obj], Awaitable[Custom]]


@pytest.fixture
async def crd(http: Http, namespace: str) -> AsyncIterator[Define]:
    """`await crd(definition(group, …))`: the custom kind, served; taken away after the test."""
    made: list[str] = []

    async def make(document: Obj) -> Custom:
        made.append(document["metadata"]["name"])
        return await define(http, namespace, document)

    yield make
    for name in made:
        await http.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")


@pytest.fixture
async def widgets(crd: Define, group: str) -> Custom:
    """Widgets: `spec.size` (0–1000), `color`, `replicas`, a set `tags`, a list-map `conds`; status and scale."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return await crd(definition(group, subresources={"status": {}, "scale": scale}))

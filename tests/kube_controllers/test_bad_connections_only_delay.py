"""With a fifth of all requests lost, before or after their effect, and watches cut, every story still ends well."""

from __future__ import annotations

import pytest

from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.kube.objects import name_of, spec_of
from tests.kube_controllers.harness import Cluster, Faults, deployment, eventually, rolled_out


@pytest.mark.parametrize("seed", range(3))
async def test_a_release_and_the_end_of_its_namespace(quiet: Cluster, seed: int) -> None:
    faults = Faults(LocalTransport(quiet.api.handle), seed, lost=0.1, cut=0.1)
    await quiet.control(Client(faults, user_agent="kube-controller-manager"), resync_seconds=1.0)
    await quiet.namespace("t")
    await quiet.client.create(deployment("web", "t", replicas=4))
    service = {"selector": {"app": "web"}, "ports": [{"port": 8080}]}
    await quiet.client.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "t"}, "spec": service}
    )

    async def up() -> bool:
        return rolled_out(await quiet.client.get("apps/v1", "Deployment", "web", "t"))

    await eventually(up, seconds=60)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}}
    await quiet.client.patch("apps/v1", "Deployment", "web", "t", patch, type="strategic")
    await eventually(up, seconds=60)

    async def settled() -> bool:
        pods = await quiet.pods("t")
        slices = await quiet.client.list("discovery.k8s.io/v1", "EndpointSlice", "t")
        backends = sorted(e["targetRef"]["name"] for s in slices for e in s.get("endpoints") or [])
        images = {spec_of(pod)["containers"][0]["image"] for pod in pods}
        return len(pods) == 4 and images == {"app:2"} and backends == sorted(name_of(pod) for pod in pods)

    await eventually(settled, seconds=60)
    await quiet.client.delete("v1", "Namespace", "t")

    async def ended() -> bool:
        return await quiet.client.get_or_none("v1", "Namespace", "t") is None

    await eventually(ended, seconds=60)

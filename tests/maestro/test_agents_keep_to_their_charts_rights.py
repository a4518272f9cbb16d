"""An agent with the rights that its chart gives: what hosted clusters need is applied and removed; other kinds are
refused with the cluster's own words, and a refused bundle can be deleted."""

from __future__ import annotations

from tests.charts.rendering import CHARTS, of_kind, template
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, condition, config_map, eventually, gone

ACCOUNT = "system:serviceaccount:maestro-agent:maestro-agent"
DEPLOYMENT: Document = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "example/web:1"}]},
        },
    },
}


async def granted(cluster: Cluster) -> None:
    chart = CHARTS / "management-cluster" / "maestro-agent"
    for obj in of_kind(template(chart), "ClusterRole", "ClusterRoleBinding"):
        await cluster.client.apply(obj, field_manager="test", force=True)


async def test_other_kinds_are_refused_and_their_bundle_can_still_be_deleted(
    maestro: Maestro, cluster: Cluster
) -> None:
    await granted(cluster)
    agent = cluster.api.client("work-agent").acting_as(ACCOUNT)
    async with maestro.server() as client, maestro.agent(agent, "mc01"):
        await client.create_consumer("mc01")
        namespace: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-1"}}
        secret: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "pull", "namespace": "cluster-1"},
        }
        made = await client.create_bundle("mc01", [namespace, secret, config_map("fine")])
        await applied(client, made["id"])

        refused = await client.create_bundle("mc01", [config_map("beside"), DEPLOYMENT])

        async def told() -> bool:
            bundle = await client.get_bundle(refused["id"])
            if condition(bundle, "Applied") != "False":
                return False
            said = [found["message"] for found in bundle["status"]["conditions"] if found["type"] == "Applied"]
            return f'User "{ACCOUNT}" cannot' in said[0]

        await eventually(told)
        assert await cluster.client.get_or_none("apps/v1", "Deployment", "web", "default") is None
        for bundle in (refused, made):
            await client.delete_bundle(bundle["id"])
            await gone(client, bundle["id"])
        for name in ("beside", "fine"):
            assert await cluster.client.get_or_none("v1", "ConfigMap", name, "default") is None

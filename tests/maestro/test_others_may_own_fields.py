"""ignoreFields: what the cluster's own controllers change stays as they want it."""

from __future__ import annotations

from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_for, config_map, eventually


def ignoring(when: str, *paths: str) -> list[Document]:
    apply = {"force": True, "ignoreFields": [{"condition": when, "jsonPaths": list(paths)}]}
    return [config_for("a", serverSideApply=apply)]


async def live(cluster: Cluster) -> Document:
    found: Document = (await cluster.client.get("v1", "ConfigMap", "a", "default"))["data"]
    return found


async def changed(cluster: Cluster, **data: str) -> None:
    """By somebody who takes the field over."""
    obj = config_map("a", data)
    await cluster.client.apply(obj, field_manager="autoscaler", force=True)


async def test_a_field_that_is_there_is_left_to_others(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle(
            "mc01",
            [config_map("a", {"size": "1", "x": "1"})],
            manifest_configs=ignoring("OnSpokePresent", ".data.size"),
        )
        await applied(client, made["id"])
        assert await live(cluster) == {"size": "1", "x": "1"}
        await changed(cluster, size="5")
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"size": "2", "x": "2"})])
        await applied(client, made["id"], 2)
        assert await live(cluster) == {"size": "5", "x": "2"}


async def test_a_change_on_the_cluster_stays_until_the_manifest_changes(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01") as agent:
        await client.create_consumer("mc01")
        made = await client.create_bundle(
            "mc01", [config_map("a", {"size": "1"})], manifest_configs=ignoring("OnSpokeChange", ".data.size")
        )
        await applied(client, made["id"])
        await changed(cluster, size="5")
        work = agent.works.get(made["id"])
        assert work is not None and work.outcome is not None
        before = work.outcome
        agent._reconciler.due(made["id"])

        async def passed() -> bool:
            return work.outcome is not before

        await eventually(passed)
        assert await live(cluster) == {"size": "5"}
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"size": "2"})])
        await applied(client, made["id"], 2)
        assert await live(cluster) == {"size": "2"}

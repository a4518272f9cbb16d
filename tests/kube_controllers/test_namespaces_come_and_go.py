"""Every namespace is furnished when it comes, and leaves nothing behind when it goes."""

from __future__ import annotations

from regional.kube.objects import Obj, condition_of, is_deleting, status_of
from tests.kube_controllers.harness import Cluster, deployment, eventually, rolled_out
from tests.kube_controllers.test_jobs_come_to_an_end import job


async def namespace_gone(cluster: Cluster, name: str) -> None:
    async def check() -> bool:
        return await cluster.client.get_or_none("v1", "Namespace", name) is None

    await eventually(check, f"namespace {name} is gone")


async def test_a_namespace_gets_its_account_and_the_root(cluster: Cluster) -> None:
    await cluster.namespace("t")

    async def furnished() -> bool:
        account = await cluster.client.get_or_none("v1", "ServiceAccount", "default", "t")
        root = await cluster.client.get_or_none("v1", "ConfigMap", "kube-root-ca.crt", "t")
        return account is not None and root is not None and root["data"] == {"ca.crt": "CA"}

    await eventually(furnished)


async def test_what_is_taken_away_or_changed_comes_back(cluster: Cluster) -> None:
    await test_a_namespace_gets_its_account_and_the_root(cluster)
    await cluster.client.delete("v1", "ServiceAccount", "default", "t")
    await cluster.client.patch("v1", "ConfigMap", "kube-root-ca.crt", "t", {"data": {"ca.crt": "forged"}})

    async def restored() -> bool:
        account = await cluster.client.get_or_none("v1", "ServiceAccount", "default", "t")
        root = await cluster.client.get("v1", "ConfigMap", "kube-root-ca.crt", "t")
        return account is not None and root["data"] == {"ca.crt": "CA"}

    await eventually(restored)


async def test_a_namespace_takes_everything_with_it(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(deployment("web", "t", replicas=3))
    service = {"selector": {"app": "web"}, "ports": [{"port": 8080}]}
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "t"}, "spec": service}
    )

    async def up() -> bool:
        return rolled_out(await cluster.client.get("apps/v1", "Deployment", "web", "t"))

    await eventually(up)
    await cluster.client.delete("v1", "Namespace", "t")
    await namespace_gone(cluster, "t")
    for entry in await cluster.client.resources():
        if entry.resource.namespaced and "list" in entry.verbs:
            left = await cluster.client.list(entry.resource.api_version, entry.resource.kind, "t")
            assert left == [], entry.resource.id


async def test_a_job_that_waits_for_a_node_does_not_hold_its_namespace(cluster: Cluster) -> None:
    """Its pods have a finalizer until the Job has counted them, and it may make no other in their place."""
    await cluster.namespace("t")
    waiting = job(parallelism=2, completions=4)
    waiting["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    await cluster.client.create(waiting)

    async def pending() -> bool:
        return len(await cluster.pods("t")) == 2

    await eventually(pending)
    await cluster.client.delete("v1", "Namespace", "t")
    await namespace_gone(cluster, "t")


async def test_a_finalizer_holds_the_namespace_and_is_named(cluster: Cluster) -> None:
    await cluster.namespace("t")
    held: Obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "t", "finalizers": ["demo.io/hold"]},
    }
    await cluster.client.create(held)
    await cluster.client.delete("v1", "Namespace", "t")

    async def explained() -> bool:
        namespace = await cluster.client.get("v1", "Namespace", "t")
        assert is_deleting(namespace)
        assert status_of(namespace)["phase"] == "Terminating"
        remaining = condition_of(namespace, "NamespaceFinalizersRemaining") or {}
        content = condition_of(namespace, "NamespaceContentRemaining") or {}
        return "demo.io/hold in 1 resource" in remaining.get("message", "") and "configmaps" in content.get(
            "message", ""
        )

    await eventually(explained)
    await cluster.client.patch("v1", "ConfigMap", "held", "t", {"metadata": {"finalizers": None}})
    await namespace_gone(cluster, "t")


async def test_a_namespace_may_come_back_under_its_name(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.namespace("t")
        await cluster.client.delete("v1", "Namespace", "t")
        await namespace_gone(cluster, "t")
    await test_a_namespace_gets_its_account_and_the_root(cluster)

"""A bundle with an executor does what that service account may do, and tells only what it may read."""

from __future__ import annotations

from typing import Any

from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, condition, config_for, config_map, eventually, values

EXECUTER = {"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": "builder"}}}
RBAC = "rbac.authorization.k8s.io"


async def granted(cluster: Cluster, *rules: Document) -> None:
    role: Document = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "builder", "namespace": "default"},
        "rules": list(rules),
    }
    binding: Document = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "builder", "namespace": "default"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "builder"},
        "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "default"}],
    }
    for obj in (role, binding):
        await cluster.client.apply(obj, field_manager="test", force=True)


def may(*verbs: str, resources: str = "configmaps", group: str = "") -> Document:
    return {"apiGroups": [group], "resources": [resources], "verbs": list(verbs)}


async def refused(client: Any, bundle_id: str) -> str:
    async def check() -> str:
        bundle = await client.get_bundle(bundle_id)
        if condition(bundle, "Applied") != "False":
            return ""
        said: str = bundle["status"]["resourceStatus"][0]["conditions"][0]["message"]
        return said

    found: str = await eventually(check)
    return found


async def test_each_verb_is_needed(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        await granted(cluster, may("create", "update", "patch", "get"))
        made = await client.create_bundle("mc01", [config_map("a")], executer=EXECUTER)
        said = await refused(client, made["id"])
        assert said.endswith("not allowed to apply the resource  configmaps, default a, will try again in 1m0s")
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None

        await granted(cluster, may("create", "update", "patch", "get", "delete"))
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"now": "allowed"})])
        await applied(client, made["id"], 2)


async def test_what_is_to_be_orphaned_needs_no_right_to_delete(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        await granted(cluster, may("create", "update", "patch", "get"))
        made = await client.create_bundle(
            "mc01", [config_map("a")], executer=EXECUTER, delete_option={"propagationPolicy": "Orphan"}
        )
        await applied(client, made["id"])


async def test_nobody_gives_away_more_than_they_have(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        everything = may("create", "update", "patch", "get", "delete", resources="roles", group=RBAC)
        await granted(cluster, everything, may("get"))

        def role(*verbs: str) -> Document:
            metadata = {"name": "gift", "namespace": "default"}
            return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [may(*verbs)]}

        made = await client.create_bundle("mc01", [role("get", "list")], executer=EXECUTER)
        assert "error: permission escalation" in await refused(client, made["id"])
        await client.patch_bundle(made["id"], manifests=[role("get")])
        await applied(client, made["id"], 2)


async def test_what_the_account_may_not_read_is_not_told(maestro: Maestro, cluster: Cluster) -> None:
    secret = config_map("hidden", {"key": "a secret"})
    await cluster.client.create(secret)
    feedback = [config_for("hidden", ("key", ".data.key"), strategy="ReadOnly")]
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [secret], manifest_configs=feedback, executer=EXECUTER)
        await refused(client, made["id"])
        bundle = await client.get_bundle(made["id"])
        assert values(bundle) == {} and "a secret" not in str(bundle["status"])
        await granted(cluster, may("get"))
        again = await client.create_bundle("mc01", [secret], name="again", manifest_configs=feedback, executer=EXECUTER)
        await applied(client, again["id"])

        async def told() -> bool:
            return values(await client.get_bundle(again["id"])) == {"key": "a secret"}

        await eventually(told)


async def test_only_service_accounts_execute(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")], executer={"subject": {"type": "User"}})
        assert "only support ServiceAccount type for the executor" in await refused(client, made["id"])

"""What a plain write of the manifest would not do: a binding cannot change its role, and a key may ask to go."""

from __future__ import annotations

import pytest

from regional.kube.objects import owners_of, uid_of
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_for, config_map, gone

RBAC = "rbac.authorization.k8s.io"


def binding(kind: str, role: str, subject: str = "builder") -> Document:
    place = {"namespace": "default"} if kind == "RoleBinding" else {}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": "builders", **place},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": "default"}],
    }


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
async def test_a_binding_whose_role_changes_is_made_anew(maestro: Maestro, cluster: Cluster, kind: str) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [binding(kind, "view")])
        await applied(client, made["id"])
        place = (f"{RBAC}/v1", kind, "builders", "default" if kind == "RoleBinding" else None)
        first = await cluster.client.get(*place)

        await client.patch_bundle(made["id"], manifests=[binding(kind, "view", "other")])
        await applied(client, made["id"], 2)
        second = await cluster.client.get(*place)
        assert (second["subjects"][0]["name"], uid_of(second)) == ("other", uid_of(first))

        await client.patch_bundle(made["id"], manifests=[binding(kind, "edit", "other")])
        await applied(client, made["id"], 3)
        third = await cluster.client.get(*place)
        assert third["roleRef"]["name"] == "edit" and uid_of(third) != uid_of(first)
        assert owners_of(third) == owners_of(first)
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
        assert await cluster.client.get_or_none(*place) is None


@pytest.mark.parametrize("strategy", ["Update", "CreateOnly"])
async def test_a_key_that_asks_to_go_is_never_written(maestro: Maestro, cluster: Cluster, strategy: str) -> None:
    marked = config_map("marked")
    marked["metadata"] |= {"labels": {"old-": "", "new": "x"}, "annotations": {"old-": "", "new": "x"}}
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [config_for("marked", strategy=strategy)]
        made = await client.create_bundle("mc01", [marked], manifest_configs=configs)
        await applied(client, made["id"])
        live = await cluster.client.get("v1", "ConfigMap", "marked", "default")
        for field in ("labels", "annotations"):
            assert {"old", "old-"}.isdisjoint(live["metadata"][field])
            assert live["metadata"][field]["new"] == "x"


async def test_a_key_that_asks_to_go_takes_what_was_there(maestro: Maestro, cluster: Cluster) -> None:
    there = config_map("marked")
    there["metadata"] |= {"labels": {"old": "1", "kept": "1"}}
    await cluster.client.create(there)
    wanted = config_map("marked")
    wanted["metadata"] |= {"labels": {"old-": ""}}
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [wanted])
        await applied(client, made["id"])
        live = await cluster.client.get("v1", "ConfigMap", "marked", "default")
        assert live["metadata"]["labels"] == {"kept": "1"}

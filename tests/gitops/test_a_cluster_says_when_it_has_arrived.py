"""`sync` waits until a cluster is where Git is: never too early, and with a reason while it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.gitops.arrival import underway
from regional.gitops.repo import Repositories
from tests.gitops.harness import GitOpsCluster, GitRepository, application_set, chart, config_map, identity_secret
from tests.kube_controllers.harness import eventually

VALUES = "deploy/local/local/argocd/regional-cluster-values.yaml"


@pytest.fixture
async def following(cluster: GitOpsCluster, repository: GitRepository, tmp_path: Path) -> Arriving:
    repository.commit(chart("argocd/config/shared/first", {"cm.yaml": config_map("it")}) | {VALUES: {}})
    await cluster.put(identity_secret(repository.url))
    await cluster.put(application_set())
    found = Arriving(cluster, Repositories(tmp_path / "looking"))
    await found.arrived()
    return found


class Arriving:
    def __init__(self, cluster: GitOpsCluster, repositories: Repositories) -> None:
        self._cluster, self._repositories = cluster, repositories

    async def lacking(self) -> dict[str, str]:
        return await underway(self._cluster.client, "argocd", self._repositories)

    async def arrived(self) -> None:
        async def check() -> bool:
            return not await self.lacking()

        await eventually(check, "the cluster has arrived")


async def test_a_new_chart_is_lacking_until_it_is_synced(
    cluster: GitOpsCluster, repository: GitRepository, following: Arriving
) -> None:
    await cluster.unfollow()
    repository.commit(chart("argocd/config/shared/second", {"cm.yaml": config_map("other")}))
    lacking = await following.lacking()
    assert lacking["second"] == "has not been generated yet"
    assert lacking["first"].startswith("is at ")
    await cluster.follow()
    await following.arrived()
    assert await cluster.client.get("v1", "ConfigMap", "other", "second")


async def test_a_removed_chart_is_on_its_way_until_it_is_gone(
    cluster: GitOpsCluster, repository: GitRepository, following: Arriving
) -> None:
    repository.commit(chart("argocd/config/shared/second", {"cm.yaml": config_map("other")}))
    await following.arrived()
    await cluster.unfollow()
    repository.remove("argocd/config/shared/second")
    repository.commit()
    assert (await following.lacking())["second"] == "is being removed"
    await cluster.follow()
    await following.arrived()
    assert await cluster.apps() == ["first"]
    assert await cluster.client.get_or_none("v1", "ConfigMap", "other", "second") is None


async def test_a_chart_that_does_not_render_is_named_with_its_reason(
    cluster: GitOpsCluster, repository: GitRepository, following: Arriving
) -> None:
    repository.commit({"argocd/config/shared/first/templates/cm.yaml": '{{ fail "no database" }}'})

    async def said() -> bool:
        return "no database" in (await following.lacking()).get("first", "")

    await eventually(said, "the reason")

"""Applications say of themselves what GitOps wrote last; `regionctl status` says when nobody writes any more."""

from __future__ import annotations

from regional.local.inspection import Part, parts_of
from tests.gitops.harness import GitOpsCluster, application
from tests.kube_controllers.harness import deployment


async def gitops(cluster: GitOpsCluster) -> list[Part]:
    return [part for part in await parts_of(cluster.client, "rc", {}) if part.kind == "cluster"]


async def test_a_cluster_whose_gitops_is_gone_is_not_well(bare: GitOpsCluster) -> None:
    await bare.install_definitions()
    await bare.put(application("web", "file:///nowhere", "charts/web"))
    [part] = await gitops(bare)
    assert (part.state, part.ok) == ("Unattended", False)
    assert "`regionctl up` brings it back" in part.message
    await bare.client.create(deployment("argocd", "argocd"))
    assert not await gitops(bare)
    await bare.client.patch("apps/v1", "Deployment", "argocd", "argocd", {"spec": {"replicas": 0}})
    assert [part.state for part in await gitops(bare)] == ["Unattended"]


async def test_a_cluster_that_was_never_bootstrapped_says_only_that(bare: GitOpsCluster) -> None:
    parts = await parts_of(bare.client, "rc", {})
    assert [part.message for part in parts if part.kind == "application"] == ["GitOps has not been bootstrapped yet"]
    assert not await gitops(bare)

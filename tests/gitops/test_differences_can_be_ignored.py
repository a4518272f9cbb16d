"""`ignoreDifferences`: fields that somebody else may own, without the Application calling it drift."""

from __future__ import annotations

from typing import Any

import pytest

from regional.gitops.ignoring import ignore_problem, without_ignored
from tests.gitops.harness import GitOpsCluster, GitRepository, Obj, application, chart
from tests.kube_controllers.harness import deployment

DEPLOYMENT = "apps/v1", "Deployment"
REPLICAS = {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}


def web(image: str = "app:1") -> dict[str, Any]:
    obj = deployment("web", "", image=image)
    del obj["metadata"]["namespace"]
    return chart("charts/web", {"deployment.yaml": obj})


def watching(repository: GitRepository, *ignore: Obj, **fields: Any) -> Obj:
    """Synced by itself, but not healed: drift stays to be looked at."""
    fields = {"automated": {"prune": True}, "ignoreDifferences": list(ignore)} | fields
    return application("web", repository.url, "charts/web", **fields)


async def scaled(cluster: GitOpsCluster, manager: str = "scaler") -> None:
    await cluster.client.patch(*DEPLOYMENT, "web", "web", {"spec": {"replicas": 2}}, field_manager=manager)


@pytest.mark.parametrize(
    "rule",
    [
        REPLICAS,
        {"group": "*", "kind": "*", "name": "web", "jsonPointers": ["/spec/replicas"]},
        {"group": "apps", "kind": "Deployment", "managedFieldsManagers": ["scaler"]},
    ],
)
async def test_a_rule_that_comes_later_makes_drift_none(
    cluster: GitOpsCluster, repository: GitRepository, rule: Obj
) -> None:
    repository.commit(web())
    await cluster.put(watching(repository))
    await cluster.settled("web")
    await scaled(cluster)
    await cluster.settled("web", sync="OutOfSync")
    await cluster.put(watching(repository, rule))
    await cluster.settled("web")
    await cluster.put(watching(repository))
    await cluster.settled("web", sync="OutOfSync")


async def test_a_rule_for_another_manager_or_object_ignores_nothing(
    cluster: GitOpsCluster, repository: GitRepository
) -> None:
    repository.commit(web())
    other = {"group": "apps", "kind": "Deployment", "managedFieldsManagers": ["somebody-else"]}
    await cluster.put(watching(repository, other, REPLICAS | {"name": "api"}))
    await cluster.settled("web")
    await scaled(cluster)
    await cluster.settled("web", sync="OutOfSync")


async def test_a_sync_that_respects_them_leaves_the_live_value(
    cluster: GitOpsCluster, repository: GitRepository
) -> None:
    repository.commit(web())
    options = ["ServerSideApply=true", "CreateNamespace=true", "RespectIgnoreDifferences=true"]
    await cluster.put(watching(repository, REPLICAS, options=options))
    await cluster.settled("web")
    await scaled(cluster)
    commit = repository.commit(web("app:2"))
    await cluster.settled("web", commit=commit)
    live = await cluster.client.get(*DEPLOYMENT, "web", "web")
    assert live["spec"]["replicas"] == 2
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "app:2"


async def test_what_is_not_understood_is_said(cluster: GitOpsCluster, repository: GitRepository) -> None:
    repository.commit(web())
    rule = {"group": "apps", "kind": "Deployment", "jqPathExpressions": [".spec.replicas"]}
    await cluster.put(watching(repository, rule))
    assert "jqPathExpressions are not supported" in await cluster.condition("web", "InvalidSpecError")
    assert ignore_problem([REPLICAS]) == ""


def test_a_managers_fields_are_found_in_maps_and_lists() -> None:
    owned = {
        "f:metadata": {"f:annotations": {".": {}, "f:note": {}}, "f:finalizers": {'v:"theirs"': {}}},
        "f:spec": {"f:ports": {'k:{"port":80}': {".": {}, "f:nodePort": {}}}},
    }
    obj = {
        "metadata": {"annotations": {"note": "x", "kept": "y"}, "finalizers": ["theirs", "ours"]},
        "spec": {"ports": [{"port": 80, "nodePort": 30000, "name": "web"}, {"port": 81, "nodePort": 30001}]},
    }
    rules = [{"managedFieldsManagers": ["them"]}]
    trimmed = without_ignored(obj, rules, [{"manager": "them", "fieldsV1": owned}, {"manager": "us", "fieldsV1": {}}])
    assert trimmed == {
        "metadata": {"annotations": {"kept": "y"}, "finalizers": ["ours"]},
        "spec": {"ports": [{"port": 80, "name": "web"}, {"port": 81, "nodePort": 30001}]},
    }
    assert obj["metadata"]["finalizers"] == ["theirs", "ours"], "the object itself is left as it is"

"""What tools and people read in an Application's status is worded and shaped as Argo CD does it."""

from __future__ import annotations

from regional.kube.objects import status_of
from tests.gitops.harness import GitOpsCluster, GitRepository, annotated, application, chart, config_map


async def test_objects_that_appear_more_than_once_are_counted(
    cluster: GitOpsCluster, repository: GitRepository
) -> None:
    repository.commit({f"plain/{number}.yaml": config_map("it", {"n": number}) for number in "123"})
    await cluster.put(application("plain", repository.url, "plain"))
    said = await cluster.condition("plain", "RepeatedResourceWarning")
    assert said == "Resource /ConfigMap/plain/it appeared 3 times among application resources."


async def test_nothing_is_claimed_of_the_objects_of_a_chart_that_does_not_render(
    cluster: GitOpsCluster, repository: GitRepository
) -> None:
    repository.commit(chart("it", {"cm.yaml": annotated(config_map("it"), wave="2")}))
    await cluster.put(application("it", repository.url, "it"))
    assert [r["status"] for r in status_of(await cluster.settled("it"))["resources"]] == ["Synced"]
    repository.commit({"it/templates/cm.yaml": '{{ fail "no" }}'})
    await cluster.condition("it", "ComparisonError")
    told = status_of(await cluster.settled("it", sync="Unknown"))["resources"]
    assert [(r["name"], r["status"], r["syncWave"]) for r in told] == [("it", "Unknown", 2)]
    repository.commit({"it/templates/cm.yaml": config_map("it")})
    assert [r["status"] for r in status_of(await cluster.settled("it"))["resources"]] == ["Synced"]

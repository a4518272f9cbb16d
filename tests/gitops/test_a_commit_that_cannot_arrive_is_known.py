"""`sync` need not wait for what time does not mend: a chart that does not render, two charts of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.gitops.applicationset import API_VERSION
from regional.gitops.arrival import Refused, underway
from regional.gitops.repo import Repositories
from regional.kube.objects import status_of
from tests.gitops.harness import GitOpsCluster, GitRepository, application_set, chart, config_map, identity_secret
from tests.kube_controllers.harness import eventually

VALUES = "deploy/local/local/argocd/regional-cluster-values.yaml"
TEMPLATE = "argocd/config/shared/first/templates/cm.yaml"
BROKEN = '{{ fail "no database" }}'


class Looking:
    def __init__(self, cluster: GitOpsCluster, repositories: Repositories) -> None:
        self._cluster, self._repositories = cluster, repositories

    async def lacking(self) -> dict[str, str]:
        return await underway(self._cluster.client, "argocd", self._repositories)

    async def arrived(self) -> None:
        async def check() -> bool:
            return not await self.lacking()

        await eventually(check, "the cluster has arrived")

    async def refused(self, name: str) -> str:
        async def check() -> bool:
            return isinstance((await self.lacking()).get(name), Refused)

        await eventually(check, f"{name} is refused")
        return (await self.lacking())[name]


@pytest.fixture
async def looking(cluster: GitOpsCluster, repository: GitRepository, tmp_path: Path) -> Looking:
    files = chart("argocd/config/shared/first", {"cm.yaml": config_map("it")})
    repository.commit(files | chart("argocd/config/shared/second", {"cm.yaml": config_map("other")}) | {VALUES: {}})
    await cluster.put(identity_secret(repository.url))
    await cluster.put(application_set())
    found = Looking(cluster, Repositories(tmp_path / "looking"))
    await found.arrived()
    return found


async def test_a_chart_that_does_not_render_is_refused_at_the_commit_that_broke_it(
    cluster: GitOpsCluster, repository: GitRepository, looking: Looking
) -> None:
    commit = repository.commit({TEMPLATE: BROKEN})
    assert "no database" in await looking.refused("first")
    await eventually_only(looking, {"first"})
    sync = status_of(await cluster.client.get(API_VERSION, "Application", "first", "argocd"))["sync"]
    assert (sync["status"], sync["revisions"]) == ("Unknown", [commit, commit])


async def test_what_an_earlier_commit_broke_is_no_verdict_on_the_next(
    cluster: GitOpsCluster, repository: GitRepository, looking: Looking
) -> None:
    repository.commit({TEMPLATE: BROKEN})
    await looking.refused("first")
    await cluster.unfollow()
    repository.commit({TEMPLATE: config_map("it")})
    assert not isinstance((await looking.lacking())["first"], Refused)
    await cluster.follow()
    await looking.arrived()


async def test_a_verdict_on_sources_that_the_set_is_about_to_change_does_not_count(
    cluster: GitOpsCluster, repository: GitRepository, looking: Looking
) -> None:
    repository.commit({TEMPLATE: BROKEN})
    await looking.refused("first")
    await cluster.unfollow()
    spec = application_set()["spec"]
    spec["template"]["spec"]["syncPolicy"]["syncOptions"] = ["CreateNamespace=true"]
    await cluster.put(application_set(**spec))
    lacking = await looking.lacking()
    assert lacking.keys() == {"first", "second"}
    assert not any(isinstance(why, Refused) for why in lacking.values())


async def test_two_charts_of_one_name_are_refused_and_hold_up_no_other(
    repository: GitRepository, looking: Looking
) -> None:
    repository.commit(chart("argocd/config/regional-cluster/second", {"cm.yaml": config_map("twin")}))
    assert "second" in await looking.refused("second")
    await eventually_only(looking, {"second"})


async def eventually_only(looking: Looking, names: set[str]) -> None:
    async def check() -> bool:
        return (await looking.lacking()).keys() == names

    await eventually(check, f"nothing but {names} is lacking")

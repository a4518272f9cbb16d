"""What clusters would get, and what Argo CD would pass over in silence, before anything is committed or applied."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from regional.core.problems import UserError
from regional.gitops.fleet import Choice
from regional.gitops.helm import Helm
from regional.gitops.objectdiff import Group, compare
from regional.gitops.preview import ClusterPreview, Preview
from regional.gitops.repo import Repositories
from tests.gitops.harness import GitRepository, Obj, application_set, chart, config_map
from tests.kube_controllers.harness import deployment

VALUES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: who}
data: {who: "{{ .Values.who }}", region: "{{ .Values.global.region }}"}
"""


def region(name: str, *clusters: str, environment: str = "test", aws_region: str = "eu-west-1") -> Obj:
    return {
        "environment": environment,
        "region_alias": name,
        "aws_region": aws_region,
        "management_clusters": [{"cluster_id": cluster} for cluster in clusters],
    }


def rendered(*regions: Obj, applicationset: Obj | None = None) -> dict[str, Any]:
    """What `config render` leaves under deploy/."""
    files: dict[str, Any] = {"deploy/index.json": json.dumps({"regions": list(regions)})}
    for one in regions:
        base = f"deploy/{one['environment']}/{one['region_alias']}/argocd"
        for kind in ("regional-cluster", "management-cluster"):
            files[f"{base}/{kind}-values.yaml"] = f"# {base}\nwho: {one['region_alias']}\n"
            files[f"{base}/{kind}-manifests/applicationset.yaml"] = applicationset or application_set()
    return files


CHARTS: dict[str, Any] = {
    **chart("argocd/config/regional-cluster/clm", {"cm.yaml": VALUES}),
    **chart("argocd/config/management-cluster/agent", {"cm.yaml": VALUES}),
    **chart("argocd/config/shared/argocd", {"cm.yaml": config_map("controller")}),
}
Look = Callable[..., Any]


@pytest.fixture
async def preview(repository: GitRepository, helm: str, tmp_path: Path) -> AsyncIterator[Preview]:
    renderer = Helm(tmp_path / "helm", binary=helm)
    yield Preview(Repositories(tmp_path / "cache"), renderer, repository.url)
    await renderer.close()


@pytest.fixture
def look(preview: Preview) -> Look:
    async def at(commit: str, **choice: str) -> list[ClusterPreview]:
        return await preview.of(commit, Choice(**choice))

    return at


@pytest.fixture
def compared(preview: Preview) -> Look:
    async def between(old: str, new: str, **choice: str) -> list[Group]:
        return compare(*await preview.of_both(old, new, Choice(**choice)))

    return between


def refusals(found: list[ClusterPreview]) -> str:
    return "\n".join(str(problem) for one in found for problem in one.problems if problem.refused)


class TestAPreview:
    async def test_lists_what_each_cluster_would_get(self, repository: GitRepository, look: Look) -> None:
        commit = repository.commit(CHARTS | rendered(region("one", "mc01", "mc02"), region("two")))
        found = await look(commit)
        assert [one.cluster.title for one in found] == ["test/one rc", "test/one mc01 (and 1 alike)", "test/two rc"]
        assert [[app.name for app in one.applications] for one in found] == [
            ["clm", "argocd"],
            ["agent", "argocd"],
            ["clm", "argocd"],
        ]
        objects = {key.name: obj for app in found[0].applications for key, obj in app.objects.items()}
        assert objects["who"]["data"] == {"who": "one", "region": "eu-west-1"}
        assert objects["who"]["metadata"]["namespace"] == "clm"
        assert [one.problems for one in found] == [[], [], []]

    async def test_can_be_narrowed(self, repository: GitRepository, look: Look) -> None:
        commit = repository.commit(CHARTS | rendered(region("one", "mc01", "mc02"), region("one", environment="prod")))
        assert len(await look(commit, region="one")) == 3
        assert len(await look(commit, region="prod/one")) == 1
        assert [one.cluster.title for one in await look(commit, cluster="mc02")] == ["test/one mc02"]
        assert len(await look(commit, cluster_type="management-cluster")) == 1
        with pytest.raises(UserError, match="no region 'nowhere'") as caught:
            await look(commit, region="nowhere")
        assert "test/one" in caught.value.hint

    async def test_a_cluster_with_values_of_its_own_is_looked_at_by_itself(
        self, repository: GitRepository, look: Look
    ) -> None:
        files = rendered(region("one", "mc01", "mc02", "mc03"))
        files["deploy/test/one/argocd/management-cluster-values/mc02.yaml"] = "who: special\n"
        found = await look(repository.commit(CHARTS | files), cluster_type="management-cluster")
        assert [one.cluster.title for one in found] == ["test/one mc01 (and 1 alike)", "test/one mc02"]

    async def test_clusters_are_alike_by_the_values_that_they_are_pinned_to(
        self, repository: GitRepository, look: Look
    ) -> None:
        special = "deploy/test/one/argocd/management-cluster-values/mc02.yaml"
        pin = repository.commit(CHARTS | rendered(region("one", "mc01", "mc02")) | {special: "who: special\n"})
        repository.remove(special)
        held = region("one", "mc01", "mc02") | {"values_revision": {"management-cluster": pin}}
        found = await look(repository.commit(rendered(held)), cluster_type="management-cluster")
        assert [one.cluster.title for one in found] == ["test/one mc01", "test/one mc02"]

    async def test_reads_charts_at_the_pin_and_values_at_the_commit(
        self, repository: GitRepository, look: Look
    ) -> None:
        pin = repository.commit(CHARTS)
        pinned = application_set()
        git = pinned["spec"]["generators"][0]["matrix"]["generators"][1]["git"]
        git["revision"] = pinned["spec"]["template"]["spec"]["sources"][0]["targetRevision"] = pin
        newer = {"argocd/config/regional-cluster/clm/templates/cm.yaml": config_map("newer")}
        commit = repository.commit(newer | rendered(region("one"), applicationset=pinned))
        (found,) = await look(commit)
        app = found.applications[0]
        assert [key.name for key in app.objects] == ["who"]
        assert app.revisions is not None and app.revisions.commits == (pin, commit)


class TestWhatArgoCDPassesOver:
    async def test_a_type_without_charts_is_refused(self, repository: GitRepository, look: Look) -> None:
        shared = {path: content for path, content in CHARTS.items() if "/shared/" in path}
        commit = repository.commit(shared | rendered(region("one")))
        assert "only shared charts: none is of type 'regional-cluster'" in refusals(await look(commit))

    async def test_no_application_at_all_is_refused(self, repository: GitRepository, look: Look) -> None:
        commit = repository.commit(rendered(region("one")))
        assert "deletes every Application" in refusals(await look(commit))

    async def test_two_charts_of_one_name_are_refused(self, repository: GitRepository, look: Look) -> None:
        twin = chart("argocd/config/shared/clm", {"cm.yaml": config_map("twin")})
        commit = repository.commit(CHARTS | twin | rendered(region("one")))
        assert "duplicate name: clm" in refusals(await look(commit))

    async def test_a_missing_parameter_is_refused(self, repository: GitRepository, look: Look) -> None:
        asking = application_set()
        asking["spec"]["template"]["metadata"]["annotations"] = {"x": "{{ .metadata.annotations.nobody_sets_this }}"}
        commit = repository.commit(CHARTS | rendered(region("one"), applicationset=asking))
        assert "contains <no value>" in refusals(await look(commit))

    async def test_a_controller_that_would_not_manage_itself_is_refused(
        self, repository: GitRepository, look: Look
    ) -> None:
        others = {path: content for path, content in CHARTS.items() if "/shared/" not in path}
        commit = repository.commit(others | rendered(region("one")))
        assert "would not manage its own controller" in refusals(await look(commit))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"goTemplate": False}, "without `goTemplate: true`"),
            ({"generators": [{"gti": {}}]}, "unknown generator 'gti'"),
            ({"generators": [{"git": {"revision": 12345670000}}]}, "revision is not text but 12345670000: quote it"),
            ({"template": {"spec": {"project": "default"}}}, "template.metadata is missing"),
        ],
    )
    async def test_a_set_that_does_not_mean_what_it_says_is_refused(
        self, repository: GitRepository, look: Look, change: Obj, reason: str
    ) -> None:
        commit = repository.commit(CHARTS | rendered(region("one"), applicationset=application_set(**change)))
        assert reason in refusals(await look(commit))

    async def test_values_that_change_on_their_way_are_warned_of(self, repository: GitRepository, look: Look) -> None:
        lossy = application_set()
        helm = lossy["spec"]["template"]["spec"]["sources"][0]["helm"]
        helm["valuesObject"] |= {"gone": None, "big": 2**53 + 1}
        (found,) = await look(repository.commit(CHARTS | rendered(region("one"), applicationset=lossy)))
        said = "\n".join(map(str, found.problems))
        assert "valuesObject.gone is null" in said and "valuesObject.big is 9007199254740993" in said
        assert not found.refused

    async def test_an_object_of_two_applications_is_warned_of(self, repository: GitRepository, look: Look) -> None:
        same = config_map("same")
        same["metadata"]["namespace"] = "here"
        files = {
            f"argocd/config/{place}/templates/same.yaml": same for place in ("regional-cluster/clm", "shared/argocd")
        }
        (found,) = await look(repository.commit(CHARTS | files | rendered(region("one"))))
        assert [str(problem) for problem in found.problems] == [
            "warning: ConfigMap/here/same is part of Applications clm and argocd: each undoes the other"
        ]

    async def test_a_chart_that_comes_to_nothing_is_warned_of(self, repository: GitRepository, look: Look) -> None:
        empty = chart("argocd/config/regional-cluster/clm", {"cm.yaml": "{{ if .Values.never }}x: y{{ end }}"})
        (found,) = await look(repository.commit(CHARTS | empty | rendered(region("one"))))
        (problem,) = found.problems
        assert not problem.refused and "clm: argocd/config/regional-cluster/clm comes to no object" in str(problem)

    async def test_a_chart_that_does_not_render_is_named_and_others_are_shown(
        self, repository: GitRepository, look: Look
    ) -> None:
        broken = {"argocd/config/regional-cluster/clm/templates/bad.yaml": '{{ fail "no database" }}'}
        (found,) = await look(repository.commit(CHARTS | broken | rendered(region("one"))))
        assert "Application clm" in refusals([found]) and "no database" in refusals([found])
        assert [len(app.objects) for app in found.applications] == [0, 1]

    async def test_a_missing_value_file_or_pin_is_refused(self, repository: GitRepository, look: Look) -> None:
        files = rendered(region("one"))
        del files["deploy/test/one/argocd/regional-cluster-values.yaml"]
        assert "does not exist" in refusals(await look(repository.commit(CHARTS | files)))
        pinned = application_set()
        pinned["spec"]["generators"][0]["matrix"]["generators"][1]["git"]["revision"] = "a" * 40
        commit = repository.commit(CHARTS | rendered(region("one"), applicationset=pinned))
        assert f"has no commit {'a' * 40}" in refusals(await look(commit))


class TestADiff:
    async def test_groups_clusters_that_change_alike(self, repository: GitRepository, compared: Look) -> None:
        old = repository.commit(CHARTS | rendered(region("one"), region("two"), region("three", "mc01")))
        new = repository.commit({"argocd/config/regional-cluster/clm/templates/more.yaml": config_map("more")})
        (group,) = await compared(old, new)
        assert group.clusters == ["test/one rc", "test/two rc", "test/three rc"]
        assert [str(change) for change in group.change.objects] == ["added ConfigMap/clm/more"]

    async def test_shows_each_field_that_changes_and_that_pods_roll(
        self, repository: GitRepository, compared: Look
    ) -> None:
        def web(image: str, app: str = "web") -> dict[str, Any]:
            obj = deployment("web", "", image=image)
            del obj["metadata"]["namespace"]
            obj["spec"]["selector"] = {"matchLabels": {"app": app}}
            return {"argocd/config/regional-cluster/clm/templates/web.yaml": obj}

        old = repository.commit(CHARTS | web("app:1") | rendered(region("one")))
        new = repository.commit(web("app:2"))
        (group,) = await compared(old, new)
        (change,) = group.change.objects
        assert str(change) == "changed apps/Deployment/clm/web (its pods roll)"
        assert [line.strip() for line in change.diff if line[0] in "+-"] == [
            "-      - image: app:1",
            "+      - image: app:2",
        ]
        (group,) = await compared(new, repository.commit(web("app:2", "other")))
        assert "spec.selector cannot be changed in place" in str(group.change.objects[0])

    async def test_says_what_is_destroyed(self, repository: GitRepository, compared: Look) -> None:
        more = chart("argocd/config/regional-cluster/extra", {"cm.yaml": config_map("it")})
        old = repository.commit(CHARTS | more | rendered(region("one"), region("two")))
        repository.remove("argocd/config/regional-cluster/extra")
        repository.remove("argocd/config/shared/argocd/templates/cm.yaml")
        new = repository.commit(rendered(region("one")))
        said = {str(p) for group in await compared(old, new) for p in group.change.problems}
        assert said == {
            "warning: Application extra is removed, and with it 1 objects",
            "refused: Application argocd loses all its objects: auto-sync refuses to wipe it out",
            "warning: Application argocd: argocd/config/shared/argocd comes to no object",
            "warning: the cluster is no longer declared: its Applications stay on it, and follow nothing",
        }

    async def test_of_a_commit_that_touches_nothing_is_empty(self, repository: GitRepository, compared: Look) -> None:
        old = repository.commit(CHARTS | rendered(region("one")))
        new = repository.commit({"README.md": "hello"})
        assert await compared(old, new) == []

    async def test_of_a_region_that_one_side_does_not_have_yet(self, repository: GitRepository, compared: Look) -> None:
        old = repository.commit(CHARTS | rendered(region("one")))
        new = repository.commit(rendered(region("one"), region("two")))
        (group,) = await compared(old, new, region="two")
        assert (group.clusters, group.change.applications) == (["test/two rc"], (("clm", "added"), ("argocd", "added")))
        with pytest.raises(UserError, match="no region 'nowhere'"):
            await compared(old, new, region="nowhere")


class TestADiffOfClustersThatAreNoLongerAlike:
    """One cluster of several stands for all that get the same; which those are may change with the very commit."""

    def files(self, *clusters: str, **own: str) -> dict[str, Any]:
        layered = application_set()
        helm = layered["spec"]["template"]["spec"]["sources"][0]["helm"]
        base = "deploy/{{ .metadata.labels.environment }}/{{ .metadata.labels.region_alias }}/argocd"
        helm["valueFiles"].append(
            f"$values/{base}/management-cluster-values/{{{{ .metadata.labels.cluster_name }}}}.yaml"
        )
        helm["ignoreMissingValueFiles"] = True
        files = CHARTS | rendered(region("one", *clusters), applicationset=layered)
        for name, who in own.items():
            files[f"deploy/test/one/argocd/management-cluster-values/{name}.yaml"] = f"who: {who}\n"
        return files

    async def test_shows_what_one_of_them_gets_of_its_own(self, repository: GitRepository, compared: Look) -> None:
        old = repository.commit(self.files("mc01", "mc02", "mc03"))
        new = repository.commit(self.files("mc01", "mc02", "mc03", mc02="canary"))
        for before, after in ((old, new), (new, old)):
            (group,) = await compared(before, after)
            assert (group.clusters, group.change.applications) == (["test/one mc02"], ())
            assert [str(change) for change in group.change.objects] == ["changed ConfigMap/agent/who"]

    async def test_shows_one_more_and_one_less_of_the_same(self, repository: GitRepository, compared: Look) -> None:
        old = repository.commit(self.files("mc01", "mc02"))
        new = repository.commit(self.files("mc02", "mc03", "mc04"))
        change = {group.clusters[0]: group.change for group in await compared(old, new)}
        assert list(change) == ["test/one mc01", "test/one mc03 (and 1 alike)"]
        assert change["test/one mc01"].applications == (("agent", "removed"), ("argocd", "removed"))
        assert change["test/one mc03 (and 1 alike)"].applications == (("agent", "added"), ("argocd", "added"))


@pytest.mark.parametrize(
    "index", ["", "<<<<<<< HEAD", "[]", '{"regions": [{}]}', '{"regions": [1]}', '{"regions": null}']
)
async def test_an_index_that_no_render_has_written_is_one_clear_error(
    repository: GitRepository, look: Look, index: str
) -> None:
    commit = repository.commit(CHARTS | rendered(region("us")) | {"deploy/index.json": index})
    with pytest.raises(UserError, match=r"deploy/index\.json cannot be read"):
        await look(commit)

"""What Argo CD's own generators make of an ApplicationSet, ours make too."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from regional.gitops.applicationset import RESOURCES_FINALIZER, EvaluationError, evaluate
from regional.gitops.generators import Cluster, GeneratorError
from regional.gitops.matching import BadPattern, path_match
from regional.kube.objects import name_of
from tests.gitops.harness import LOCAL, Obj, application_set

TREE = [
    "argocd",
    "argocd/config",
    "argocd/config/management-cluster",
    "argocd/config/management-cluster/hypershift",
    "argocd/config/regional-cluster",
    "argocd/config/regional-cluster/clm",
    "argocd/config/regional-cluster/clm/templates",
    "argocd/config/regional-cluster/maestro-server",
    "argocd/config/shared",
    "argocd/config/shared/argocd",
    "argocd/config/shared/.hidden",
]


def cluster(secret: str = "local-cluster-identity", name: str = "in-cluster", **labels: str) -> Cluster:
    facts = {
        "argocd.argoproj.io/secret-type": "cluster",
        "cluster_type": "regional-cluster",
        "environment": "local",
        "region_alias": "local",
        "aws_region": "us-west-2",
    }
    notes = {"git_repo": "https://github.com/example/platform.git", "git_revision": "main"}
    return Cluster(secret, name, LOCAL, "", facts | labels, notes)


async def directories(url: str, revision: str) -> Sequence[str]:
    assert revision == "main"
    return TREE


async def generated(
    applicationset: Obj, clusters: Sequence[Cluster] | None = None, tree: Any = directories
) -> list[Obj]:
    found = await evaluate(applicationset, [cluster()] if clusters is None else clusters, tree)
    return found.applications


def git_only(*patterns: str | Obj, **spec: Any) -> Obj:
    paths = [{"path": p} if isinstance(p, str) else p for p in patterns]
    git = {"git": {"repoURL": "r", "revision": "main", "directories": paths}}
    template = {
        "metadata": {"name": "{{ .path.basename }}"},
        "spec": {
            "project": "default",
            "destination": {"server": LOCAL},
            "source": {"repoURL": "r", "path": "{{ .path.path }}"},
        },
    }
    return application_set(generators=[git], **({"template": template} | spec))


class TestTheClustersOwnSet:
    async def test_makes_one_application_per_chart_of_its_type_and_the_shared_ones(self) -> None:
        assert [name_of(app) for app in await generated(application_set())] == ["clm", "maestro-server", "argocd"]

    async def test_fills_every_field_from_the_identity(self) -> None:
        app = (await generated(application_set()))[0]
        assert app["metadata"] == {
            "name": "clm",
            "namespace": "argocd",
            "labels": {
                "cluster_type": "regional-cluster",
                "environment": "local",
                "region_alias": "local",
                "aws_region": "us-west-2",
            },
            "finalizers": [RESOURCES_FINALIZER],
        }
        charts, values = app["spec"]["sources"]
        assert charts["path"] == "argocd/config/regional-cluster/clm"
        assert charts["helm"]["valueFiles"][1] == "$values/deploy/local/local/argocd/regional-cluster-values.yaml"
        assert charts["helm"]["valuesObject"] == {"global": {"region": "us-west-2"}}
        assert values["repoURL"] == "https://github.com:443/example/platform.git"
        assert app["spec"]["destination"] == {"namespace": "clm", "server": LOCAL}

    async def test_a_wrong_cluster_type_leaves_only_what_is_shared(self) -> None:
        apps = await generated(application_set(), [cluster(cluster_type="typo")])
        assert [name_of(app) for app in apps] == ["argocd"]

    async def test_no_secret_is_success_with_nothing_and_a_warning(self) -> None:
        found = await evaluate(application_set(), [], directories)
        assert found.applications == []
        assert "deletes every Application" in found.warnings[0]

    async def test_two_clusters_make_twins_and_neither_is_touched(self) -> None:
        found = await evaluate(application_set(), [cluster(), cluster("second", "other")], directories)
        assert found.applications == []
        assert found.names == {"clm", "maestro-server", "argocd"}
        assert "contains applications with duplicate name: clm" in found.invalid["clm"]

    async def test_a_lost_repository_fails_only_through_replace(self) -> None:
        lost = cluster()
        lost.annotations.pop("git_repo")
        with pytest.raises(EvaluationError, match="invalid value; expected string"):
            await generated(application_set(), [lost])

    async def test_without_go_templates_everything_stays_literal(self) -> None:
        async def literal(url: str, revision: str) -> Sequence[str]:
            assert url == "{{ .metadata.annotations.git_repo }}"
            return TREE

        apps = await generated(application_set(goTemplate=False), tree=literal)
        assert [name_of(app) for app in apps] == ["{{ .path.basename }}"]

    async def test_an_unknown_revision_fails_all(self) -> None:
        async def broken(url: str, revision: str) -> Sequence[str]:
            raise GeneratorError("unable to resolve 'main' to a commit SHA")

        with pytest.raises(EvaluationError, match="unable to resolve") as caught:
            await generated(application_set(), tree=broken)
        assert caught.value.reason == "ApplicationParamsGenerationError"

    async def test_its_project_must_exist(self) -> None:
        with pytest.raises(EvaluationError, match="project default"):
            await evaluate(application_set(), [cluster()], directories, projects=())


class TestDirectories:
    async def test_come_in_walk_order_not_in_string_order(self) -> None:
        async def tree(url: str, revision: str) -> Sequence[str]:
            return ["a-b", "a", "B", "a/z"]

        apps = await generated(git_only("*", "*/*"), tree=tree)
        assert [app["spec"]["source"]["path"] for app in apps] == ["B", "a", "a/z", "a-b"]

    async def test_exclude_wins_in_any_order_and_a_double_match_comes_once(self) -> None:
        shared = "argocd/config/shared/*"
        apps = await generated(git_only({"path": "*/*/*/clm", "exclude": True}, "argocd/config/*/*", shared))
        assert [name_of(app) for app in apps] == ["hypershift", "maestro-server", "argocd"]

    async def test_a_bad_pattern_is_skipped(self) -> None:
        apps = await generated(git_only("[", "argocd/config/shared/*"))
        assert [name_of(app) for app in apps] == ["argocd"]

    async def test_hidden_ones_are_not_seen(self) -> None:
        apps = await generated(git_only("argocd/config/shared/.*"))
        assert apps == []

    @pytest.mark.parametrize(
        ("pattern", "path", "hit"),
        [
            ("a/*", "a/b", True),
            ("a/*", "a/b/c", False),
            ("a/**", "a/b", True),
            ("a/**", "a/b/c", False),
            ("a/{b,c}", "a/b", False),
            ("a/*/", "a/b", False),
            ("/a/*", "a/b", False),
            ("a/[b-d]?", "a/cx", True),
            ("a/[^b]", "a/b", False),
            ("a\\*", "a*", True),
        ],
    )
    def test_patterns_are_gos(self, pattern: str, path: str, hit: bool) -> None:
        assert path_match(pattern, path) is hit

    @pytest.mark.parametrize("pattern", ["[", "a[", "[]a]", "[-]", "a\\"])
    def test_patterns_go_cannot_read(self, pattern: str) -> None:
        with pytest.raises(BadPattern):
            path_match(pattern, "a")


class TestNames:
    async def test_are_normalised_one_dash_per_rune(self) -> None:
        async def tree(url: str, revision: str) -> Sequence[str]:
            return ["Käse_Ö", "x" * 300]

        spec = git_only("*")
        spec["spec"]["template"]["metadata"]["name"] = "{{ .path.basenameNormalized }}"
        assert [name_of(app) for app in await generated(spec, tree=tree)] == ["k-se", "x" * 253]


class TestClusters:
    def clusters(self, body: Obj, **spec: Any) -> Obj:
        template = {
            "metadata": {"name": "{{ .nameNormalized }}"},
            "spec": {"project": "default", "destination": {"server": "{{ .server }}"}, "source": {"repoURL": "r"}},
        }
        return application_set(generators=[{"clusters": body}], **({"template": template} | spec))

    async def test_an_empty_generator_adds_the_local_cluster_without_metadata(self) -> None:
        apps = await generated(self.clusters({}), [])
        assert [(name_of(app), app["spec"]["destination"]["server"]) for app in apps] == [("in-cluster", LOCAL)]

    async def test_values_do_not_see_each_other(self) -> None:
        body = {"values": {"a": "{{ .name }}", "b": "{{ .values.a }}"}}
        template = {
            "metadata": {"name": "{{ .values.a }}", "annotations": {"b": "{{ .values.b }}"}},
            "spec": {"project": "default", "destination": {}, "source": {"repoURL": "r"}},
        }
        app = (await generated(self.clusters(body, template=template), []))[0]
        assert app["metadata"]["annotations"] == {"b": "<no value>"}

    async def test_a_selector_of_a_generator_cannot_see_labels(self) -> None:
        spec = self.clusters({})
        spec["spec"]["generators"][0]["selector"] = {"matchLabels": {"metadata.labels.environment": "local"}}
        assert await generated(spec) == []
        spec["spec"]["generators"][0]["selector"] = {"matchLabels": {"name": "in-cluster"}}
        assert len(await generated(spec)) == 1

    def test_one_bad_config_fails_all(self) -> None:
        data = {"name": base64.b64encode(b"x").decode(), "config": base64.b64encode(b"{").decode()}
        with pytest.raises(GeneratorError, match="config of cluster secret bad"):
            Cluster.from_secret({"metadata": {"name": "bad"}, "data": data})


class TestTemplates:
    async def test_expand_keys_and_always_yield_strings(self) -> None:
        spec = git_only("argocd/config/shared/*")
        spec["spec"]["template"]["metadata"]["annotations"] = {
            "k-{{ .path.basename }}": "{{ 42 }}",
            "empty": '{{ "" }}',
        }
        app = (await generated(spec))[0]
        assert app["metadata"]["annotations"] == {"k-argocd": "42", "empty": ""}

    async def test_the_namespace_is_the_sets_own(self) -> None:
        spec = git_only("argocd/config/shared/*")
        spec["spec"]["template"]["metadata"]["namespace"] = "elsewhere"
        assert (await generated(spec))[0]["metadata"]["namespace"] == "argocd"

    async def test_values_objects_lose_nulls_and_the_precision_of_large_numbers(self) -> None:
        spec = git_only("argocd/config/shared/*")
        values = {
            "gone": None,
            "list": [None, 1],
            "big": 9007199254740993,
            "deep": {"gone": None, "k": "{{ .path.basename }}"},
        }
        spec["spec"]["template"]["spec"]["source"]["helm"] = {"valuesObject": values}
        app = (await generated(spec))[0]
        assert app["spec"]["source"]["helm"]["valuesObject"] == {
            "list": [None, 1],
            "big": 9007199254740992,
            "deep": {"k": "argocd"},
        }

    async def test_a_finalizer_of_their_own_is_kept(self) -> None:
        spec = git_only("argocd/config/shared/*")
        spec["spec"]["template"]["metadata"]["finalizers"] = ["mine"]
        assert (await generated(spec))[0]["metadata"]["finalizers"] == ["mine"]

    async def test_preserved_resources_have_no_finalizer(self) -> None:
        spec = git_only("argocd/config/shared/*", syncPolicy={"preserveResourcesOnDeletion": True})
        assert "finalizers" not in (await generated(spec))[0]["metadata"]

    async def test_a_patch_replaces_lists_and_cannot_change_the_project(self) -> None:
        patch = "spec:\n  project: other\n  info: [{name: a, value: '{{ .path.basename }}'}]\n"
        spec = git_only("argocd/config/shared/*", templatePatch=patch)
        app = (await generated(spec))[0]
        assert app["spec"]["project"] == "default"
        assert app["spec"]["info"] == [{"name": "a", "value": "argocd"}]


@pytest.mark.parametrize(
    ("generator", "reason"),
    [
        ({"list": {"elements": []}}, "generator 'list' is not supported"),
        ({"scmProvider": {}}, "not supported"),
        ({"git": {"repoURL": "r", "revision": "main", "files": [{"path": "x"}]}}, "'files' is not supported"),
        ({"matrix": {"generators": [{"clusters": {}}]}}, "less than two"),
        ({"matrix": {"generators": [{"clusters": {}}] * 3}}, "more than two"),
        ({}, "exactly one"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(generator: Obj, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        await generated(application_set(generators=[generator]))


async def test_one_cluster_and_fifty_charts_are_evaluated_at_once() -> None:
    async def tree(url: str, revision: str) -> Sequence[str]:
        return [f"argocd/config/shared/chart-{number:02}" for number in range(50)]

    assert len(await generated(application_set(), tree=tree)) == 50

"""Charts and plain manifests out of Git, with the real Helm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regional.gitops.helm import Helm
from regional.gitops.manifests import ManifestError, parse, track, tracked_by
from regional.gitops.repo import Repositories
from regional.gitops.sources import ComparisonError, Sources
from tests.gitops.harness import GitRepository, Obj, application, chart, config_map

TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  namespace: {{ .Release.Namespace }}
  a: {{ .Values.a | quote }}
  b: {{ .Values.b | quote }}
  c: {{ .Values.c | quote }}
  kube: {{ .Capabilities.KubeVersion.Version }}
"""


@pytest.fixture
async def sources(tmp_path: Path, helm: str) -> Any:
    runner = Helm(tmp_path / "cache" / "helm", binary=helm)
    yield Sources(Repositories(tmp_path / "cache"), runner)
    await runner.close()


def two_sources(url: str, **helm: Any) -> Obj:
    charts = {"repoURL": url, "targetRevision": "main", "path": "charts/web", "helm": helm}
    app = application(
        "web", url, "charts/web", sources=[charts, {"repoURL": url, "targetRevision": "main", "ref": "values"}]
    )
    del app["spec"]["source"]
    return app


async def test_values_layer_chart_then_files_then_object(repository: GitRepository, sources: Sources) -> None:
    repository.commit(
        chart("charts/web", {"cm.yaml": TEMPLATE}, {"a": "chart", "b": "chart", "c": "chart"})
        | {"deploy/values.yaml": {"b": "file", "c": "file"}}
    )
    app = two_sources(
        repository.url, valueFiles=["values.yaml", "$values/deploy/values.yaml"], valuesObject={"c": "object"}
    )
    sources.kube_version = "1.35.4"
    rendering = await sources.render(app)
    data = rendering.objects[0]["data"]
    assert data == {"namespace": "web", "a": "chart", "b": "file", "c": "object", "kube": "v1.35.4"}
    assert rendering.types == ["Helm", ""]
    assert rendering.revisions.fields() == {"revisions": [repository.git("rev-parse", "HEAD")] * 2}


async def test_a_pinned_chart_takes_its_values_from_the_live_revision(
    repository: GitRepository, sources: Sources
) -> None:
    pinned = repository.commit(
        chart("charts/web", {"cm.yaml": TEMPLATE}, {"a": "old chart"}) | {"deploy/values.yaml": {"b": "old"}}
    )
    repository.commit(
        chart("charts/web", {"cm.yaml": TEMPLATE}, {"a": "new chart"}) | {"deploy/values.yaml": {"b": "new"}}
    )
    app = two_sources(repository.url, valueFiles=["values.yaml", "$values/deploy/values.yaml"])
    app["spec"]["sources"][0]["targetRevision"] = pinned
    data = (await sources.render(app)).objects[0]["data"]
    assert (data["a"], data["b"]) == ("old chart", "new")


async def test_no_name_in_an_application_is_an_option_of_helms(
    repository: GitRepository, sources: Sources, tmp_path: Path
) -> None:
    repository.commit(chart("charts/web", {"cm.yaml": TEMPLATE}))
    app = application("web", repository.url, "charts/web")
    app["spec"]["source"]["helm"] = {"releaseName": f"--output-dir={tmp_path / 'out'}"}
    with pytest.raises(ComparisonError, match="release name"):
        await sources.render(app)
    assert not (tmp_path / "out").exists()


async def test_crds_of_a_chart_are_included(repository: GitRepository, sources: Sources) -> None:
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}}
    repository.commit(chart("charts/web", {}) | {"charts/web/crds/x.yaml": crd})
    kinds = [o["kind"] for o in (await sources.render(application("web", repository.url, "charts/web"))).objects]
    assert kinds == ["CustomResourceDefinition"]


async def test_a_rendering_is_made_once(repository: GitRepository, tmp_path: Path, helm: str) -> None:
    count = tmp_path / "count"
    counting = tmp_path / "counting-helm"
    counting.write_text(f'#!/bin/sh\necho x >> "{count}"\nexec "{helm}" "$@"\n')
    counting.chmod(0o755)
    runner = Helm(tmp_path / "helm", binary=str(counting))
    sources = Sources(Repositories(tmp_path / "cache"), runner)
    repository.commit(chart("charts/web", {"cm.yaml": TEMPLATE}))
    app = application("web", repository.url, "charts/web")
    await sources.render(app)
    repository.commit({"unrelated": "x"})
    await sources.render(app)
    assert count.read_text() == "x\n"
    await runner.close()


async def test_plain_manifests_are_read_from_one_directory(repository: GitRepository, sources: Sources) -> None:
    repository.commit(
        {
            "plain/a.yaml": [config_map("one"), config_map("two")],
            "plain/b.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": [config_map("listed")]}),
            "plain/README.md": "no manifest",
            "plain/deeper/c.yaml": config_map("deeper"),
        }
    )
    app = application("plain", repository.url, "plain")
    found = await sources.render(app)
    assert [o["metadata"]["name"] for o in found.objects] == ["one", "two", "listed"]
    assert found.types == ["Directory"]
    app["spec"]["source"]["directory"] = {"recurse": True, "exclude": "*.json"}
    assert [o["metadata"]["name"] for o in (await sources.render(app)).objects] == ["one", "two", "deeper"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (chart("charts/web", {"cm.yaml": '{{ fail "no region" }}'}), "no region"),
        (chart("charts/web", {"cm.yaml": "a: [\n"}), "helm template"),
        (chart("charts/web", {"cm.yaml": "just: text\n"}), "not a Kubernetes object"),
        ({"elsewhere/x": "1"}, "app path does not exist"),
        ({"charts/web/kustomization.yaml": "resources: []"}, "Kustomize is not supported"),
    ],
)
async def test_what_cannot_be_rendered_says_why(
    repository: GitRepository, sources: Sources, files: Any, reason: str
) -> None:
    repository.commit(files)
    with pytest.raises(ComparisonError, match=reason):
        await sources.render(application("web", repository.url, "charts/web"))


@pytest.mark.parametrize(
    ("helm_options", "reason"),
    [
        ({"valueFiles": ["$values/none.yaml"]}, "none.yaml does not exist"),
        ({"valueFiles": ["$other/none.yaml"]}, "no source has that 'ref'"),
        ({"valueFiles": ["../../../etc/passwd"]}, "outside of the repository"),
        ({"valueFiles": ["https://example.com/values.yaml"]}, "not supported"),
    ],
)
async def test_value_files_that_cannot_be_had(
    repository: GitRepository, sources: Sources, helm_options: Any, reason: str
) -> None:
    repository.commit(chart("charts/web", {"cm.yaml": TEMPLATE}))
    with pytest.raises(ComparisonError, match=reason):
        await sources.render(two_sources(repository.url, **helm_options))


async def test_a_missing_value_file_may_be_ignored(repository: GitRepository, sources: Sources) -> None:
    repository.commit(chart("charts/web", {"cm.yaml": TEMPLATE}))
    app = two_sources(repository.url, valueFiles=["$values/none.yaml"], ignoreMissingValueFiles=True)
    assert len((await sources.render(app)).objects) == 1


def test_a_tracking_mark_counts_only_on_the_object_it_names() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "web"}}
    track(deployment, "web", "web")
    assert deployment["metadata"]["annotations"] == {"argocd.argoproj.io/tracking-id": "web:apps/Deployment:web/web"}  # type: ignore[index]
    assert tracked_by(deployment) == "web"
    copy = deployment | {"kind": "ReplicaSet"}
    assert tracked_by(copy) is None


def test_a_cluster_scoped_object_is_tracked_in_the_applications_namespace() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "argocd"}}
    track(role, "argocd", "argocd")
    mark = role["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"]  # type: ignore[index]
    assert mark == "argocd:rbac.authorization.k8s.io/ClusterRole:argocd/argocd"
    assert tracked_by(role) == "argocd"


def test_a_document_without_a_name_is_refused() -> None:
    with pytest.raises(ManifestError, match="ConfigMap has no name"):
        parse("apiVersion: v1\nkind: ConfigMap\n", "x.yaml")

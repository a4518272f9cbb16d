"""An ApplicationSet that no API server would take gets one clear line each, and the other clusters are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from regional.gitops.fleet import Choice
from regional.gitops.helm import Helm
from regional.gitops.preview import DEFINITION, Preview
from regional.gitops.repo import Repositories
from tests.gitops.harness import CHART, GitRepository, Obj, application_set
from tests.gitops.test_previews_ask_no_cluster import CHARTS, region, rendered

Change = Callable[[Obj, Obj, Obj], Any]
"""Of the set's spec, its git generator, its first source."""


@pytest.fixture
async def preview(repository: GitRepository, helm: str, tmp_path: Path) -> AsyncIterator[Preview]:
    renderer = Helm(tmp_path / "helm", binary=helm)
    yield Preview(Repositories(tmp_path / "cache"), renderer, repository.url)
    await renderer.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda spec, git, source: git.update(revision=1234567e10), "git.revision is not text but 1.234567e+16"),
        (lambda spec, git, source: git.update(repoURL=7), "git.repoURL is not text but 7"),
        (lambda spec, git, source: git.update(directories="x"), "git.directories: Invalid value"),
        (lambda spec, git, source: git.update(directories=["x"]), "git.directories[0]: Invalid value"),
        (lambda spec, git, source: source.update(targetRevision=5), "sources[0].targetRevision is not text but 5"),
        (lambda spec, git, source: source.update(path=["a"]), "sources[0].path is not text but ['a']"),
        (lambda spec, git, source: source["helm"].update(valueFiles=[5]), "helm.valueFiles[0]: Invalid value"),
        (lambda spec, git, source: spec.update(generators=["x"]), "spec.generators[0]: Invalid value"),
        (lambda spec, git, source: spec.update(templatePatch=5), "spec.templatePatch: Invalid value"),
        (lambda spec, git, source: spec["template"]["metadata"].update(labels="x"), "metadata.labels: Invalid value"),
        (lambda spec, git, source: spec["template"]["spec"].update(destination="x"), "destination: Invalid value"),
        (
            lambda spec, git, source: spec["template"]["metadata"].update(name='{{ regexMatch "[" .path.basename }}'),
            "error calling regexMatch",
        ),
    ],
)
async def test_a_set_of_the_wrong_shape_is_refused_and_the_others_are_shown(
    repository: GitRepository, preview: Preview, change: Change, reason: str
) -> None:
    files = CHARTS | {DEFINITION: (CHART / "crds" / "applicationset.yaml").read_text()} | rendered(region("one", "mc"))
    bad = application_set()
    spec = bad["spec"]
    change(spec, spec["generators"][0]["matrix"]["generators"][1]["git"], spec["template"]["spec"]["sources"][0])
    files["deploy/test/one/argocd/regional-cluster-manifests/applicationset.yaml"] = bad
    rc, mc = await preview.of(repository.commit(files), Choice())
    assert reason in "\n".join(map(str, rc.problems))
    assert rc.refused and not rc.applications
    assert not mc.refused and [app.name for app in mc.applications] == ["agent", "argocd"]


async def test_a_spec_that_is_no_mapping_is_one_line(repository: GitRepository, preview: Preview) -> None:
    files = CHARTS | {DEFINITION: (CHART / "crds" / "applicationset.yaml").read_text()}
    commit = repository.commit(files | rendered(region("one"), applicationset=application_set() | {"spec": "x"}))
    (rc,) = await preview.of(commit, Choice())
    (line,) = map(str, rc.problems)
    assert line.startswith("refused: ApplicationSet root-applicationset: spec: Invalid value")

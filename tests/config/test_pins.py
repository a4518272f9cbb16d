"""A pin is a commit of this repository that has the charts, or the values, it is pinned for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regional.config.commands import config
from regional.config.problems import ConfigProblems
from tests.config.repositories import TEXT, commit, git, make, pinned

NOWHERE = "826fa76d08fc2ce87c863196e52d5a4fa9259a82"


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(config, ["--checkout", str(folder), *words], standalone_mode=False)


def problems(result: Result) -> list[str]:
    assert isinstance(result.exception, ConfigProblems), result.exception
    return [problem.message for problem in result.exception.problems]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = make(tmp_path / "checkout")
    assert run(folder, "render").exception is None
    commit(folder)
    return folder


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")


def declare(folder: Path, text: str) -> None:
    (folder / "config.yaml").write_text(text)


def test_an_existing_commit_with_charts_is_accepted(checkout: Path) -> None:
    declare(checkout, pinned(TEXT, "config_revision", regional=head(checkout), management=head(checkout)))
    result = run(checkout, "render")
    assert result.exception is None
    text = (checkout / "deploy/staging/eu/argocd/regional-cluster-manifests/applicationset.yaml").read_text()
    assert text.count(f"'{head(checkout)}'") == 2


def test_a_commit_that_does_not_exist_is_refused_and_nothing_is_written(checkout: Path) -> None:
    declare(checkout, pinned(TEXT, "config_revision", regional=NOWHERE, management=NOWHERE))
    result = run(checkout, "render")
    assert problems(result) == [f"commit {NOWHERE} is not in this repository"] * 2
    assert "config.yaml:13:25" in str(result.exception)
    assert git(checkout, "status", "--porcelain") == "M config.yaml"


def test_a_commit_without_the_charts_of_that_type_is_refused(checkout: Path) -> None:
    git(checkout, "rm", "-rq", "argocd/config/management-cluster")
    bare = commit(checkout)
    git(checkout, "checkout", "-q", "HEAD~1", "--", "argocd")
    declare(checkout, pinned(TEXT, "config_revision", regional=bare, management=bare))
    assert problems(run(checkout, "validate")) == [f"commit {bare} has no charts in argocd/config/management-cluster"]


@pytest.mark.parametrize("what", ["tree", "tag"])
def test_an_object_that_is_no_commit_is_refused(checkout: Path, what: str) -> None:
    git(checkout, "tag", "-a", "-m", "x", "v1")
    found = git(checkout, "rev-parse", "v1" if what == "tag" else "HEAD^{tree}")
    declare(checkout, pinned(TEXT, "config_revision", regional=found))
    assert problems(run(checkout, "validate")) == [f"{found} is a {what}, not a commit"]


def test_a_shallow_clone_gets_a_hint_and_goes_on(checkout: Path, tmp_path: Path) -> None:
    old = head(checkout)
    declare(checkout, pinned(TEXT, "config_revision", regional=old, management=old))
    commit(checkout)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", checkout.as_uri(), str(shallow))
    result = run(shallow, "render")
    assert result.exception is None
    said = f"commit {old} was not looked up: the clone is shallow (git fetch --unshallow)"
    assert result.stderr.count(said) == 1, "however many regions share the pin"
    git(shallow, "fetch", "-q", "--unshallow")
    assert "shallow" not in run(shallow, "render").stderr


def test_without_a_repository_a_pin_is_an_error_unless_the_look_up_is_left_out(tmp_path: Path) -> None:
    folder = make(tmp_path / "checkout", pinned(TEXT, "config_revision", regional=NOWHERE))
    (folder / ".git").rename(tmp_path / "elsewhere")
    result = run(folder, "render")
    assert "is not in a Git repository" in str(result.exception)
    assert not (folder / "deploy").exists()
    assert run(folder, "render", "--no-git").exception is None


class TestWhereTheHistoryMayBeMissing:
    """As `make lint` asks: a wrong pin is a fault in a clone, and none in a copy that cannot know."""

    SAID = "pins were not looked up: the history that they name is not here"

    def test_a_clone_looks_pins_up(self, checkout: Path) -> None:
        declare(checkout, pinned(TEXT, "config_revision", regional=head(checkout), management=NOWHERE))
        found = problems(run(checkout, "render", "--check", "--git-if-there"))
        assert found == [f"commit {NOWHERE} is not in this repository"]
        declare(checkout, pinned(TEXT, "config_revision", regional=head(checkout)))
        result = run(checkout, "validate", "--git-if-there")
        assert (result.exception, self.SAID in result.stderr) == (None, False)

    def test_a_copy_without_git_says_that_it_does_not(self, checkout: Path, tmp_path: Path) -> None:
        declare(checkout, pinned(TEXT, "config_revision", regional=head(checkout)))
        (checkout / ".git").rename(tmp_path / "elsewhere")
        result = run(checkout, "validate", "--git-if-there")
        assert (result.exception, result.stderr.count(self.SAID)) == (None, 1)

    def test_a_copy_in_a_repository_begun_anew_says_so_too(self, checkout: Path, tmp_path: Path) -> None:
        declare(checkout, pinned(TEXT, "config_revision", regional=head(checkout)))
        (checkout / ".git").rename(tmp_path / "elsewhere")
        git(checkout, "init", "-q", "--initial-branch=main")
        commit(checkout)
        result = run(checkout, "validate", "--git-if-there")
        assert (result.exception, result.stderr.count(self.SAID)) == (None, 1)

    def test_a_shallow_clone_goes_on(self, checkout: Path, tmp_path: Path) -> None:
        old = head(checkout)
        declare(checkout, pinned(TEXT, "config_revision", regional=old))
        assert run(checkout, "render").exception is None
        commit(checkout)
        shallow = tmp_path / "shallow"
        git(tmp_path, "clone", "-q", "--depth=1", checkout.as_uri(), str(shallow))
        result = run(shallow, "render", "--check", "--git-if-there")
        assert (result.exception, "not looked up" in result.stderr) == (None, True)


def test_a_checkout_below_the_top_of_its_repository_is_understood(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--initial-branch=main")
    folder = make(tmp_path / "platform")
    (folder / ".git").rename(tmp_path / "elsewhere")
    run(folder, "render", "--no-git")
    first = commit(tmp_path)
    both = pinned(TEXT, "config_revision", regional=first, management=first)
    declare(folder, pinned(both, "values_revision", regional=first, management=first))
    assert run(folder, "validate").exception is None


def test_pinned_charts_with_live_values_are_warned_of_and_may_be_required(checkout: Path) -> None:
    commits = {"regional": head(checkout), "management": head(checkout)}
    charts = pinned(TEXT, "config_revision", **commits)
    declare(checkout, charts)
    assert "sector staging pins charts but not values in staging/eu" in run(checkout, "validate").stderr
    declare(checkout, charts.replace("sector: staging", "sector: production"))
    assert problems(run(checkout, "validate")) == [
        "sector production requires values_revision.regional-cluster beside config_revision.regional-cluster",
        "sector production requires values_revision.management-cluster beside config_revision.management-cluster",
    ]


def test_pinned_values_reach_the_third_place_and_silence_the_warning(checkout: Path) -> None:
    commits = {"regional": head(checkout), "management": head(checkout)}
    declare(checkout, pinned(pinned(TEXT, "config_revision", **commits), "values_revision", **commits))
    result = run(checkout, "validate")
    assert (result.exception, result.stderr) == (None, "")
    run(checkout, "render")
    text = (checkout / "deploy/staging/eu/argocd/regional-cluster-manifests/applicationset.yaml").read_text()
    assert text.count(f"targetRevision: '{head(checkout)}'") == 2
    assert f"# Values revision: {head(checkout)[:8]}" in text


def test_values_can_only_be_pinned_to_a_commit_that_has_them(tmp_path: Path) -> None:
    folder = make(tmp_path / "checkout")
    unrendered = commit(folder)
    declare(folder, pinned(TEXT, "values_revision", regional=unrendered))
    path = "deploy/staging/eu/argocd/regional-cluster-values.yaml"
    assert problems(run(folder, "validate")) == [
        f"commit {unrendered} has no {path}: pin one that was rendered with it"
    ]


def test_values_of_single_clusters_are_neither_missing_nor_lost_behind_a_pin(checkout: Path) -> None:
    plain = head(checkout)
    own = TEXT.replace('"222222222222"', '"222222222222", values: {management-cluster: {hypershift: {replicas: 2}}}')
    declare(checkout, pinned(own, "values_revision", management=plain))
    assert (
        "has no deploy/staging/eu/argocd/management-cluster-values/mc01.yaml" in problems(run(checkout, "validate"))[0]
    )
    declare(checkout, own)
    run(checkout, "render")
    layered = commit(checkout)
    declare(checkout, pinned(own, "values_revision", management=layered))
    assert run(checkout, "validate").exception is None
    declare(checkout, pinned(TEXT, "values_revision", management=layered))
    assert "which would be lost" in problems(run(checkout, "validate"))[0]


def test_a_value_is_read_by_the_charts_of_its_pin_or_of_the_working_tree(checkout: Path) -> None:
    old = head(checkout)
    (checkout / "argocd/config/regional-cluster/clm/values.yaml").write_text("newer: {}\n")
    text = pinned(TEXT, "config_revision", regional=old) + "    values: {regional-cluster: {%s: {a: 1}}}\n"
    for known in ("clm", "newer"):
        declare(checkout, text % known)
        assert run(checkout, "validate").exception is None
    declare(checkout, text % "neither")
    assert problems(run(checkout, "validate"))[0].startswith("no chart of a regional-cluster reads the value neither")

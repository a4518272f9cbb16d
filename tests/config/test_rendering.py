"""The rendered tree, byte for byte: `golden/deploy` is what `golden/config.yaml` must come to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.config import charts, deploy
from regional.config.applicationset import application_set
from regional.config.load import load, load_text
from regional.config.problems import ConfigProblems
from regional.config.render import render
from regional.config.yamltext import dump
from regional.core import paths

GOLDEN = Path(__file__).parent / "golden"
CHARTS = GOLDEN / "argocd" / "config"
STEADY = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
PIN = "826fa76d08fc2ce87c863196e52d5a4fa9259a82"


def test_the_golden_configuration_renders_to_the_golden_tree() -> None:
    rendered = render(load(GOLDEN / "config.yaml"))
    assert deploy.compare(rendered, GOLDEN / "deploy") == []


def test_rendering_twice_gives_the_same_bytes() -> None:
    first, second = (render(load(GOLDEN / "config.yaml")) for _ in range(2))
    assert first == second


def test_the_committed_deploy_tree_is_what_config_yaml_says() -> None:
    checkout = paths.checkout()
    rendered = render(load(checkout / "config.yaml"))
    assert deploy.compare(rendered, checkout / "deploy") == []


@pytest.mark.parametrize("pin", [PIN, "a" * 40, "1234567890123456789012345678901234567e89"])
def test_a_pin_changes_exactly_two_places_and_is_a_quoted_string(pin: str) -> None:
    live, pinned = (dump(application_set(revision)).splitlines() for revision in (None, pin))
    changed = [(a.strip(), b.strip()) for a, b in zip(live, pinned, strict=True) if a != b]
    assert [new for _, new in changed] == [f"revision: '{pin}'", f"targetRevision: '{pin}'"]
    values_source = application_set(pin)["spec"]["template"]["spec"]["sources"][1]
    assert values_source["targetRevision"] == "{{ .metadata.annotations.git_revision }}"


@pytest.mark.parametrize("text", ["1234567", "1234e56", "12345678901234567890123456789012345678e1", "y", "N", "0o14"])
def test_words_that_go_reads_as_something_else_are_quoted(text: str) -> None:
    assert dump({"pin": text}) == f"pin: '{text}'\n"
    assert dump({text: 1}).startswith(f"'{text}'")


WORDS = st.text(alphabet="yn01e.:-+_#'\" \nünull{}[]&*!|>%@~", max_size=12)


@STEADY
@given(st.dictionaries(WORDS, WORDS, max_size=4))
def test_what_is_written_is_what_is_read(value: dict[str, str]) -> None:
    assert yaml.safe_load(dump(value)) == value


def test_the_fourth_level_reaches_helm_only_where_it_is_used() -> None:
    rendered = render(load(GOLDEN / "config.yaml"))
    plain = rendered["integration/us-east-1/argocd/management-cluster-manifests/applicationset.yaml"]
    layered = rendered["production/us-east-1-2/argocd/management-cluster-manifests/applicationset.yaml"]
    assert b"cluster_name }}.yaml" not in plain
    assert b"cluster_name }}.yaml" in layered


def check(text: str, charts_dir: Path = CHARTS) -> None:
    charts.check_values(load_text(text.encode()), charts.keys_in(charts_dir), None)


def test_a_value_that_no_chart_reads_is_refused_with_its_line() -> None:
    """Helm would drop it in silence. Without Git a pinned cluster, whose charts are another commit's, is exempt."""
    text = (GOLDEN / "config.yaml").read_text()
    misspelt = text.replace("argocd: {logLevel: debug}", "argcod: {logLevel: debug}")
    line = misspelt[: misspelt.index("argcod")].count("\n") + 1
    with pytest.raises(ConfigProblems, match=rf"config.yaml:{line}:9: .*did you mean argocd"):
        check(misspelt)
    check(text.replace("hypershift: {replicas: 2}", "hypershfit: {replicas: 2}"))


def test_charts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match="no directory management-cluster"):
        check((GOLDEN / "config.yaml").read_text(), tmp_path)


def test_charts_whose_applications_could_not_be_made_are_named(tmp_path: Path) -> None:
    """An Application is called like its directory, whichever of a cluster's two folders that is in."""
    shutil.copytree(GOLDEN / "argocd" / "config", tmp_path, dirs_exist_ok=True)
    (tmp_path / "shared" / "clm").mkdir()
    (tmp_path / "management-cluster" / "Maestro_Agent").mkdir()
    (tmp_path / "management-cluster" / ("a" * 53)).mkdir()
    (tmp_path / "management-cluster" / ("b" * 54)).mkdir()
    (tmp_path / "shared" / ".hidden").mkdir()
    (tmp_path / "shared" / "README.md").touch()
    with pytest.raises(ConfigProblems) as refused:
        check((GOLDEN / "config.yaml").read_text(), tmp_path)
    said = [problem.message for problem in refused.value.problems]
    assert said == [
        "is no name for an Application: 1 to 63 lower-case letters, digits and inner hyphens",
        "is too long a name: Helm takes 53 characters",
        "is also in shared: a regional-cluster would get neither of two Applications with one name",
    ]
    assert [Path(problem.file).name for problem in refused.value.problems] == ["Maestro_Agent", "b" * 54, "clm"]

"""Any rendered value can say which level and line set it, and what it overrode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regional.config.explain import explain
from regional.config.load import load, load_text
from regional.config.render import render
from regional.core.problems import UserError

GOLDEN = Path(__file__).parent / "golden" / "config.yaml"
CONFIGURATION = load(GOLDEN)
PIN = "1234567890123456789012345678901234567e89"
LINES = GOLDEN.read_text().splitlines()


def test_the_innermost_level_wins_and_names_what_it_overrode() -> None:
    path = "values.management-cluster.hypershift.replicas"
    (found,) = explain(CONFIGURATION, path, "production/us-east-1-2", "mc01")
    assert (found.path, found.value) == (path, 5)
    assert found.set_by.level.startswith("cluster mc01")
    assert "replicas: 5" in LINES[found.set_by.line - 1]
    assert [origin.written for origin in found.overrode] == [2, 1]
    assert "replicas: 2" in LINES[found.overrode[0].line - 1]


def test_a_template_shows_what_was_written_and_what_it_became() -> None:
    (found,) = explain(CONFIGURATION, "values.management-cluster.hypershift.bucket", "us-east-1")
    assert found.value == "hypershift-integration-us-east-1"
    assert found.set_by.written == "hypershift-{{ environment }}-{{ region_alias }}"
    assert found.set_by.level == "defaults, values.management-cluster"


def test_a_mapping_is_explained_leaf_by_leaf() -> None:
    found = explain(CONFIGURATION, "terraform_vars.tags", "us-east-1-2", "mc01")
    assert {item.path: (item.value, item.set_by.level) for item in found} == {
        "terraform_vars.tags.owner": ("platform", "defaults"),
        "terraform_vars.tags.phase": ("prod", "sector prod-canary"),
        "terraform_vars.tags.canary": (True, "cluster mc01"),
    }


def test_all_values_of_a_region_or_of_a_cluster_are_explained_at_once() -> None:
    region = [item.path for item in explain(CONFIGURATION, "values", "us-east-1-2")]
    assert {path.split(".")[1] for path in region} == {"management-cluster", "regional-cluster"}
    cluster = explain(CONFIGURATION, "values", "us-east-1-2", "mc01")
    assert {item.path.split(".")[1] for item in cluster} == {"management-cluster"}
    assert ("values.management-cluster.hypershift.replicas", 5) in [(item.path, item.value) for item in cluster]


def test_a_global_value_that_a_type_overrides_is_named() -> None:
    (found,) = explain(CONFIGURATION, "values.regional-cluster.argocd.logLevel", "us-east-1-2")
    assert found.value == "debug"
    assert [origin.level for origin in found.overrode] == ["defaults, values.global"]


def test_a_scalar_wipes_what_was_below_it() -> None:
    text = (
        GOLDEN.read_text().replace("tags: {phase: prod}", "tags: none").replace("tags: {canary: true}", "tags: {a: 1}")
    )
    found = explain(load_text(text.encode()), "terraform_vars.tags", "us-east-1-2", "mc01")
    assert [(item.path, item.value) for item in found] == [("terraform_vars.tags.a", 1)]


@pytest.mark.parametrize(
    ("path", "cluster", "value", "level", "line"),
    [
        ("account_id", None, "111111111111", "region production/us-east-1-2", 'account_id: "111111111111"'),
        ("account_id", "mc02", "333333333333", "cluster mc02", 'account_id: "333333333333"'),
        ("environment", None, "production", "sector prod-canary", 'environment: "production"'),
        ("sector", None, "prod-canary", "region production/us-east-1-2", 'sector: "prod-canary"'),
        ("config_revision", None, PIN, "region production/us-east-1-2", PIN),
        ("config_revision.management-cluster", None, PIN, "region production/us-east-1-2", PIN),
    ],
)
def test_what_is_not_inherited_is_explained_too(
    path: str, cluster: str | None, value: object, level: str, line: str
) -> None:
    (found,) = explain(CONFIGURATION, path, "us-east-1-2", cluster)
    assert (found.value, found.set_by.level, found.overrode) == (value, level, [])
    assert line in LINES[found.set_by.line - 1]


def test_an_environment_that_is_its_sectors_name_says_so() -> None:
    (found,) = explain(CONFIGURATION, "environment", "us-east-1")
    assert (found.path, found.value, found.set_by.level) == ("environment", "integration", "sector integration")
    assert 'name: "integration"' in LINES[found.set_by.line - 1]


@pytest.mark.parametrize(
    ("path", "region", "cluster", "says"),
    [
        ("values.management-cluster.hypershift.colour", "us-east-1", None, "nothing sets"),
        ("values.other", "us-east-1", None, "cannot explain"),
        ("config_revision", "us-east-1", None, "nothing sets config_revision"),
        ("delete", "us-east-1-2", None, "nothing sets delete"),
        ("terraform_vars", "us-esat-1", None, "no region us-esat-1"),
        ("terraform_vars", "us-east-1", "mc07", "no cluster mc07"),
    ],
)
def test_what_cannot_be_explained_is_said(path: str, region: str, cluster: str | None, says: str) -> None:
    with pytest.raises(UserError, match=says):
        explain(CONFIGURATION, path, region, cluster)


def test_a_name_in_several_environments_is_asked_about_and_not_denied() -> None:
    found = load(Path(__file__).parent / "accepted" / "same-name-in-two-environments" / "config.yaml")
    name = found.regions[0].name
    with pytest.raises(UserError, match=f"region {name} is in 2 environments") as caught:
        explain(found, "aws_region", name)
    assert caught.value.hint == f"say which: {', '.join(region.key for region in found.regions)}"


def test_a_clusters_terraform_inputs_are_explained_as_they_are_rendered() -> None:
    rendered = render(CONFIGURATION)
    for region in CONFIGURATION.regions:
        for cluster in region.management_clusters:
            path = f"{region.key}/terraform/management/{cluster.cluster_id}.json"
            inputs = json.loads(rendered[path])
            for name in ("account_id", "alias", "cluster_id", "regional_aws_account_id"):
                (found,) = explain(CONFIGURATION, f"terraform_vars.{name}", region.key, cluster.cluster_id)
                assert (found.value, bool(found.set_by.line)) == (inputs[name], True)


def test_a_key_with_dots_in_it_is_found_by_the_path_that_is_printed() -> None:
    found = load_text(
        b"""
sectors:
  - name: s
    values: {global: {pods: {annotations: {eks.example.com/role: reader, example.com/note: x}}}}
region_deployments:
  - {name: one, aws_region: us-east-1, sector: s, account_id: "111111111111"}
"""
    )
    first, _ = explain(found, "values.regional-cluster.pods", "one")
    assert first.path == "values.regional-cluster.pods.annotations.eks.example.com/role"
    assert explain(found, first.path, "one") == [first]

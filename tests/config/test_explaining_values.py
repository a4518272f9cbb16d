"""Any rendered value can say which level and line set it, and what it overrode."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional.config.explain import explain
from regional.config.load import load, load_text
from regional.core.problems import UserError

GOLDEN = Path(__file__).parent / "golden" / "config.yaml"
CONFIGURATION = load(GOLDEN)
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
    ("path", "region", "cluster", "says"),
    [
        ("values.management-cluster.hypershift.colour", "us-east-1", None, "nothing sets"),
        ("account_id", "us-east-1", None, "cannot explain"),
        ("terraform_vars", "us-esat-1", None, "no region us-esat-1"),
        ("terraform_vars", "us-east-1", "mc07", "no cluster mc07"),
    ],
)
def test_what_cannot_be_explained_is_said(path: str, region: str, cluster: str | None, says: str) -> None:
    with pytest.raises(UserError, match=says):
        explain(CONFIGURATION, path, region, cluster)

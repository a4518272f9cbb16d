"""Four levels, inner wins: mappings merge, everything else replaces; templates keep types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.config.load import load_text
from regional.config.merge import merge, merge_all
from regional.config.source import Node
from regional.config.template import TemplateError, fill

# A busy machine is no fault of the merge.
STEADY = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
SCALARS = st.none() | st.booleans() | st.integers() | st.text("xyz", max_size=3) | st.lists(st.integers(), max_size=2)
TREES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(SCALARS, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8),
    max_size=3,
)


def merged(*levels: Any) -> Any:
    result = merge_all(Node.of(level) for level in levels)
    assert result is not None
    return result.plain()


@STEADY
@given(TREES)
def test_merging_with_nothing_or_itself_changes_nothing(tree: dict[str, Any]) -> None:
    assert merged(tree, {}) == tree
    assert merged({}, tree) == tree
    assert merged(tree, tree) == tree


@STEADY
@given(TREES, TREES)
def test_every_leaf_of_the_inner_level_survives(under: dict[str, Any], over: dict[str, Any]) -> None:
    result = merged(under, over)
    assert set(result) == set(under) | set(over)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            assert result[key] == merged(under[key], value)
        else:
            assert result[key] == value


@STEADY
@given(TREES, TREES)
def test_merging_leaves_its_inputs_alone(under: dict[str, Any], over: dict[str, Any]) -> None:
    below, above = Node.of(under), Node.of(over)
    merge(below, above)
    assert (below.plain(), above.plain()) == (under, over)


LEVELS = """
defaults:
  terraform_vars: {shared: {a: defaults, b: defaults}, list: [1, 2]}
sectors:
  - name: canary
    environment: production
    terraform_vars: {shared: {b: sector}, list: [3]}
region_deployments:
  - name: eu
    aws_region: eu-west-1
    sector: canary
    account_id: "111111111111"
    terraform_vars: {shared: {c: region}}
    values:
    management_clusters:
      - cluster_id: mc01
        account_id: "222222222222"
        terraform_vars: {shared: {a: "{{ cluster_id }}"}}
      - cluster_id: mc02
        account_id: "333333333333"
"""


def test_values_come_through_all_four_levels() -> None:
    (region,) = load_text(LEVELS.encode()).regions
    one, two = region.management_clusters
    assert region.terraform_vars == {"shared": {"a": "defaults", "b": "sector", "c": "region"}, "list": [3]}
    assert one.terraform_vars["shared"] == {"a": "mc01", "b": "sector", "c": "region"}
    assert two.terraform_vars["shared"]["a"] == "defaults"
    assert region.key == "production/eu"


def test_the_same_name_is_legal_in_two_environments() -> None:
    text = LEVELS.replace("  - name: canary", "  - name: staging\n  - name: canary") + (
        "  - name: eu\n    aws_region: eu-west-1\n    sector: staging\n    account_id: '444444444444'\n"
    )
    configuration = load_text(text.encode())
    assert [region.key for region in configuration.regions] == ["production/eu", "staging/eu"]
    assert configuration.region("eu") is None
    assert configuration.region("staging/eu") is not None


NAMES = {"count": 3, "name": "eu", "flag": True, "nothing": None}
KNOWN = frozenset({*NAMES, "cluster_id"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ count }}", 3),
        ("{{flag}}", True),
        ("{{ nothing }}", None),
        ("x-{{ name }}-{{ count }}", "x-eu-3"),
        ("is {{ flag }}", "is true"),
        ("{{ cluster_id | default('none') }}", "none"),
        ('{{ cluster_id|default("a b") }}', "a b"),
        ("{{ cluster_id | default(7) }}", 7),
        ("{{ name | default(7) }}", "eu"),
        ("plain { text }", "plain { text }"),
    ],
)
def test_a_pure_expression_keeps_its_type(text: str, value: object) -> None:
    assert fill(text, NAMES, KNOWN) == value


@pytest.mark.parametrize(
    "text",
    [
        "{{ nmae }}",
        "{{ nmae | default(1) }}",
        "{{ cluster_id }}",
        "{{ name | upper }}",
        "{{ name.__class__ }}",
        "{{ 1 + 1 }}",
        "{{ default }}",
        "{{ }}",
        "{{ name",
        "name }}",
        "{% raw %}",
        "{{ name | default(other) }}",
        "a {{ nothing }}",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        fill(text, NAMES, KNOWN)


@STEADY
@given(st.text(alphabet="{}%|'\"() nameft1", max_size=30))
def test_no_text_breaks_the_evaluator(text: str) -> None:
    try:
        fill(text, NAMES, KNOWN)
    except TemplateError:
        pass


def test_a_result_is_not_templated_again() -> None:
    assert fill("{{ name }}", {"name": "{{ count }}"}, KNOWN) == "{{ count }}"

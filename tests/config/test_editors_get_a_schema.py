"""The JSON Schema that editors complete and check with says what the loader says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from regional.config.shape import json_schema
from regional.core.paths import checkout

HERE = Path(__file__).parent
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

# What only a look at several entries, at templates, at Git or at the text itself can find. (A newline after a pin:
# editors see it, but Python's `$` does not.)
BEYOND_A_SCHEMA = {
    "account-of-itself", "reserved-cluster-id",
    "alias-bomb", "ambiguous-words", "anchors", "cluster-name-at-region", "control-characters",
    "duplicate-cluster-id", "duplicate-keys",
    "duplicate-region", "duplicate-sector", "long-key", "merge-key", "misspelt-name-with-default", "not-utf8",
    "no-regions", "pin-not-in-repository", "pin-with-newline", "several-regions-wrong", "tabs", "tag",
    "template-with-code", "templated-key", "too-deep", "too-large-numbers", "two-documents", "unclosed",
    "undefined-sector", "undefined-template-name", "value-of-no-chart",
    "values-pin-not-in-repository", "values-pin-required",
}  # fmt: skip


def faults(path: Path) -> list[Any]:
    return list(VALIDATOR.iter_errors(yaml.safe_load(path.read_text())))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize(
    "path",
    [checkout() / "config.yaml", HERE / "golden" / "config.yaml", *sorted(HERE.glob("accepted/*/config.yaml"))],
    ids=lambda path: path.parent.name,
)
def test_what_is_right_passes(path: Path) -> None:
    assert faults(path) == []


@pytest.mark.parametrize(
    "case",
    [case for case in sorted((HERE / "cases").iterdir()) if case.name not in BEYOND_A_SCHEMA],
    ids=lambda case: case.name,
)
def test_faults_of_shape_are_seen_while_writing(case: Path) -> None:
    assert faults(case / "config.yaml")


def test_the_committed_schema_is_the_current_one() -> None:
    assert json.loads((checkout() / "config.schema.json").read_text()) == json_schema(), "make render"

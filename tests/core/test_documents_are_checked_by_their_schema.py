"""What an API publishes as JSON Schema is what it enforces, and a refusal names every fault with its place."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regional.clm import specs
from regional.core.schema import Fault, Schema, check
from regional.platform_api import shapes

SCHEMA: Schema = {
    "type": "object",
    "required": ["name", "size"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 5, "pattern": "^[a-z]+$", "x-words": "lower-case"},
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "least": {"type": "number", "minimum": 0.5},
        "kind": {"type": "string", "enum": ["small", "large"]},
        "on": {"type": "boolean"},
        "account": {"type": "string", "pattern": "^[0-9]{12}$"},
        "networks": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "format": "cidr"}},
        "tags": {
            "type": "object",
            "maxProperties": 2,
            "propertyNames": {"type": "string", "pattern": "^[a-z]+$"},
            "additionalProperties": {"type": "string", "maxLength": 3},
        },
    },
}
RIGHT = {"name": "demo", "size": 3}

FAULTS: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = [
    ({"name": "A"}, [
        ("name", "name must have 3 to 5 characters, it has 1", "min_length"),
        ("name", "name must be lower-case", "pattern"),
    ]),
    ({"name": ""}, [("name", "name must have 3 to 5 characters, it has 0", "min_length")]),
    ({"name": "demo\n"}, [("name", "name must be lower-case", "pattern")]),
    ({"name": None}, [("name", "name must be a string", "format")]),
    ({"size": 10}, [("size", "size must be between 1 and 9", "max")]),
    ({"size": True}, [("size", "size must be an integer", "format")]),
    ({"least": 0.25}, [("least", "least must be at least 0.5", "min")]),
    ({"kind": "huge"}, [("kind", "kind must be one of small, large", "enum")]),
    ({"on": 1}, [("on", "on must be true or false", "format")]),
    ({"account": ""}, [("account", "account must be of the form ^[0-9]{12}$", "pattern")]),
    ({"networks": []}, [("networks", "networks must have 1 to 2 items, it has 0", "min")]),
    ({"networks": ["10.0.0.0/8", "10.0.0.1", "all"]}, [
        ("networks", "networks must have 1 to 2 items, it has 3", "max"),
        ("networks[1]", "networks[1] must be a network such as 10.132.0.0/14", "format"),
        ("networks[2]", "networks[2] must be a network such as 10.132.0.0/14", "format"),
    ]),
    ({"tags": {"a": "long", "B": "x", "c": "y"}}, [
        ("tags", "tags must have at most 2 entries", "max"),
        ("tags.a", "tags.a must have at most 3 characters, it has 4", "max_length"),
        ("tags.B", "tags.B must be of the form ^[a-z]+$", "pattern"),
    ]),
    ({"sise": 1}, [("sise", "sise is not a field; did you mean size?", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "faults"), FAULTS, ids=lambda value: next(iter(value), "") if value else "")
def test_each_fault_is_told(change: dict[str, Any], faults: list[tuple[str, str, str]]) -> None:
    found = list(check(RIGHT | change, SCHEMA))
    assert [(fault.field, fault.message, fault.constraint) for fault in found] == faults


def test_what_is_right_has_none() -> None:
    whole = {"kind": "small", "on": False, "networks": ["10.0.0.0/8"], "tags": {"a": "x"}, "account": "123456789012"}
    assert list(check(RIGHT | whole, SCHEMA)) == []


def test_what_is_missing_is_told_and_null_counts_as_missing_where_that_is_the_rule() -> None:
    absent = {"name": None, "on": None}
    required = [Fault(name, f"{name} is required", None, "required") for name in ("name", "size")]
    assert list(check({}, SCHEMA)) == required
    assert list(check(absent, SCHEMA, null_is_absent=True)) == required
    assert [fault.field for fault in check(absent, SCHEMA)] == ["size", "name", "on"]


def test_the_body_itself_has_a_name() -> None:
    assert [fault.message for fault in check([], SCHEMA)] == ["the body must be an object"]


def test_long_values_and_names_are_not_repeated() -> None:
    (fault,) = check(RIGHT | {"kind": "x" * 5000}, SCHEMA)
    assert fault.value is None
    (fault,) = check(RIGHT | {"y" * 5000: 1}, SCHEMA)
    assert len(fault.message) < 300


PUBLISHED = [SCHEMA, specs.CLUSTER, specs.NODE_POOL, specs.MANAGEMENT_CLUSTER, specs.ACCOUNT] + [
    shape for shape in vars(shapes).values() if isinstance(shape, dict) and isinstance(shape.get("type"), str)
]
_WORDS = st.sampled_from(
    ["", "a", "demo", "A_b", "10.0.0.0/8", "4.17.1", "AWS", "x" * 300, "123456789012", "NoExecute"]
)
_SCALARS = st.none() | st.booleans() | st.integers(-2, 600) | st.sampled_from([0.5, 10**30]) | _WORDS
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4), max_leaves=8
)


def _documents(schema: Schema) -> st.SearchStrategy[Any]:
    """Mostly of the right shape, with something wrong here and there."""
    if schema.get("type") == "object":
        known = {name: _documents(inner) for name, inner in schema.get("properties", {}).items()}
        extra = schema.get("additionalProperties")
        others = st.dictionaries(_WORDS, _documents(extra) if isinstance(extra, dict) else _SCALARS, max_size=3)
        likely: st.SearchStrategy[Any] = st.builds(
            lambda some, more: {**more, **some}, st.fixed_dictionaries({}, optional=known), others
        )
    elif schema.get("type") == "array":
        likely = st.lists(_documents(schema.get("items", {})), max_size=4)
    elif "enum" in schema:
        likely = st.sampled_from(schema["enum"])
    else:
        likely = _SCALARS
    return likely | _ANYTHING


@pytest.mark.parametrize("schema", PUBLISHED, ids=range(len(PUBLISHED)))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_verdict_is_that_of_json_schema_itself(schema: Schema, data: st.DataObject) -> None:
    document = data.draw(_documents(schema))
    judge = jsonschema.Draft202012Validator(schema)  # knows no format, so that a network is no word to it
    found = [fault for fault in check(document, schema) if "must be a network" not in fault.message]
    assert bool(found) == (not judge.is_valid(document)), (document, found)

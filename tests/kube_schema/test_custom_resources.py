"""Custom resources: pruning, defaults, validation messages, ratcheting and CEL rules."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import Obj
from regional.kube.schema.builtin import validate_builtin
from regional.kube.schema.errors import FieldError
from regional.kube.schema.structural import default, prune, validate
from regional.kube.schema.types import Schema, from_crd
from tests.kube_schema.widgets import builtin, crd

SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def schema(properties: Obj, **spec: Any) -> Schema:
    declared = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **spec}}}
    return from_crd(declared)


def findings(properties: Obj, value: Obj, old: Obj | None = None, **spec: Any) -> list[FieldError]:
    return validate({"spec": value}, None if old is None else {"spec": old}, schema(properties, **spec))


# --- the table of messages -------------------------------------------------------------------------------------------

EVERYTHING: Obj = {
    "size": {"type": "integer", "minimum": 1, "maximum": 10},
    "short": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
    "color": {"type": "string", "enum": ["red", "blue"]},
    "when": {"type": "string", "format": "date-time"},
    "few": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "conds": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "properties": {"type": {"type": "string"}}},
    },
    "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
    "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "either": {"x-kubernetes-int-or-string": True},
}


@pytest.mark.parametrize(
    ("value", "field", "reason", "message"),
    [
        (
            {"size": "x"},
            "spec.size",
            "FieldValueTypeInvalid",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
        (
            {"size": 11},
            "spec.size",
            "FieldValueInvalid",
            "Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            {"size": 0},
            "spec.size",
            "FieldValueInvalid",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            {"short": "a"},
            "spec.short",
            "FieldValueInvalid",
            'Invalid value: "a": spec.short in body should be at least 2 chars long',
        ),
        (
            {"short": "AB"},
            "spec.short",
            "FieldValueInvalid",
            "Invalid value: \"AB\": spec.short in body should match '^[a-z]+$'",
        ),
        ({"short": "abcdef"}, "spec.short", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
        ({"few": ["a", "b", "c"]}, "spec.few", "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        ({"map": {"a": "", "b": ""}}, "spec.map", "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
        (
            {"color": "green"},
            "spec.color",
            "FieldValueNotSupported",
            'Unsupported value: "green": supported values: "red", "blue"',
        ),
        (
            {"when": "x"},
            "spec.when",
            "FieldValueTypeInvalid",
            'Invalid value: "x": spec.when in body must be of type date-time: "x"',
        ),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
        (
            {"conds": [{"type": "x"}, {"type": "x"}]},
            "spec.conds[1]",
            "FieldValueDuplicate",
            'Duplicate value: {"type":"x"}',
        ),
        (
            {"one": {}},
            "<nil>",
            "FieldValueInvalid",
            'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid',
        ),
        (
            {"one": {"a": 1, "b": 2}},
            "<nil>",
            "FieldValueInvalid",
            'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives',
        ),
        (
            {"either": True},
            "spec.either",
            "FieldValueTypeInvalid",
            'Invalid value: "boolean": spec.either in body must be of type integer,string: "boolean"',
        ),
    ],
)
def test_each_check_has_its_words(value: Obj, field: str, reason: str, message: str) -> None:
    assert FieldError(field, reason, message) in findings(EVERYTHING, value)


def test_all_errors_are_reported_together() -> None:
    found = findings(EVERYTHING, {"size": 11, "color": "green"})
    assert [error.field for error in found] == ["spec.color", "spec.size"]


def test_a_missing_required_field() -> None:
    found = findings({"size": {"type": "integer"}}, {}, required=["size"])
    assert found == [FieldError("spec.size", "FieldValueRequired", "Required value")]


def test_valid_values_pass() -> None:
    value = {
        "size": 3,
        "short": "abc",
        "color": "red",
        "when": "2026-01-02T03:04:05Z",
        "few": ["a"],
        "tags": ["a", "b"],
        "one": {"a": 1},
        "either": "50%",
    }
    assert findings(EVERYTHING, value) == []


@pytest.mark.parametrize(
    ("format_name", "good", "bad"),
    [
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
        ("byte", "AAEC", "***"),
        ("date", "2026-02-28", "2026-02-30"),
        ("duration", "1h30m", "soon"),
        ("hostname", "a.example", "-a"),
        ("nobody-knows", "anything", None),
    ],
)
def test_formats(format_name: str, good: str, bad: str | None) -> None:
    properties = {"f": {"type": "string", "format": format_name}}
    assert findings(properties, {"f": good}) == []
    if bad is not None:
        assert [error.field for error in findings(properties, {"f": bad})] == ["spec.f"]


def test_patterns_are_go_expressions_and_cannot_run_away() -> None:
    assert findings({"f": {"type": "string", "pattern": r"^[[:alnum:]]+\z"}}, {"f": "abc"}) == []
    slow = {"f": {"type": "string", "pattern": "^(a+)+$"}}
    assert len(findings(slow, {"f": "a" * 5000 + "!"})) == 1


# --- pruning and defaults --------------------------------------------------------------------------------------------

SHAPED = schema(
    {
        "known": {"type": "object", "properties": {"x": {"type": "string", "default": "dx"}}},
        "kept": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"inner": {"type": "object", "properties": {"y": {"type": "string"}}}},
        },
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
        "map": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer", "default": 2}}},
        },
        "nullable": {"type": "string", "nullable": True},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "sized": {"type": "integer", "default": 5},
    }
)


def test_undeclared_fields_are_pruned_and_named() -> None:
    obj: Obj = {
        "apiVersion": "demo.io/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "junk": 1},
        "spec": {
            "junk": 1,
            "known": {"x": "1", "z": 1},
            "kept": {"any": {"thing": 1}, "inner": {"y": "1", "z": 1}},
            "list": [{"n": 1, "z": 1}],
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "data": {"a": 1}},
        },
        "top": 1,
    }
    assert sorted(prune(obj, SHAPED)) == [
        "metadata.junk",
        "spec.junk",
        "spec.kept.inner.z",
        "spec.known.z",
        "spec.list[0].z",
        "top",
    ]
    assert obj["spec"]["kept"] == {"any": {"thing": 1}, "inner": {"y": "1"}}
    assert obj["spec"]["template"]["data"] == {"a": 1}


def test_defaults_reach_into_lists_and_maps_but_make_no_parents() -> None:
    obj: Obj = {"spec": {"list": [{}], "map": {"a": {}}}}
    default(obj, SHAPED)
    assert obj["spec"] == {"list": [{"n": 1}], "map": {"a": {"n": 2}}, "sized": 5}


def test_a_null_becomes_the_default_or_goes() -> None:
    obj: Obj = {"spec": {"sized": None, "known": None, "nullable": None}}
    default(obj, SHAPED)
    assert obj["spec"] == {"sized": 5, "nullable": None}


def test_defaults_are_not_shared_between_objects() -> None:
    shared = from_crd({"type": "object", "properties": {"d": {"type": "object", "default": {"a": []}}}})
    first: Obj = {}
    default(first, shared)
    first["d"]["a"].append(1)
    second: Obj = {}
    default(second, shared)
    assert second == {"d": {"a": []}}


def test_a_kind_without_schema_keeps_everything() -> None:
    obj: Obj = {"spec": {"anything": [1, {"a": None}]}}
    assert prune(obj, from_crd(None)) == []
    assert obj == {"spec": {"anything": [1, {"a": None}]}}


# --- ratcheting ------------------------------------------------------------------------------------------------------


def test_an_unchanged_invalid_value_passes_an_update() -> None:
    properties = {"size": {"type": "integer", "maximum": 10}, "name": {"type": "string"}}
    assert findings(properties, {"size": 99, "name": "b"}, {"size": 99, "name": "a"}) == []
    assert len(findings(properties, {"size": 98, "name": "b"}, {"size": 99, "name": "a"})) == 1


def test_list_items_are_compared_by_key() -> None:
    properties = {
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}},
            },
        }
    }
    old = {"items": [{"k": "a", "v": 5}]}
    assert findings(properties, {"items": [{"k": "b", "v": 1}, {"k": "a", "v": 5}]}, old) == []


# --- CEL -------------------------------------------------------------------------------------------------------------


def rule(text: str, **more: Any) -> list[Obj]:
    return [{"rule": text, **more}]


def test_a_rule_about_an_object_and_one_about_a_scalar() -> None:
    properties = {"size": {"type": "integer"}, "replicas": {"type": "integer"}}
    rules = rule("self.replicas <= self.size", message="replicas must not exceed size")
    found = findings(properties, {"size": 1, "replicas": 2}, **{"x-kubernetes-validations": rules})
    assert found == [FieldError("spec", "FieldValueInvalid", "Invalid value: replicas must not exceed size")]

    immutable = {
        "id": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf", message="id is immutable")}
    }
    assert findings(immutable, {"id": "x"}) == [], "transition rules wait for an update"
    assert findings(immutable, {"id": "y"}, {"id": "x"}) == [
        FieldError("spec.id", "FieldValueInvalid", 'Invalid value: "y": id is immutable')
    ]


def test_a_rule_without_message_quotes_itself() -> None:
    properties = {"n": {"type": "integer", "x-kubernetes-validations": rule("self > 3")}}
    assert findings(properties, {"n": 1})[0].message == "Invalid value: 1: failed rule: self > 3"


def test_message_expression_reason_and_field_path() -> None:
    rules = rule(
        "self.n < 5",
        messageExpression="'n is ' + string(self.n)",
        reason="FieldValueForbidden",
        fieldPath=".n",
        message="too large",
    )
    found = findings({"n": {"type": "integer"}}, {"n": 9}, **{"x-kubernetes-validations": rules})
    assert found == [FieldError("spec.n", "FieldValueForbidden", "Forbidden: n is 9")]


def test_an_optional_old_self_is_there_on_create_too() -> None:
    rules = rule("oldSelf.hasValue() ? self >= oldSelf.value() : self == 1", optionalOldSelf=True, message="only up")
    properties = {"n": {"type": "integer", "x-kubernetes-validations": rules}}
    assert findings(properties, {"n": 1}) == []
    assert len(findings(properties, {"n": 2})) == 1
    assert findings(properties, {"n": 5}, {"n": 4}) == []
    assert len(findings(properties, {"n": 3}, {"n": 4})) == 1


def test_old_items_are_found_by_key_and_not_in_sets() -> None:
    frozen = rule("self.v == oldSelf.v", message="v is fixed")
    item = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
    keyed = {
        "l": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {**item, "x-kubernetes-validations": frozen},
        }
    }
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}
    assert [error.field for error in findings(keyed, {"l": [{"k": "b", "v": 3}]}, old)] == ["spec.l[0]"]
    atomic = {"l": {"type": "array", "items": {**item, "x-kubernetes-validations": frozen}}}
    assert findings(atomic, {"l": [{"k": "b", "v": 3}]}, old) == []


def test_rules_are_not_run_on_a_broken_shape() -> None:
    properties = {"n": {"type": "integer"}}
    found = findings(properties, {"n": "x"}, **{"x-kubernetes-validations": rule("self.n > 3")})
    assert str(found[-1]) == SKIPPED
    assert len(found) == 2


def test_a_rule_that_fails_to_run_says_so() -> None:
    found = findings({"n": {"type": "integer"}}, {}, **{"x-kubernetes-validations": rule("self.n > 3", message="m")})
    assert found[0].message.endswith("evaluating rule: m")


def test_a_rule_that_would_run_forever_is_stopped() -> None:
    rules = rule("self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))")
    properties = {"l": {"type": "array", "items": {"type": "integer"}}}
    found = findings(properties, {"l": list(range(500))}, **{"x-kubernetes-validations": rules})
    assert "call cost exceeds limit" in found[0].message


def test_values_are_typed_by_the_schema() -> None:
    properties = {
        "when": {"type": "string", "format": "date-time"},
        "ratio": {"type": "number"},
        "wait": {"type": "string", "format": "duration"},
        "namespace": {"type": "string"},
        "dash-ed": {"type": "string"},
    }
    text = (
        "self.when > timestamp('2020-01-01T00:00:00Z') && self.ratio < 1.5 && self.wait == duration('90s') "
        "&& self.__namespace__ == 'n' && self.dash__dash__ed == 'd'"
    )
    value = {"when": "2026-01-01T00:00:00Z", "ratio": 1, "wait": "1m30s", "namespace": "n", "dash-ed": "d"}
    assert findings(properties, value, **{"x-kubernetes-validations": rule(text)}) == []


@pytest.mark.parametrize(
    "text",
    [
        "has(self.s) && size(self.l) == 2",
        "self.l.all(x, x.startsWith('a')) && self.l.exists(x, x.endsWith('b')) && self.l.exists_one(x, x == 'ab')",
        "self.s.matches('^h[a-z]+') && self.s.find('[0-9]+') == '443' && self.s.split(':')[0] == 'https'",
        "self.s.lowerAscii().contains('example') && int('3') == 3",
        "self.?missing.orValue('none') == 'none'",
        "isURL(self.s) && url(self.s).getScheme() == 'https' && url(self.s).getHostname() == 'example.com'",
        "url(self.s).getPort() == '443' && url(self.s).getQuery() == {'a': ['b']} && !isURL('no url')",
        "isIP('10.0.0.1') && ip('10.0.0.1').family() == 4 && !isIP('x') && ip('::1').isLoopback()",
        "isCIDR('10.0.0.0/16') && cidr('10.0.0.0/16').prefixLength() == 16",
        "cidr('10.0.0.0/16').ip() == ip('10.0.0.0') && ip('10.0.0.0') == ip('10.0.0.0')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "quantity('1Gi').isGreaterThan(quantity('1000Mi')) && quantity('1000m') == quantity('1') && !isQuantity('x')",
        "sets.contains(self.l, ['ab']) && sets.equivalent([1, 2], [2, 1]) && [1, 2].sum() == 3 && [1, 3].isSorted()",
        "'%s-%d'.format(['a', 1]) == 'a-1' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
    ],
)
def test_the_functions_that_kubernetes_adds(text: str) -> None:
    properties = {"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}}
    value = {"s": "https://example.com:443/x?a=b", "l": ["aa", "ab"]}
    assert findings(properties, value, **{"x-kubernetes-validations": rule(text)}) == []


# --- the definition itself -------------------------------------------------------------------------------------------

CRD = builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def refusals(schema: Obj, **changes: Any) -> list[str]:
    obj = crd(schema)
    obj["spec"].update(changes)
    return [error.field for error in validate_builtin(CRD, obj, None)]


def test_a_good_definition_passes() -> None:
    assert refusals({"type": "object", "properties": {"spec": {"type": "object"}}}) == []


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ({"type": "string"}, ".type"),
        ({"type": "object", "properties": {"a": {}}}, ".properties[a].type"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, ".properties[a].items"),
        ({"type": "object", "x-kubernetes-validations": [{"rule": "self ==="}]}, ".x-kubernetes-validations[0].rule"),
        (
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}
            | {"properties": {"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}},
            ".properties[a].x-kubernetes-list-map-keys",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(declared: Obj, field: str) -> None:
    assert f"spec.validation.openAPIV3Schema{field}" in refusals(declared)


def test_the_name_is_plural_and_group() -> None:
    assert refusals({"type": "object"}, group="other.io") == ["metadata.name"]

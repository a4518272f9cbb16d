"""Rules that could run too long are refused when their CRD is written; what slips through is stopped when it runs."""

from __future__ import annotations

from typing import Any

import pytest

from .wire import Http, Obj

ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
TEXT: Obj = {"type": "string"}
PAIRS = "self.l.all(x, self.l.all(y, x == y))"


def texts(length: int, count: int) -> Obj:
    return {"type": "array", "maxItems": count, "items": {"type": "string", "maxLength": length}}


def listed(items: Obj, **limits: int) -> Obj:
    return {"type": "array", "items": items, **limits}


def mapped(values: Obj, **limits: int) -> Obj:
    return {"type": "object", "additionalProperties": values, **limits}


# rule, properties, by how much it exceeds its budget ("": it does not)
CASES: list[tuple[str, Obj, str]] = [
    ("self.a == 'x'", {"a": TEXT}, ""),
    ("self.l.all(x, x.startsWith('a'))", {"l": listed(TEXT)}, ""),
    (PAIRS, {"l": listed(TEXT)}, "more than 100x"),
    (PAIRS, {"l": texts(100, 1000)}, "4.5x"),
    (PAIRS, {"l": texts(100, 300)}, ""),
    ("self.a.contains(self.b)", {"a": TEXT, "b": TEXT}, "more than 100x"),
    ("self.a.matches('^[a-z]+$')", {"a": TEXT}, ""),
    ("self.m.all(k, self.m.all(j, self.m[k] != self.m[j]))", {"m": mapped(TEXT)}, "more than 100x"),
    ("self.l.all(x, x in self.k)", {"l": listed(TEXT), "k": listed(TEXT)}, "more than 100x"),
    ("self.a.split(',').all(x, x.size() < 9)", {"a": {"type": "string", "maxLength": 256}}, ""),
    ("self.l.all(x, self.l.exists(y, y == x))", {"l": listed({"type": "string", "enum": ["aa"]}, maxItems=900)}, ""),
]


def definition(rule: str, properties: Obj, name: str = "cost") -> Obj:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.budget.io"},
        "spec": {
            "group": "budget.io",
            "scope": "Namespaced",
            "names": {"kind": name.title(), "plural": f"{name}s"},
            "versions": [version],
        },
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize(("rule", "properties", "factor"), CASES, ids=[f"{case[0][:30]} {case[2]}" for case in CASES])
async def test_cost_of_a_rule_is_estimated(http: Http, rule: str, properties: Obj, factor: str) -> None:
    answer = await http.post(f"{DEFINITIONS}?dryRun=All", definition(rule, properties))
    if not factor:
        answer.ok(201)
        return
    assert answer.status == 422
    cause = answer.body["details"]["causes"][0]
    where = "openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    assert cause["field"].endswith(where)
    assert cause["reason"] == "FieldValueForbidden"
    assert cause["message"] == f"Forbidden: estimated rule cost exceeds budget by factor of {factor} {ADVICE}"


async def test_cost_of_all_rules_together_is_limited(http: Http) -> None:
    part: dict[str, Any] = {"type": "object", "properties": {"l": texts(100, 450)}}
    part["x-kubernetes-validations"] = [{"rule": PAIRS}]
    answer = await http.post(f"{DEFINITIONS}?dryRun=All", definition("true", {f"p{n}": part for n in range(12)}))
    assert answer.status == 422
    messages = [cause["message"] for cause in answer.body["details"]["causes"]]
    dear = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    assert messages[:4] == [f"Forbidden: {dear}"] * 4
    assert messages[4].startswith(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
    )
    assert len(messages) == 5


async def test_rule_that_runs_too_long_is_stopped(http: Http, config_maps: str) -> None:
    namespace = config_maps.split("/")[4]
    rule = "self.l.all(x, self.l.all(y, x.size() + y.size() < 90))"
    (await http.post(DEFINITIONS, definition(rule, {"l": texts(5, 900)}, "heavy"))).ok(201)
    path = f"/apis/budget.io/v1/namespaces/{namespace}/heavys"
    try:
        await http.until(path, lambda answer: answer.status == 200)
        heavy = {
            "apiVersion": "budget.io/v1",
            "kind": "Heavy",
            "metadata": {"name": "h"},
            "spec": {"l": ["abcde"] * 900},
        }
        answer = await http.post(f"{path}?dryRun=All", heavy)
        assert answer.status == 422
        assert answer.body["details"]["causes"][0]["message"] == (
            "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules "
            f"will be run due to call cost exceeds limit for rule: {rule}"
        )
    finally:
        await http.delete(f"{DEFINITIONS}/heavys.budget.io")

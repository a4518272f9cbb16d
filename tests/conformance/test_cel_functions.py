"""The functions of CEL: `cel.yaml` says what kube-apiserver makes of some three hundred expressions.

One CRD holds them all, a field for each; the refusal of one object tells what each was worth.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from .conftest import Define
from .objects import definition
from .wire import Http, Obj

ANSWERS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cel.yaml").read_text())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _rule(shown: str) -> list[Obj]:
    """A rule that never holds, and says the expression's text."""
    return [{"rule": f"({shown}) == 'no'", "messageExpression": shown}]


def _fields(expressions: list[str]) -> Obj:
    rules = {f"p{index}": _rule(shown) for index, shown in enumerate(expressions)}
    return {name: {"type": "integer", "x-kubernetes-validations": rule} for name, rule in rules.items()}


def _document(group: str, expressions: list[str]) -> Obj:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": _fields(expressions)}}}
    return definition(group, schema={"openAPIV3Schema": schema})


def _by_field(causes: list[Obj]) -> dict[int, str]:
    found = ((re.search(r"\bp(\d+)\b", cause["field"]), cause["message"]) for cause in causes)
    return {int(place[1]): message for place, message in found if place is not None}


async def test_every_expression_is_worth_what_it_is_worth_to_kube_apiserver(
    http: Http, group: str, crd: Define
) -> None:
    worth: dict[str, str] = {f"({each}) ? 'holds' : 'fails'": "holds" for each in ANSWERS["holds"]}
    worth |= {f"({each}) ? 'holds' : 'fails'": "fails" for each in ANSWERS["fails"]}
    worth |= ANSWERS["texts"]
    expressions = list(worth)
    things = await crd(_document(group, expressions))

    answer = await http.post(things.path, things.body("a", {f"p{index}": 1 for index in range(len(expressions))}))

    said = _by_field(answer.body["details"]["causes"])
    given = {shown: said.get(index, "").removeprefix("Invalid value: 1: ") for index, shown in enumerate(expressions)}
    # An empty message is none: the rule itself is named.
    expected = {shown: text or f"failed rule: ({shown}) == 'no'" for shown, text in worth.items()}
    assert given == expected


async def test_a_rule_that_cannot_be_run_says_why(http: Http, group: str, crd: Define) -> None:
    expressions = {f"string({each})": why for each, why in ANSWERS["errors"].items()}
    things = await crd(_document(group, list(expressions)))

    answer = await http.post(things.path, things.body("a", {f"p{index}": 1 for index in range(len(expressions))}))

    said = _by_field(answer.body["details"]["causes"])
    for index, (shown, why) in enumerate(expressions.items()):
        how = "for" if why.startswith("'no such overload'") else "evaluating"
        assert said[index] == f"Invalid value: \"integer\": {why} {how} rule: ({shown}) == 'no'"


async def test_what_is_no_rule_is_refused_with_the_definition(http: Http, group: str) -> None:
    expressions = [f"({each}) ? 'holds' : 'fails'" for each in ANSWERS["refused"]]

    answer = await http.post(CRDS, _document(group, expressions))

    assert answer.status == 422
    said = _by_field(answer.body["details"]["causes"])
    assert sorted(said) == list(range(len(expressions)))
    assert all("compilation failed" in message for message in said.values())

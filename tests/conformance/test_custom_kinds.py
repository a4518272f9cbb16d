"""Custom kinds: how they come to be served, what their schemas keep, fill in and refuse, how they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Define
from .objects import Custom, definition
from .wire import Answer, Http, Obj, Shell

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHART = Path(__file__).parents[2] / "argocd/config/management-cluster/hypershift/templates"
UNCHECKED = {
    "reason": "FieldValueInvalid",
    "message": "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "field": "<nil>",
}


def schema(spec: Obj, **top: Any) -> Obj:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"} | spec} | top}}


def conditions(crd: Obj) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in crd.get("status", {}).get("conditions") or ()
    }


def causes(answer: Answer) -> list[tuple[str, str, str]]:
    assert answer.status == 422, answer.content
    return [(each["field"], each["reason"], each["message"]) for each in answer.body["details"]["causes"]]


@pytest.mark.check(114)
async def test_a_definition_is_accepted_and_served(http: Http, crd: Define, group: str, namespace: str) -> None:
    kind = await crd(definition(group))
    told = await http.until(f"{CRDS}/{kind.resource}", lambda found: len(conditions(found.body)) == 2)
    assert conditions(told.body) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    assert told.body["spec"]["names"] == told.body["status"]["acceptedNames"] == names
    assert told.body["status"]["storedVersions"] == ["v1"]
    assert told.body["spec"]["conversion"] == {"strategy": "None"}
    found = await http.until(f"/apis/{group}/v1", lambda answer: answer.status == 200)
    assert [each["name"] for each in found.body["resources"]] == ["widgets"]
    listed = (await http.get(kind.path)).ok(200)
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == ("WidgetList", kind.api_version, [])
    made = (await http.post(kind.path, kind.body("w", {"size": 1}))).ok(201)
    (item,) = (await http.get(kind.path)).ok(200)["items"]
    assert item == made  # with kind and apiVersion, other than in the lists of built-in kinds


@pytest.mark.check(114)
async def test_a_definition_goes_with_its_objects(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group))
    body = kind.body("w", {"size": 1})
    body["metadata"]["finalizers"] = ["demo.io/hold"]
    (await http.post(kind.path, body)).ok(201)
    marked = (await http.delete(f"{CRDS}/{kind.resource}")).ok(200)
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await http.until(f"{kind.path}/w", lambda found: "deletionTimestamp" in found.body["metadata"])
    (await http.patch(f"{kind.path}/w", {"metadata": {"finalizers": None}})).ok(200)
    await http.until(f"{CRDS}/{kind.resource}", lambda found: found.status == 404)
    gone = await http.until(kind.path, lambda found: found.status == 404)
    assert gone.content == b"404 page not found\n"


SHAPES = {
    "properties": {
        "color": {"type": "string", "default": "red"},
        "nullable": {"type": "string", "nullable": True},
        "both": {"type": "string", "nullable": True, "default": "d"},
        "plain": {"type": "string"},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 7}}},
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        },
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}},
        },
    }
}


KEPT: list[tuple[Obj, Obj]] = [
    ({}, {}),
    ({"color": None, "nullable": None, "both": None, "plain": None}, {"nullable": None, "both": None}),
    ({"color": "blue", "junk": 1, "nested": {"junk": 1}}, {"color": "blue"}),
    (
        {"free": {"any": [{"thing": 1}], "known": {"a": "1", "junk": 1}}},
        {"free": {"any": [{"thing": 1}], "known": {"a": "1"}}},
    ),
    ({"list": [{}, {"n": 2, "junk": 1}]}, {"list": [{"n": 1}, {"n": 2}]}),
]


@pytest.mark.check(115)
async def test_fields_are_kept_filled_in_or_dropped(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group, schema=schema(SHAPES)))
    for number, (sent, kept) in enumerate(KEPT):
        made = (await http.post(kind.path, kind.body(f"w{number}", sent))).ok(201)
        assert made["spec"] == {"color": "red", "both": "d", "nested": {"deep": 7}} | kept, sent
        assert (await http.get(f"{kind.path}/w{number}")).ok(200) == made


CHECKED = {
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "inside": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": True},
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "number": {"type": "integer", "enum": [1, 2]},
        "when": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 2, "items": {"type": "string"}},
        "conds": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}},
        },
        "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "either": {"x-kubernetes-int-or-string": True},
        "needs": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
        "few": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    }
}
TYPE, INVALID = "FieldValueTypeInvalid", "FieldValueInvalid"


ERRORS: list[tuple[Obj, str, str, str]] = [
    ({"needs": {}}, "spec.needs.x", "FieldValueRequired", "Required value"),
    (
        {"size": "x"},
        "spec.size",
        TYPE,
        'Invalid value: "string": spec.size in body must be of type integer: "string"',
    ),
    (
        {"tags": [1]},
        "spec.tags[0]",
        TYPE,
        'Invalid value: "integer": spec.tags[0] in body must be of type string: "integer"',
    ),
    (
        {"either": 1.5},
        "spec.either",
        TYPE,
        'Invalid value: "number": spec.either in body must be of type integer,string: "number"',
    ),
    ({"size": 0}, "spec.size", INVALID, "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    ({"size": 11}, "spec.size", INVALID, "Invalid value: 11: spec.size in body should be less than or equal to 10"),
    ({"inside": 1}, "spec.inside", INVALID, "Invalid value: 1: spec.inside in body should be greater than 1"),
    ({"inside": 9}, "spec.inside", INVALID, "Invalid value: 9: spec.inside in body should be less than 9"),
    ({"name": "a"}, "spec.name", INVALID, 'Invalid value: "a": spec.name in body should be at least 2 chars long'),
    ({"name": "A1"}, "spec.name", INVALID, "Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"),
    ({"name": "abcdef"}, "spec.name", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
    ({"tags": ["a", "b", "c"]}, "spec.tags", "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
    (
        {"map": {"a": "1", "b": "2"}},
        "spec.map",
        "FieldValueTooMany",
        "Too many: 2: must have at most 1 item",
    ),
    (
        {"color": "green"},
        "spec.color",
        "FieldValueNotSupported",
        'Unsupported value: "green": supported values: "red", "blue"',
    ),
    ({"number": 3}, "spec.number", "FieldValueNotSupported", 'Unsupported value: 3: supported values: "1", "2"'),
    (
        {"when": "x"},
        "spec.when",
        TYPE,
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
        INVALID,
        'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid',
    ),
    ({"few": []}, "spec.few", INVALID, "Invalid value: 0: spec.few in body should have at least 1 items"),
]


@pytest.mark.check(116)
async def test_each_check_has_its_words(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group, schema=schema(CHECKED)))
    for spec, field, reason, body in ERRORS:
        answer = await http.post(kind.path, kind.body("w", spec))
        assert (field, reason, body) in causes(answer)
        assert answer.body["reason"] == "Invalid"
        assert answer.body["details"]["kind"] == "Widget" and answer.body["details"]["group"] == group
        assert answer.message.startswith(f'Widget.{group} "w" is invalid: ')
        assert f"{field}: {body}" in answer.message


RULES = [
    {"rule": "self.replicas <= self.size", "message": "replicas must not exceed size"},
    {"rule": "!has(self.low) || self.low > 5", "messageExpression": "'low ' + 'is not enough'"},
    {"rule": "!has(self.gone)", "fieldPath": ".gone", "reason": "FieldValueForbidden", "message": "not any more"},
    {"rule": "!has(self.bare) || self.bare != 'x'"},
]
RULED = {
    "required": ["size", "replicas"],
    "x-kubernetes-validations": RULES,
    "properties": {
        "size": {"type": "integer"},
        "replicas": {"type": "integer"},
        "low": {"type": "integer"},
        "gone": {"type": "string", "maxLength": 10},
        "bare": {"type": "string", "maxLength": 10},
        "id": {
            "type": "string",
            "maxLength": 10,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "id is immutable"}],
        },
        "once": {
            "type": "string",
            "maxLength": 10,
            "x-kubernetes-validations": [
                {
                    "rule": "oldSelf.hasValue() || self == 'first'",
                    "optionalOldSelf": True,
                    "message": "begins with first",
                }
            ],
        },
    },
}


FINDINGS: list[tuple[Obj, str, str, str]] = [
    ({"replicas": 5}, "spec", INVALID, "Invalid value: replicas must not exceed size"),
    ({"low": 3}, "spec", INVALID, "Invalid value: low is not enough"),
    ({"gone": "x"}, "spec.gone", "FieldValueForbidden", "Forbidden: not any more"),
    ({"bare": "x"}, "spec", INVALID, "Invalid value: failed rule: !has(self.bare) || self.bare != 'x'"),
    ({"once": "later"}, "spec.once", INVALID, 'Invalid value: "later": begins with first'),
]


@pytest.mark.check(116)
async def test_rules_say_what_they_found(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group, schema=schema(RULED)))
    good = {"size": 2, "replicas": 1}
    (await http.post(kind.path, kind.body("good", good))).ok(201)
    for change, field, reason, body in FINDINGS:
        answer = await http.post(kind.path, kind.body("w", good | change))
        cause = {"reason": reason, "message": body, "field": field}
        message = f'Widget.{group} "w" is invalid: {field}: {body}'
        details = {"name": "w", "group": group, "kind": "Widget", "causes": [cause]}
        answer.refused(422, "Invalid", message, details)


@pytest.mark.check(116)
async def test_rules_wait_until_the_shape_is_right(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group, schema=schema(RULED)))
    answer = await http.post(kind.path, kind.body("w", {"size": "x", "replicas": 1}))
    body = 'Invalid value: "string": spec.size in body must be of type integer: "string"'
    cause = {"reason": TYPE, "message": body, "field": "spec.size"}
    answer.refused(
        422,
        "Invalid",
        f'Widget.{group} "w" is invalid: [spec.size: {body}, <nil>: {UNCHECKED["message"]}]',
        {"name": "w", "group": group, "kind": "Widget", "causes": [cause, UNCHECKED]},
    )


@pytest.mark.check(116)
async def test_a_wrong_kind_or_version_is_told(http: Http, widgets: Custom) -> None:
    answer = await http.post(widgets.path, widgets.body("w", {}) | {"kind": "Gadget"})
    assert causes(answer) == [("kind", INVALID, 'Invalid value: "Gadget": must be Widget')]
    answer = await http.post(widgets.path, widgets.body("w", {}) | {"apiVersion": f"{widgets.group}/v2"})
    answer.refused(
        400,
        "BadRequest",
        f"the API version in the data ({widgets.group}/v2) does not match the expected API version "
        f"({widgets.group}/v1)",
    )


@pytest.mark.check(117)
async def test_a_transition_rule_compares_with_what_was(http: Http, crd: Define, group: str) -> None:
    kind = await crd(definition(group, schema=schema(RULED)))
    path = f"{kind.path}/w"
    (await http.post(kind.path, kind.body("w", {"size": 2, "replicas": 1, "id": "a"}))).ok(201)
    answer = await http.patch(path, {"spec": {"id": "b"}})
    assert causes(answer) == [("spec.id", INVALID, 'Invalid value: "b": id is immutable')]
    (await http.patch(path, {"spec": {"id": "a", "size": 3}})).ok(200)
    (await http.patch(path, {"spec": {"id": None}})).ok(200)
    (await http.patch(path, {"spec": {"id": "c"}})).ok(200)  # nothing to compare with


@pytest.mark.check(117)
async def test_what_was_there_before_a_stricter_schema_may_stay(http: Http, crd: Define, group: str) -> None:
    loose = {
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string"},
            "list": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {
                    "type": "object",
                    "required": ["k"],
                    "properties": {"k": {"type": "string"}, "v": {"type": "string"}},
                },
            },
        }
    }
    kind = await crd(definition(group, schema=schema(loose)))
    path = f"{kind.path}/w"
    old = {"a": "TOO LONG", "b": "B", "list": [{"k": "1", "v": "LONG"}, {"k": "2", "v": "ok"}]}
    (await http.post(kind.path, kind.body("w", old))).ok(201)
    tighter = (await http.get(f"{CRDS}/{kind.resource}")).ok(200)
    fields = tighter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["a"]["maxLength"] = 3
    fields["b"] |= {"maxLength": 100, "x-kubernetes-validations": [{"rule": "self.size() > 3", "message": "b short"}]}
    fields["list"]["items"]["properties"]["v"]["maxLength"] = 3
    patch = [{"op": "replace", "path": "/spec/versions", "value": tighter["spec"]["versions"]}]
    (await http.patch(f"{CRDS}/{kind.resource}", patch, "json")).ok(200)
    # The new schema is in force a moment later.
    await _refused(http, kind, {"a": "TOO LONG"})
    (await http.patch(path, {"metadata": {"labels": {"x": "y"}}})).ok(200)
    (await http.patch(path, {"spec": {"list": [{"k": "2", "v": "ok2"}, {"k": "1", "v": "LONG"}]}})).ok(200)
    answer = await http.patch(path, {"spec": {"a": "CHANGED"}})
    assert ("spec.a", "FieldValueTooLong", "Too long: may not be more than 3 bytes") in causes(answer)
    answer = await http.patch(path, {"spec": {"b": "C"}})
    assert causes(answer) == [("spec.b", INVALID, 'Invalid value: "C": b short')]
    answer = await http.patch(path, {"spec": {"list": [{"k": "3", "v": "LONG"}]}})
    assert ("spec.list[0].v", "FieldValueTooLong", "Too long: may not be more than 3 bytes") in causes(answer)


async def _refused(http: Http, kind: Custom, spec: Obj) -> None:
    """Until the schema refuses this, it is not yet in force."""
    for number in range(600):
        if (await http.post(kind.path, kind.body(f"probe-{number}", spec))).status == 422:
            return
    raise AssertionError("the stricter schema never came into force")


@pytest.mark.check(118)
async def test_status_and_scale_are_doors_of_their_own(http: Http, widgets: Custom) -> None:
    path = f"{widgets.path}/w"
    made = (await http.post(widgets.path, widgets.body("w", {"replicas": 1}, status={"phase": "no"}))).ok(201)
    assert "status" not in made
    told = (await http.patch(f"{path}/status", {"status": {"phase": "P", "replicas": 3}, "spec": {"size": 9}})).ok(200)
    assert (told["spec"], told["status"]) == ({"replicas": 1}, {"phase": "P", "replicas": 3})
    assert told["metadata"]["generation"] == 1
    assert (await http.patch(path, {"status": {"phase": "Q"}})).ok(200)["status"]["phase"] == "P"
    scale = (await http.get(f"{path}/scale")).ok(200)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 3})
    assert (await http.patch(f"{path}/scale", {"spec": {"replicas": 2}})).ok(200)["spec"] == {"replicas": 2}
    grown = (await http.get(path)).ok(200)
    assert (grown["spec"]["replicas"], grown["metadata"]["generation"]) == (2, 2)
    answer = await http.put(f"{path}/scale", scale | {"spec": {"replicas": -3}, "metadata": {"name": "w"}})
    assert causes(answer) == [(".spec.replicas", INVALID, "Invalid value: -3: should be a non-negative integer")]


@pytest.mark.check(119)
async def test_two_versions_of_one_kind(http: Http, crd: Define, group: str) -> None:
    document = definition(group, schema=schema({"properties": {"a": {"type": "string"}, "old": {"type": "string"}}}))
    newer = schema({"properties": {"a": {"type": "string"}}})
    document["spec"]["versions"] += [
        {"name": "v2", "served": True, "storage": False, "deprecated": True, "schema": newer},
        {"name": "v3", "served": False, "storage": False, "schema": newer},
    ]
    first = await crd(document)
    second = first.path.replace("/v1/", "/v2/")
    await http.until(second, lambda answer: answer.status == 200)
    made = (await http.post(first.path, first.body("w", {"a": "1", "old": "x"}))).ok(201)
    seen = await http.get(f"{second}/w")
    assert seen.ok(200)["apiVersion"] == f"{group}/v2"
    assert seen.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert seen.warnings == [f'299 - "{group}/v2 Widget is deprecated"']
    # What the version of a write does not declare is not kept.
    changed = (await http.patch(f"{second}/w", {"spec": {"a": "2"}})).ok(200)
    assert changed["spec"] == {"a": "2"}
    assert (await http.get(f"{first.path}/w")).ok(200)["spec"] == {"a": "2"}
    unserved = await http.get(first.path.replace("/v1/", "/v3/"))
    assert (unserved.status, unserved.content) == (404, b"404 page not found\n")
    found = (await http.get(f"/apis/{group}")).ok(200)
    assert found["preferredVersion"] == {"groupVersion": f"{group}/v2", "version": "v2"}
    assert [each["version"] for each in found["versions"]] == ["v2", "v1"]


@pytest.mark.check(120)
async def test_hosted_clusters_are_told_what_is_wrong(http: Http, namespace: str, kubectl: Shell) -> None:
    """HyperShift's own definition: too large for client-side apply when it carries its texts, fine server-side."""
    document = yaml.safe_load((CHART / "crd-hostedclusters.yaml").read_text())
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["description"] = "As long as all its descriptions together. " * 7000
    path = kubectl.folder / "crd.yaml"
    path.write_text(yaml.safe_dump(document))
    refused = await kubectl(f"apply -f {path}", fails=True)
    assert "metadata.annotations: Too long: may not be more than 262144 bytes" in refused
    await kubectl(f"apply --server-side -f {path}")
    version = document["spec"]["versions"][0]["name"]
    hosted = f"/apis/hypershift.openshift.io/{version}/namespaces/{namespace}/hostedclusters"
    await http.until(hosted, lambda answer: answer.status == 200)
    body = {
        "apiVersion": f"hypershift.openshift.io/{version}",
        "kind": "HostedCluster",
        "metadata": {"name": "x"},
        "spec": {"clusterID": "not-a-uuid"},
    }
    answer = await http.post(hosted, body)
    found = causes(answer)
    assert ("spec.release", "FieldValueRequired", "Required value") in found
    assert found[-1] == (UNCHECKED["field"], UNCHECKED["reason"], UNCHECKED["message"])

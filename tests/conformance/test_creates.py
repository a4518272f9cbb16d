"""Creating objects: names, places, types, unknown fields, dry runs, sizes."""

from __future__ import annotations

import re

import pytest

from .objects import Custom, config_map
from .wire import Http


@pytest.mark.check(39)
async def test_a_name_is_taken_once(http: Http, config_maps: str, widgets: Custom) -> None:
    (await http.post(config_maps, config_map("a"))).ok(201)
    again = await http.post(config_maps, config_map("a"))
    again.refused(409, "AlreadyExists", 'configmaps "a" already exists', {"name": "a", "kind": "configmaps"})
    (await http.post(widgets.path, widgets.body("a"))).ok(201)
    details = {"name": "a", "group": widgets.group, "kind": "widgets"}
    again = await http.post(widgets.path, widgets.body("a"))
    again.refused(409, "AlreadyExists", f'{widgets.resource} "a" already exists', details)


@pytest.mark.check(40)
async def test_a_name_is_generated(http: Http, config_maps: str) -> None:
    body = {"metadata": {"generateName": "x-"}}
    names = [(await http.post(config_maps, body)).ok(201)["metadata"]["name"] for _ in range(3)]
    assert all(re.fullmatch(r"x-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    assert len(set(names)) == 3
    long = (await http.post(config_maps, {"metadata": {"generateName": "y" * 63}})).ok(201)["metadata"]
    assert re.fullmatch(r"y{58}[bcdfghjklmnpqrstvwxz2456789]{5}", long["name"])
    assert long["generateName"] == "y" * 63


@pytest.mark.check(41)
async def test_an_object_needs_a_name(http: Http, config_maps: str, widgets: Custom) -> None:
    body = "Required value: name or generateName is required"
    causes = [{"reason": "FieldValueRequired", "message": body, "field": "metadata.name"}]
    answer = await http.post(config_maps, {"metadata": {}})
    text = f'ConfigMap "" is invalid: metadata.name: {body}'
    answer.refused(422, "Invalid", text, {"kind": "ConfigMap", "causes": causes})
    answer = await http.post(widgets.path, widgets.body(""))
    text = f'Widget.{widgets.group} "" is invalid: metadata.name: {body}'
    answer.refused(422, "Invalid", text, {"group": widgets.group, "kind": "Widget", "causes": causes})


@pytest.mark.check(42)
async def test_a_bad_name_is_refused(http: Http, config_maps: str) -> None:
    body = (
        'Invalid value: "Up_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '
        "'-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
        r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "metadata.name"}]
    details = {"name": "Up_", "kind": "ConfigMap", "causes": causes}
    answer = await http.post(config_maps, config_map("Up_"))
    answer.refused(422, "Invalid", f'ConfigMap "Up_" is invalid: metadata.name: {body}', details)


@pytest.mark.check(43)
async def test_the_namespace_in_the_body_is_the_one_in_the_path(http: Http, config_maps: str) -> None:
    answer = await http.post(config_maps, config_map("a", namespace="elsewhere"))
    text = "the namespace of the provided object does not match the namespace sent on the request"
    answer.refused(400, "BadRequest", text)


@pytest.mark.check(44)
async def test_the_kind_in_the_body_is_the_one_of_the_path(http: Http, config_maps: str, widgets: Custom) -> None:
    answer = await http.post(config_maps, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    text = (
        'Secret in version "v1" cannot be handled as a ConfigMap: '
        "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    )
    answer.refused(400, "BadRequest", text)
    answer = await http.post(widgets.path, widgets.body("a") | {"kind": "Gadget"})
    body = 'Invalid value: "Gadget": must be Widget'
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "kind"}]
    details = {"name": "a", "group": widgets.group, "kind": "Gadget", "causes": causes}
    answer.refused(422, "Invalid", f'Gadget.{widgets.group} "a" is invalid: kind: {body}', details)
    answer = await http.post(widgets.path, widgets.body("a") | {"apiVersion": f"{widgets.group}/v2"})
    text = (
        f"the API version in the data ({widgets.group}/v2) does not match the expected API version "
        f"({widgets.api_version})"
    )
    answer.refused(400, "BadRequest", text)


@pytest.mark.check(45)
@pytest.mark.parametrize("query", ["", "?fieldValidation=Warn"])
async def test_unknown_and_double_fields_are_warned_of(
    http: Http, config_maps: str, widgets: Custom, query: str
) -> None:
    text = b'{"metadata":{"name":"a"},"junk":1,"data":{"a":"1","a":"2"}}'
    answer = await http.post(config_maps + query, text)
    assert answer.ok(201)["data"] == {"a": "2"}
    assert answer.warnings == [r'299 - "unknown field \"junk\""', r'299 - "duplicate field \"data.a\""']
    answer = await http.post(widgets.path + query, widgets.body("a", {"size": 1, "junk": 2}))
    assert answer.ok(201)["spec"] == {"size": 1}
    assert answer.warnings == [r'299 - "unknown field \"spec.junk\""']


@pytest.mark.check(46)
async def test_unknown_and_double_fields_are_refused_on_demand(http: Http, config_maps: str, widgets: Custom) -> None:
    text = b'{"metadata":{"name":"a"},"junk":1,"data":{"a":"1","a":"2"}}'
    said = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        'strict decoding error: unknown field "junk", duplicate field "data.a"'
    )
    (await http.post(f"{config_maps}?fieldValidation=Strict", text)).refused(400, "BadRequest", said)
    said = 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.junk"'
    answer = await http.post(f"{widgets.path}?fieldValidation=Strict", widgets.body("a", {"junk": 1}))
    answer.refused(400, "BadRequest", said)


@pytest.mark.check(46)
async def test_unknown_fields_in_a_patch_are_refused_on_demand(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("a"))).ok(201)
    answer = await http.patch(f"{config_maps}/a?fieldValidation=Strict", {"junk": 1})
    # The value shown is the patched object, which nobody reads: its times and keys are not compared.
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert answer.message.endswith('": strict decoding error: unknown field "junk"')
    details = answer.body["details"]
    assert details.keys() == {"causes"}
    (cause,) = details["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")


@pytest.mark.check(47)
async def test_unknown_fields_are_passed_over_on_demand(http: Http, config_maps: str, widgets: Custom) -> None:
    text = b'{"metadata":{"name":"a"},"junk":1,"data":{"a":"1","a":"2"}}'
    answer = await http.post(f"{config_maps}?fieldValidation=Ignore", text)
    assert "junk" not in answer.ok(201) and answer.warnings == []
    answer = await http.post(f"{widgets.path}?fieldValidation=Ignore", widgets.body("a", {"junk": 1}))
    assert answer.ok(201)["spec"] == {} and answer.warnings == []


@pytest.mark.check(47)
async def test_another_word_for_strictness_is_refused(http: Http, config_maps: str) -> None:
    answer = await http.post(f"{config_maps}?fieldValidation=Perhaps", config_map("a"))
    body = 'Unsupported value: "Perhaps": supported values: "", "Ignore", "Strict", "Warn"'
    causes = [{"reason": "FieldValueNotSupported", "message": body, "field": "fieldValidation"}]
    details = {"group": "meta.k8s.io", "kind": "CreateOptions", "causes": causes}
    answer.refused(422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: {body}', details)


@pytest.mark.check(48)
async def test_a_dry_run_goes_all_the_way_and_stores_nothing(http: Http, config_maps: str) -> None:
    made = (await http.post(f"{config_maps}?dryRun=All", config_map("a", {"x": "y"}))).ok(201)
    assert made["metadata"]["uid"] and "resourceVersion" not in made["metadata"]
    assert made["data"] == {"x": "y"}
    assert (await http.get(f"{config_maps}/a")).status == 404
    bad = await http.post(f"{config_maps}?dryRun=All", config_map("Up_"))
    assert bad.status == 422
    answer = await http.post(f"{config_maps}?dryRun=Some", config_map("a"))
    body = 'Unsupported value: ["Some"]: supported values: "All"'
    causes = [{"reason": "FieldValueNotSupported", "message": body, "field": "dryRun"}]
    details = {"group": "meta.k8s.io", "kind": "CreateOptions", "causes": causes}
    answer.refused(422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: dryRun: {body}', details)


@pytest.mark.check(48)
async def test_dry_updates_patches_and_deletes_change_nothing(http: Http, config_maps: str) -> None:
    made = (await http.post(config_maps, config_map("a", {"x": "y"}))).ok(201)
    changed = (await http.put(f"{config_maps}/a?dryRun=All", config_map("a", {"x": "z"}))).ok(200)
    assert changed["data"] == {"x": "z"}
    assert (await http.patch(f"{config_maps}/a?dryRun=All", {"data": {"x": "w"}})).ok(200)["data"] == {"x": "w"}
    assert (await http.delete(f"{config_maps}/a?dryRun=All")).ok(200)["status"] == "Success"
    assert (await http.get(f"{config_maps}/a")).ok(200) == made


@pytest.mark.check(62)
async def test_secrets_take_text_and_refuse_bad_base64(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"metadata": {"name": "a"}, "stringData": {"x": "hello"}, "data": {"x": "Yg==", "y": "Yg=="}}
    made = (await http.post(path, body)).ok(201)
    assert made["data"] == {"x": "aGVsbG8=", "y": "Yg=="}
    assert "stringData" not in made and made["type"] == "Opaque"
    bad = await http.post(path, {"metadata": {"name": "b"}, "data": {"x": "%%%"}})
    text = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
    bad.refused(400, "BadRequest", text)


@pytest.mark.check(62)
async def test_an_immutable_secret_stays_as_it_is(http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    (await http.post(path, {"metadata": {"name": "a"}, "immutable": True, "data": {"x": "Yg=="}})).ok(201)
    body = "Forbidden: field is immutable when `immutable` is set"
    causes = [{"reason": "FieldValueForbidden", "message": body, "field": "data"}]
    details = {"name": "a", "kind": "Secret", "causes": causes}
    answer = await http.patch(f"{path}/a", {"data": {"x": "Yw=="}})
    answer.refused(422, "Invalid", f'Secret "a" is invalid: data: {body}', details)
    (await http.patch(f"{path}/a", {"metadata": {"labels": {"l": "1"}}})).ok(200)
    body = 'Invalid value: "Other": field is immutable'
    causes = [{"reason": "FieldValueInvalid", "message": body, "field": "type"}]
    answer = await http.patch(f"{path}/a", {"type": "Other"})
    details = {"name": "a", "kind": "Secret", "causes": causes}
    answer.refused(422, "Invalid", f'Secret "a" is invalid: type: {body}', details)


@pytest.mark.check(63)
async def test_a_large_config_map_is_invalid_and_a_large_body_is_refused(http: Http, config_maps: str) -> None:
    answer = await http.post(config_maps, config_map("a", {"x": "y" * 1_600_000}))
    body = "Too long: may not be more than 1048576 bytes"
    causes = [{"reason": "FieldValueTooLong", "message": body, "field": "[]"}]
    details = {"name": "a", "kind": "ConfigMap", "causes": causes}
    answer.refused(422, "Invalid", f'ConfigMap "a" is invalid: []: {body}', details)
    answer = await http.post(config_maps, config_map("a", {"x": "y" * 3_300_000}))
    answer.refused(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


@pytest.mark.check(64)
async def test_annotations_have_a_limit_together(http: Http, config_maps: str) -> None:
    answer = await http.post(config_maps, config_map("a", annotations={"x": "y" * 270_000}))
    body = "Too long: may not be more than 262144 bytes"
    causes = [{"reason": "FieldValueTooLong", "message": body, "field": "metadata.annotations"}]
    details = {"name": "a", "kind": "ConfigMap", "causes": causes}
    answer.refused(422, "Invalid", f'ConfigMap "a" is invalid: metadata.annotations: {body}', details)

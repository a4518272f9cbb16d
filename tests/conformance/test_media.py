"""Bodies: which forms are taken, which are sent."""

from __future__ import annotations

import base64

import pytest
import yaml

from .objects import Custom, config_map, deployment
from .protobuf import envelope, message
from .wire import JSON, PROTOBUF, Http, Obj, Shell

UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
NOT_ACCEPTABLE = (
    "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)


def content(obj: Obj) -> Obj:
    """What a client put there: without what the server adds to each object's metadata."""
    return {key: value for key, value in obj.items() if key != "metadata"}


def pb_metadata(name: str, **labels: str) -> bytes:
    entries = [(11, message((1, key), (2, value))) for key, value in labels.items()]
    return message((1, name), *entries)


@pytest.mark.check(21)
async def test_a_form_that_nobody_has_is_not_acceptable(http: Http, config_maps: str) -> None:
    answer = await http.get(config_maps, accept="application/cbor")
    answer.refused(406, "NotAcceptable", NOT_ACCEPTABLE, {})


@pytest.mark.check(22)
async def test_a_body_in_an_unknown_form_is_refused(http: Http, config_maps: str) -> None:
    answer = await http.post(config_maps, b"hello", content_type="text/plain")
    answer.refused(415, "UnsupportedMediaType", UNKNOWN_FORMAT)


@pytest.mark.check(23)
async def test_yaml_is_taken(http: Http, config_maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  day: '2026-01-02'\n"
    created = (await http.post(config_maps, text, content_type="application/yaml")).ok(201)
    assert created["data"] == {"day": "2026-01-02"}


@pytest.mark.check(24)
async def test_yaml_is_sent_on_demand(http: Http, config_maps: str) -> None:
    (await http.post(config_maps, config_map("a", {"x": "yes", "n": "1"}))).ok(201)
    answer = await http.get(f"{config_maps}/a", accept="application/yaml")
    assert (answer.status, answer.media) == (200, "application/yaml")
    assert yaml.safe_load(answer.content)["data"] == {"x": "yes", "n": "1"}
    missing = await http.get(f"{config_maps}/b", accept="application/yaml")
    assert (missing.status, missing.media) == (404, "application/yaml")
    assert yaml.safe_load(missing.content)["reason"] == "NotFound"


@pytest.mark.check(25)
async def test_a_protobuf_config_map_equals_its_json_twin(http: Http, config_maps: str) -> None:
    raw = message((1, pb_metadata("a")), (2, message((1, "k"), (2, "v"))), (3, message((1, "b"), (2, b"\x00\x01"))))
    body = envelope("v1", "ConfigMap", raw)
    sent = (await http.post(config_maps, body, content_type=PROTOBUF, accept=JSON)).ok(201)
    twin = config_map("b", {"k": "v"}) | {"binaryData": {"b": "AAE="}}
    assert content(sent) == content((await http.post(config_maps, twin)).ok(201))
    assert sent["data"] == {"k": "v"} and sent["metadata"]["name"] == "a"


@pytest.mark.check(26)
async def test_protobuf_bytes_become_base64(http: Http, namespace: str) -> None:
    secret = bytes(range(256))
    raw = message((1, pb_metadata("a")), (2, message((1, "k"), (2, secret))), (3, "Opaque"))
    path = f"/api/v1/namespaces/{namespace}/secrets"
    sent = (await http.post(path, envelope("v1", "Secret", raw), content_type=PROTOBUF, accept=JSON)).ok(201)
    assert base64.b64decode(sent["data"]["k"]) == secret
    assert sent["type"] == "Opaque"


@pytest.mark.check(27)
async def test_a_protobuf_deployment_keeps_zero_replicas(http: Http, deployments: str) -> None:
    labels = message((1, "app"), (2, "a"))
    template = message((1, pb_metadata("", app="a")), (2, message((2, message((1, "main"), (2, "example/app:1"))))))
    spec = message((1, 0), (2, message((1, labels))), (3, template))
    body = envelope("apps/v1", "Deployment", message((1, pb_metadata("a", app="a")), (2, spec)))
    sent = (await http.post(deployments, body, content_type=PROTOBUF, accept=JSON)).ok(201)
    assert sent["spec"]["replicas"] == 0
    twin = (await http.post(f"{deployments}?dryRun=All", deployment("a2") | {"spec": sent["spec"]})).ok(201)
    assert content(sent) == content(twin)


@pytest.mark.check(28)
@pytest.mark.parametrize("version", ["v1", "apps/v1", "meta.k8s.io/v1"])
async def test_delete_options_come_as_protobuf(http: Http, config_maps: str, version: str) -> None:
    uid = (await http.post(config_maps, config_map("a"))).ok(201)["metadata"]["uid"]
    wrong = envelope(version, "DeleteOptions", message((2, message((1, "other")))))
    refused = await http.delete(f"{config_maps}/a", wrong, content_type=PROTOBUF, accept=JSON)
    assert refused.status == 409, refused.content
    assert f"the UID in the precondition (other) does not match the UID in record ({uid})" in refused.message
    right = envelope(version, "DeleteOptions", message((1, 0), (2, message((1, uid))), (4, "Background")))
    gone = (await http.delete(f"{config_maps}/a", right, content_type=PROTOBUF, accept=JSON)).ok(200)
    assert gone["details"]["uid"] == uid


@pytest.mark.check(29)
async def test_kubectl_asks_for_rights(kubectl: Shell) -> None:
    assert await kubectl("auth can-i create pods") == "yes\n"
    assert (await kubectl("auth can-i create pods --as joe", fails=True)).startswith("no")


@pytest.mark.check(30)
async def test_kubectl_creates_a_token(kubectl: Shell, http: Http, namespace: str) -> None:
    token = (await kubectl("create token default")).strip()
    assert token.count(".") == 2
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    said = (await http.post(path, who, user="", authorization=f"Bearer {token}")).ok(201)
    assert said["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


@pytest.mark.check(31)
async def test_a_custom_kind_takes_no_strategic_patch(http: Http, widgets: Custom) -> None:
    (await http.post(widgets.path, widgets.body("a", {"size": 1}))).ok(201)
    answer = await http.patch(f"{widgets.path}/a", {"spec": {"size": 2}}, "strategic")
    text = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    answer.refused(415, "UnsupportedMediaType", text)


@pytest.mark.check(32)
async def test_a_client_that_prefers_protobuf_gets_json_of_a_custom_kind(http: Http, widgets: Custom) -> None:
    answer = await http.get(widgets.path, accept=f"{PROTOBUF},{JSON}")
    assert (answer.status, answer.media) == (200, JSON)
    assert answer.body["items"] == []

"""The schemas that clients read before they write."""

from __future__ import annotations

import pytest

from .objects import Custom, config_map
from .protobuf import fields
from .wire import Answer, Http, Shell

V2_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_SENT = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@pytest.mark.check(15)
async def test_the_index_names_a_document_per_group_and_version(http: Http) -> None:
    paths = (await http.get("/openapi/v3")).ok(200)["paths"]
    for path in ("api/v1", "apis/apps/v1", "apis/rbac.authorization.k8s.io/v1", "apis/apiextensions.k8s.io/v1"):
        assert paths[path]["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")


@pytest.mark.check(15)
async def test_the_document_says_which_patches_a_kind_takes(http: Http, widgets: Custom) -> None:
    core = (await http.get("/openapi/v3/api/v1")).ok(200)
    patch = core["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert {"fieldValidation", "dryRun"} <= {each["name"] for each in patch["parameters"]}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    schema = core["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "ConfigMap"}]
    containers = core["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]

    path = f"/openapi/v3/apis/{widgets.api_version}"
    custom = (await http.until(path, lambda answer: answer.status == 200)).body
    patch = custom["paths"][f"/apis/{widgets.api_version}/namespaces/{{namespace}}/widgets/{{name}}"]["patch"]
    kind = {"group": widgets.group, "version": "v1", "kind": "Widget"}
    assert patch["x-kubernetes-group-version-kind"] == kind
    assert {"fieldValidation", "dryRun"} <= {each["name"] for each in patch["parameters"]}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert [kind] in [each.get("x-kubernetes-group-version-kind") for each in custom["components"]["schemas"].values()]


@pytest.mark.check(16)
async def test_a_document_named_by_its_hash_is_kept_for_good(http: Http) -> None:
    url = (await http.get("/openapi/v3")).ok(200)["paths"]["apis/apps/v1"]["serverRelativeURL"]
    right = await http.get(url)
    assert right.status == 200
    assert right.headers["cache-control"] == "public, immutable"
    assert (await http.get(url, if_none_match=right.headers["etag"])).status == 304
    wrong = await http.get(url.partition("=")[0] + "=0123ABCD")
    assert (wrong.status, wrong.headers["location"]) == (301, url)
    plain = await http.get("/openapi/v3/apis/apps/v1")
    assert (plain.status, plain.headers["cache-control"]) == (200, "no-cache, private")


@pytest.mark.check(17)
async def test_kubectl_explains_a_built_in_field(kubectl: Shell) -> None:
    text = await kubectl("explain deploy.spec.replicas")
    assert "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n" in text
    assert "FIELD: replicas <integer>" in text
    assert "Number of desired pods." in text


@pytest.mark.check(18)
async def test_kubectl_explains_a_custom_field(kubectl: Shell, http: Http, widgets: Custom) -> None:
    await http.until(f"/openapi/v3/apis/{widgets.api_version}", lambda answer: answer.status == 200)
    text = await kubectl(f"explain widgets.{widgets.group}.spec.size")
    assert f"GROUP:      {widgets.group}\nKIND:       Widget\nVERSION:    v1\n" in text
    assert "FIELD: size <integer>" in text
    assert "How big it is" in text


@pytest.mark.check(19)
async def test_the_second_version_parses_as_protobuf(http: Http, widgets: Custom) -> None:
    def definitions(answer: Answer) -> dict[str, bytes]:
        found = {}
        for number, value in fields(answer.content):
            if number == 9 and isinstance(value, bytes):
                for _, named in fields(value):
                    assert isinstance(named, bytes)
                    parts = dict(fields(named))
                    name, schema = parts[1], parts[2]
                    assert isinstance(name, bytes) and isinstance(schema, bytes)
                    found[name.decode()] = schema
        return found

    def names_widget(answer: Answer) -> bool:
        return any(name.endswith(".Widget") and widgets.group.split(".")[0] in name for name in definitions(answer))

    answer = await http.until("/openapi/v2", names_widget, accept=V2_ASKED)
    assert (answer.status, answer.media) == (200, V2_SENT)
    assert (1, b"2.0") in list(fields(answer.content))
    pod = list(fields(definitions(answer)["io.k8s.api.core.v1.PodSpec"]))
    properties = next(value for number, value in pod if number == 25)
    assert isinstance(properties, bytes)
    assert b"containers" in properties and b"x-kubernetes-list-map-keys" in properties
    extensions = [value for number, value in fields(definitions(answer)["io.k8s.api.core.v1.Pod"]) if number == 31]
    assert any(isinstance(value, bytes) and b"x-kubernetes-group-version-kind" in value for value in extensions)


@pytest.mark.check(20)
async def test_kubectl_names_the_mistyped_field(kubectl: Shell, widgets: Custom) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, dta: {x: y}}"
    said = await kubectl("apply -f -", stdin=text, fails=True)
    assert 'strict decoding error: unknown field "dta"' in said
    text = f"{{apiVersion: {widgets.api_version}, kind: Widget, metadata: {{name: a}}, spec: {{sise: 3}}}}"
    said = await kubectl("apply -f -", stdin=text, fails=True)
    assert 'strict decoding error: unknown field "spec.sise"' in said
    assert "NotFound" in await kubectl("get cm a", fails=True)


@pytest.mark.check(20)
async def test_a_mistyped_field_is_named_with_its_path_in_lists(http: Http, config_maps: str) -> None:
    body = config_map(
        "a", {"x": "y"}, ownerReferences=[{"apiVersion": "v1", "kind": "X", "name": "n", "uid": "u", "o": 1}]
    )
    answer = await http.post(f"{config_maps}?fieldValidation=Strict", body)
    answer.refused(
        400,
        "BadRequest",
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        'strict decoding error: unknown field "metadata.ownerReferences[0].o"',
    )

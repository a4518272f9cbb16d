"""OpenAPI documents: what kubectl, Helm and Argo CD look for in them is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regional.kube.objects import Obj
from regional.kube.schema.openapi import v2_protobuf, v3_document, v3_index
from regional.kube.schema.registry import BUILTINS, group_versions, kinds_of
from tests.kube_schema.widgets import WIDGET


def test_the_index_points_to_each_group() -> None:
    assert v3_index(["api/v1"], {"api/v1": "H"}) == {
        "paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=H"}},
    }


def test_a_built_in_kind_can_be_found_patched_and_explained() -> None:
    document = v3_document("apps", "v1", kinds_of("apps", "v1"))
    item = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    gvk = {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert item["get"]["x-kubernetes-group-version-kind"] == gvk
    assert {parameter["name"] for parameter in item["patch"]["parameters"]} >= {"fieldValidation", "dryRun"}
    assert "application/strategic-merge-patch+json" in item["patch"]["requestBody"]["content"]
    schemas = document["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["x-kubernetes-group-version-kind"] == [gvk]
    replicas = schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"]
    assert replicas["type"] == "integer"
    assert "desired pods" in replicas["description"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"


def test_a_custom_kind_offers_no_strategic_patch() -> None:
    document = v3_document("demo.io", "v1", [WIDGET])
    item = document["paths"]["/apis/demo.io/v1/namespaces/{namespace}/widgets/{name}"]
    assert "application/strategic-merge-patch+json" not in item["patch"]["requestBody"]["content"]
    schema = document["components"]["schemas"]["io.demo.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "demo.io", "version": "v1", "kind": "Widget"}]
    assert schema["properties"]["spec"]["properties"]["size"] == {"type": "integer"}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_every_reference_leads_somewhere() -> None:
    for group, versions in group_versions().items():
        for version in versions:
            document: Obj = v3_document(group, version, kinds_of(group, version))
            known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
            assert set(references(document)) <= known


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """A minimal protobuf reader: our messages hold only length-delimited fields."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while data[at] & 0x80:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        return value | data[at] << shift, at + 1

    found, at = [], 0
    while at < len(data):
        tag, at = varint(at)
        assert tag & 7 == 2
        size, at = varint(at)
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def test_the_version_2_message_names_every_kind_with_its_list_types() -> None:
    document = dict(fields(v2_protobuf([*BUILTINS, WIDGET])))
    assert document[1] == b"2.0"
    entries = {
        dict(fields(entry))[1].decode(): dict(fields(entry))[2] for number, entry in fields(document[9]) if number == 1
    }
    assert {"io.k8s.api.apps.v1.Deployment", "io.demo.v1.Widget"} <= entries.keys()
    extensions = [value for number, value in fields(entries["io.k8s.api.apps.v1.Deployment"]) if number == 31]
    assert any(b"x-kubernetes-group-version-kind" in value for value in extensions)
    assert b"x-kubernetes-list-map-keys" in entries["io.k8s.api.core.v1.PodSpec"]

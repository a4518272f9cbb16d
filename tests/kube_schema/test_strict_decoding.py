"""What strict decoding finds: duplicate keys and values of the wrong type."""

from __future__ import annotations

import pytest

from regional.kube.objects import Obj
from regional.kube.schema.strict import duplicate_fields, type_error
from regional.kube.schema.structural import prune
from regional.kube.schema.types import schema_of
from tests.kube_schema.widgets import builtin


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"data":{"a":"1","a":"2"}}', ["data.a"]),
        (b'{"a":1,"a":2,"l":[{"x":1,"x":2,"x":3}]}', ["a", "l[0].x"]),
        (b'{"a":1}', []),
        (b"not json", []),
    ],
)
def test_duplicate_keys(body: bytes, paths: list[str]) -> None:
    assert duplicate_fields(body) == paths


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "text"),
    [
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": "3"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "v1",
            "ConfigMap",
            {"data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        ("v1", "Secret", {"data": {"a": "x!"}}, "illegal base64 data at input byte 1"),
        (
            "v1",
            "Pod",
            {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "much"}}}]}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_values_of_the_wrong_type(api_version: str, kind: str, obj: Obj, text: str) -> None:
    assert type_error(obj, schema_of(builtin(api_version, kind))) == text


def test_a_good_object_has_no_type_error() -> None:
    obj: Obj = {
        "spec": {
            "replicas": 0,
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}},
        }
    }
    assert type_error(obj, schema_of(builtin("apps/v1", "Deployment"))) is None


def test_built_in_kinds_lose_unknown_fields_and_nulls() -> None:
    obj: Obj = {
        "metadata": {"name": "p", "creationTimestamp": None, "labels": {"a": None}},
        "spec": {"containers": [{"name": "c", "imag": "typo"}], "nodeName": None},
        "bogus": {},
    }
    unknown = prune(obj, schema_of(builtin("v1", "Pod")))
    assert sorted(unknown) == ["bogus", "spec.containers[0].imag"]
    assert obj == {"metadata": {"name": "p", "labels": {"a": ""}}, "spec": {"containers": [{"name": "c"}]}}


def test_free_form_parts_of_built_in_kinds_are_left_alone() -> None:
    obj: Obj = {
        "spec": {
            "versions": [
                {
                    "schema": {
                        "openAPIV3Schema": {"properties": {"a": {"default": {"b": None}, "additionalProperties": True}}}
                    }
                }
            ]
        }
    }
    assert prune(obj, schema_of(builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition"))) == []
    declared = obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]
    assert declared == {"default": {"b": None}, "additionalProperties": True}

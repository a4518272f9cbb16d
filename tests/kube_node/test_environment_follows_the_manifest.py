"""A container's variables, arguments and image mean what Kubernetes says they mean."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from regional.kube.node.environment import ConfigProblem, container_environment, expand, field_value
from regional.kube.node.images import ImageProblem, entrypoint
from regional.kube.objects import Obj

POD: Obj = {
    "metadata": {
        "name": "web-0",
        "namespace": "team",
        "uid": "u1",
        "labels": {"app": "web", "tier": "front"},
        "annotations": {"note": "hi"},
    },
    "spec": {"nodeName": "rc-node-1"},
}
FACTS = {"status.podIP": "127.64.2.9"}
OBJECTS: dict[tuple[str, str], Obj] = {
    ("ConfigMap", "settings"): {"kind": "ConfigMap", "data": {"LEVEL": "info", "not a name": "x"}},
    ("Secret", "login"): {"kind": "Secret", "data": {"password": base64.b64encode(b"s3cret").decode()}},
}


def lookup(kind: str, name: str) -> Obj | None:
    return OBJECTS.get((kind, name))


def environment(container: Obj, base: dict[str, str] | None = None) -> dict[str, str]:
    return container_environment(POD, container, lookup, FACTS, base or {})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_later_variables_see_earlier_ones_and_override_sources() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "DB_", "secretRef": {"name": "login"}}],
        "env": [
            {"name": "LEVEL", "value": "debug"},
            {"name": "URL", "value": "http://$(DB_password)@$(HOST):$(LEVEL)"},
            {"name": "HOST", "value": "late"},
        ],
    }
    assert environment(container) == {
        "LEVEL": "debug",
        "DB_password": "s3cret",
        "URL": "http://s3cret@$(HOST):debug",
        "HOST": "late",
    }


def test_the_downward_api_speaks_about_the_pod() -> None:
    paths = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "NODE": "spec.nodeName",
        "ACCOUNT": "spec.serviceAccountName",
        "IP": "status.podIP",
        "APP": "metadata.labels['app']",
        "NOTE": "metadata.annotations['note']",
    }
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]
    assert environment({"env": env}) == {
        "NAME": "web-0",
        "NAMESPACE": "team",
        "UID": "u1",
        "NODE": "rc-node-1",
        "ACCOUNT": "default",
        "IP": "127.64.2.9",
        "APP": "web",
        "NOTE": "hi",
    }


def test_resources_are_divided_and_rounded_up() -> None:
    container = {
        "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "100m"}},
        "env": [
            {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}
            for name, resource, divisor in (
                ("CPUS", "limits.cpu", "1"),
                ("MILLIS", "requests.cpu", "1m"),
                ("MEBIS", "limits.memory", "1Mi"),
                ("BYTES", "limits.memory", "0"),
            )
        ],
    }
    assert environment(container) == {"CPUS": "2", "MILLIS": "100", "MEBIS": "64", "BYTES": "67108864"}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "login", "key": "user"}}, "couldn't find key user in Secret login"),
        ({"fieldRef": {"fieldPath": "spec.nothing"}}, "fieldPath spec.nothing is not supported"),
    ],
)
def test_what_is_missing_is_named(source: Obj, complaint: str) -> None:
    with pytest.raises(ConfigProblem, match=complaint.replace("'", ".")):
        environment({"env": [{"name": "X", "valueFrom": source}]})


def test_optional_references_may_be_missing() -> None:
    container: dict[str, Any] = {
        "envFrom": [{"configMapRef": {"name": "none", "optional": True}}],
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "login", "key": "k", "optional": True}}},
        ],
    }
    assert environment(container, {"PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "image",
    [
        "regional/regional:0.1.0",
        "regional/regional",
        "registry.example.com:5000/regional/regional@sha256:0a",
        "localhost/regional/regional:x",
    ],
)
def test_our_image_is_known_by_its_repository(image: str) -> None:
    assert entrypoint(image, "regional/regional").argv({"args": ["status"]}, {}) == ["regionctl", "status"]


def test_an_exec_image_is_a_program_of_this_machine() -> None:
    program = entrypoint("exec:/usr/bin/env", "regional/regional")
    assert program.argv({"args": ["A=$(A)"]}, {"A": "1"}) == ["/usr/bin/env", "A=1"]
    assert program.argv({"command": ["sh", "-c"], "args": ["true"]}, {}) == ["sh", "-c", "true"]


@pytest.mark.parametrize("image", ["nginx:1", "other/regional/regional", "exec:", "regional"])
def test_any_other_image_is_refused_with_a_reason(image: str) -> None:
    with pytest.raises(ImageProblem, match="image"):
        entrypoint(image, "regional/regional")


def test_a_value_of_several_lines_stays_on_one() -> None:
    noted = {"metadata": {"annotations": {"b": 'say "hi"\nand\ttab', "a": "plain é"}}}
    assert field_value(noted, "metadata.annotations", {}) == 'a="plain é"\nb="say \\"hi\\"\\nand\\ttab"'

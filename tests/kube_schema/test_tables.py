"""The rows of `kubectl get`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from regional.kube.objects import Obj
from regional.kube.schema.durations import human_duration
from regional.kube.schema.jsonpath import first_match
from regional.kube.schema.registry import BUILTINS
from regional.kube.schema.tables import cells, columns, table
from tests.kube_schema.widgets import builtin, kind_of

NOW = datetime(2026, 1, 2, 0, 0, 0, tzinfo=UTC)
CREATED = "2026-01-01T23:55:26Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (28, "28s"),
        (119, "119s"),
        (120, "2m"),
        (274, "4m34s"),
        (660, "11m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (86_400, "24h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (31_536_000 * 3, "3y"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize("kind", [row for row in BUILTINS if row.stored], ids=lambda row: f"{row.plural}.{row.group}")
def test_every_kind_has_a_cell_for_each_column(kind: Any) -> None:
    assert len(cells(kind, {"metadata": {"name": "x"}}, NOW)) == len(columns(kind))


def row(api_version: str, kind: str, obj: Obj, *, wide: bool = False) -> dict[str, Any]:
    found = builtin(api_version, kind)
    obj.setdefault("metadata", {"name": "x"}).setdefault("creationTimestamp", CREATED)
    return {
        column["name"]: cell
        for column, cell in zip(columns(found), cells(found, obj, NOW), strict=True)
        if wide or not column["priority"]
    }


def test_a_deployment() -> None:
    obj: Obj = {
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "w"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}},
        },
        "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
    }
    assert row("apps/v1", "Deployment", obj, wide=True) == {
        "Name": "x",
        "Ready": "1/3",
        "Up-to-date": 2,
        "Available": 1,
        "Age": "4m34s",
        "Containers": "c,d",
        "Images": "i,j",
        "Selector": "app=w",
    }


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"phase": "Running"}, "Running"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            "CrashLoopBackOff",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            "Completed",
        ),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, "ExitCode:3"),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/1"),
    ],
)
def test_the_status_of_a_pod(status: Obj, text: str) -> None:
    obj: Obj = {"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}, "status": status}
    assert row("v1", "Pod", obj)["Status"] == text


def test_a_pod_that_is_going_is_terminating() -> None:
    obj: Obj = {
        "metadata": {"name": "p", "deletionTimestamp": CREATED},
        "spec": {"containers": [{}]},
        "status": {"phase": "Running"},
    }
    assert row("v1", "Pod", obj)["Status"] == "Terminating"


def test_restarts_tell_when_the_last_one_was() -> None:
    last = {"terminated": {"finishedAt": "2026-01-01T23:58:00Z"}}
    status = {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 2, "lastState": last}]}
    found = row("v1", "Pod", {"spec": {"containers": [{}]}, "status": status})
    assert (found["Ready"], found["Restarts"]) == ("1/1", "2 (2m ago)")


def test_services_nodes_secrets_and_events() -> None:
    service = {
        "spec": {
            "type": "NodePort",
            "clusterIP": "10.0.0.1",
            "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}],
        }
    }
    found = row("v1", "Service", service)
    assert (found["Port(s)"], found["External-IP"]) == ("80:30000/TCP", "<none>")
    node = {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert row("v1", "Node", node)["Status"] == "Ready,SchedulingDisabled"
    assert row("v1", "Secret", {"type": "Opaque", "data": {"a": "", "b": ""}})["Data"] == 2
    event = {"involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": CREATED, "message": " hi \n"}
    found = row("v1", "Event", event)
    assert (found["Last Seen"], found["Object"], found["Message"]) == ("4m34s", "pod/p", "hi")


def test_kinds_without_columns_show_name_and_creation() -> None:
    assert row("rbac.authorization.k8s.io/v1", "Role", {}) == {"Name": "x", "Created At": CREATED}


def test_a_custom_kind_prints_its_own_columns() -> None:
    printed = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
        {"name": "Odd", "type": "integer", "jsonPath": ".spec.name"},
    ]
    kind = kind_of({"type": "object"}, additionalPrinterColumns=printed)
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    obj: Obj = {
        "metadata": {"name": "a", "creationTimestamp": CREATED},
        "spec": {"size": 3, "name": "n"},
        "status": {"conditions": conditions},
    }
    assert [column["name"] for column in columns(kind)] == ["Name", "Size", "Ready", "Since", "Odd"]
    assert cells(kind, obj, NOW) == ["a", 3, "True", "4m34s", None]
    assert cells(kind, {"metadata": {"name": "a"}}, NOW) == ["a", None, None, None, None]
    assert [column["name"] for column in columns(kind_of({"type": "object"}))] == ["Name", "Age"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        ("{.a.b}", 1),
        (".list[1].n", 2),
        (".list[*].n", 1),
        (".list[?(@.k=='y')].n", 2),
        (r".labels.x\.io/y", None),
        (".labels['x.io/y']", "v"),
        (".a.none", None),
        ("][", None),
    ],
)
def test_simple_json_paths(path: str, value: Any) -> None:
    doc = {"a": {"b": 1}, "list": [{"k": "x", "n": 1}, {"k": "y", "n": 2}], "labels": {"x.io/y": "v"}}
    assert first_match(doc, path) == value


def test_a_whole_table() -> None:
    kind = builtin("v1", "ConfigMap")
    obj: Obj = {"metadata": {"name": "c0", "creationTimestamp": CREATED}, "data": {"a": "b"}}
    made = table(kind, [obj], NOW, list_meta={"resourceVersion": "220"})
    assert (made["kind"], made["apiVersion"], made["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "220"},
    )
    assert made["columnDefinitions"][0]["format"] == "name"
    assert made["rows"] == [
        {
            "cells": ["c0", 1, "4m34s"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            },
        }
    ]
    assert table(kind, [obj], NOW, include="None")["rows"][0]["object"] is None
    assert table(kind, [obj], NOW, include="Object")["rows"][0]["object"] is obj
    assert table(kind, [], NOW, with_columns=False)["columnDefinitions"] is None

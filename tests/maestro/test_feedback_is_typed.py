"""Paths in kubectl's dialect, and the typed values that they become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regional.maestro.agent.feedback import FeedbackFailed, values_of
from regional.maestro.agent.jsonpath import BadPath, find
from regional.maestro.protocol.bundles import FeedbackRule, JsonPath

HISTORY = [{"state": "Completed", "version": "4.20.0"}, {"state": "Partial"}]
HOSTED: dict[str, Any] = {
    "apiVersion": "hypershift.openshift.io/v1beta1",
    "kind": "HostedCluster",
    "metadata": {"name": "demo", "annotations": {"a.b/c": "dotted"}},
    "status": {
        "conditions": [
            {"type": "Available", "status": "True", "observedGeneration": 3},
            {"type": "Degraded", "status": "False", "observedGeneration": 2},
        ],
        "version": {"history": HISTORY},
        "ratio": 0.5,
        "ready": True,
        "nothing": None,
        "list": [1, 2, 3, 4, 5],
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["demo"]),
        ("{.metadata.name}", ["demo"]),
        ("metadata.name", ["demo"]),
        (r".metadata.annotations.a\.b/c", ["dotted"]),
        (".metadata.annotations['a.b/c']", ["dotted"]),
        ('.status.conditions[?(@.type=="Available")].status', ["True"]),
        (".status.conditions[?(@.type=='Available')].status", ["True"]),
        (".status.conditions[?(@.observedGeneration>2)].type", ["Available"]),
        ('.status.conditions[?(@.type!="Available")].type', ["Degraded"]),
        (".status.conditions[*].type", ["Available", "Degraded"]),
        (".status.version.history[0].version", ["4.20.0"]),
        (".status.version.history[-1].state", ["Partial"]),
        (".status.version.history[0:1].state", ["Completed"]),
        (".status.version.history[?(@.version)].state", ["Completed"]),
        (".status.version.history[?( @.version  ==  '4.20.0'  )].state", ["Completed"]),
        (".status.missing.deep", []),
        (".status.conditions[7]", []),
        (".status.ready", [True]),
        ("$.metadata.name", ["demo"]),
        ("@.metadata.name", ["demo"]),
        ("..state", ["Completed", "Partial"]),
        (".status..status", ["True", "False"]),
        (".status..history[0].version", ["4.20.0"]),
        ("..['state']", ["Completed", "Partial"]),
        (".status.version..*", [HISTORY, *HISTORY, "Completed", "4.20.0", "Partial"]),
        (".metadata['name','missing']", ["demo"]),
        (".status.conditions[*]['type','status']", ["Available", "Degraded", "True", "False"]),
        (".status.conditions[1,0].type", ["Degraded", "Available"]),
        (".status.list[0:5:2]", [1, 3, 5]),
        (".status.list[::3]", [1, 4]),
        (".status.list[1:2,4]", [2, 5]),
        (".status.list[?(@>3)]", [4, 5]),
        (".status.list[?( @ == 2 )]", [2]),
        (".status.list[-2:]", [4, 5]),
    ],
)
def test_paths_lead_where_kubectl_goes(path: str, found: list[Any]) -> None:
    assert find(HOSTED, path) == found


@pytest.mark.parametrize(
    "path",
    [
        *(".a[", ".a[?(@.b=x)]", ".a b", ".a[?(@.b==x)]", ".a[?(@.b==  )]", ".a[0:1:0]", ".a[0,]", ".a['b'", ".a[b]"),
        # Whoever writes bundles must not keep the agent busy for hours with one path.
        *("[?(@" + ".a" * 450 + "!)]", "[?(@.a==" + " " * 900 + "]", f"[{'7' * 5000}]", "." + "a" * 1_000_000),
    ],
    ids=lambda path: path[:12],
)
def test_a_path_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        find({"a": [{}]}, path)


def test_a_path_that_leads_everywhere_ends_soon() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep, "b": [deep] if isinstance(deep, int) else []}
    with pytest.raises(BadPath, match="more than"):
        find(deep, "..*" * 100)
    with pytest.raises(BadPath, match="more than"):
        find({"a": list(range(200_000))}, ".a[*]")


@given(st.text(max_size=30) | st.text(".*[]@$?()',:\"\\a0-= ", max_size=30))
def test_no_path_breaks_the_agent(path: str) -> None:
    try:
        find(HOSTED, path)
    except BadPath:
        pass


def rule(**paths: str) -> list[FeedbackRule]:
    return [FeedbackRule("JSONPaths", [JsonPath(name, path) for name, path in paths.items()])]


def test_values_have_the_types_of_the_wire() -> None:
    found = values_of(
        HOSTED,
        rule(
            text=".metadata.name",
            number=".status.conditions[0].observedGeneration",
            truth=".status.ready",
            ratio=".status.ratio",
            several=".status.conditions[*].type",
            whole=".status.version.history[1]",
            missing=".status.absent",
            null=".status.nothing",
        ),
    )
    assert {entry["name"]: entry["fieldValue"] for entry in found} == {
        "text": {"type": "String", "string": "demo"},
        "number": {"type": "Integer", "integer": 3},
        "truth": {"type": "Boolean", "boolean": True},
        "ratio": {"type": "JsonRaw", "jsonRaw": "0.5"},
        "several": {"type": "JsonRaw", "jsonRaw": '["Available","Degraded"]'},
        "whole": {"type": "JsonRaw", "jsonRaw": '{"state":"Partial"}'},
    }


def test_what_fails_is_named_and_the_rest_is_kept() -> None:
    with pytest.raises(FeedbackFailed, match="bad: ") as caught:
        values_of(HOSTED, rule(good=".metadata.name", bad=".a["))
    assert [entry["name"] for entry in caught.value.values] == ["good"]
    with pytest.raises(FeedbackFailed, match="bytes"):
        values_of(HOSTED, rule(all=".status"), largest=10)


def test_well_known_kinds_need_no_paths() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 2, "readyReplicas": 1}}
    found = values_of(deployment, [FeedbackRule("WellKnownStatus")])
    assert [entry["name"] for entry in found] == ["ReadyReplicas", "Replicas"]
    with pytest.raises(FeedbackFailed, match="HostedCluster"):
        values_of(HOSTED, [FeedbackRule("WellKnownStatus")])

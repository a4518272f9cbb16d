"""A pod goes where it may, and otherwise the reason names what is in the way."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from regional.kube.controllers import placement
from regional.kube.objects import Obj


def node(**spec: Any) -> Obj:
    return {
        "metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}},
    }


def pod(cpu: str = "0", memory: str = "0", **spec: Any) -> Obj:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}


def test_a_plain_pod_fits_a_plain_node() -> None:
    assert placement.refusal(pod(), node()) is None
    assert placement.shortages(pod(), node(), []) == []


def test_a_cordoned_node_takes_only_who_tolerates_it() -> None:
    assert placement.refusal(pod(), node(unschedulable=True)) == "node(s) were unschedulable"
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert placement.refusal(tolerant, node(unschedulable=True)) is None


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_want_their_toleration(toleration: Obj, fits: bool) -> None:
    tainted = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert "untolerated taint {gpu: yes}" in str(placement.refusal(pod(), tainted))
    assert (placement.refusal(pod(tolerations=[toleration]), tainted) is None) is fits


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "cores", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "cores", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "nothing", "operator": "DoesNotExist"}, True),
        ({"key": "nothing", "operator": "Exists"}, False),
    ],
)
def test_affinity_is_required(expression: Obj, fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (placement.refusal(pod(affinity=affinity), node()) is None) is fits


def test_a_selector_must_match() -> None:
    assert placement.refusal(pod(nodeSelector={"zone": "a"}), node()) is None
    assert "selector" in str(placement.refusal(pod(nodeSelector={"zone": "z"}), node()))


def test_a_full_node_is_full() -> None:
    assert placement.shortages(pod(cpu="600m"), node(), [pod(cpu="1500m")]) == ["Insufficient cpu"]
    assert placement.shortages(pod(memory="900Mi"), node(), [pod(memory="200Mi")]) == ["Insufficient memory"]
    assert placement.shortages(pod(), node(), [pod(), pod(), pod()]) == ["Too many pods"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", "0.5"), ("2Gi", "2147483648"), ("1e3", "1000"), ("1k", "1000"), (3, "3"), (None, "0"), ("lots", "0")],
)
def test_quantities_are_read(text: str | int | None, value: str) -> None:
    assert placement.quantity(text) == Decimal(value)


def test_a_sidecar_runs_beside_what_comes_after_it() -> None:
    def asks(cpu: str, **more: str) -> Obj:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [asks("1"), asks("500m")],
        "initContainers": [asks("200m", restartPolicy="Always"), asks("1800m")],
        "overhead": {"cpu": "100m"},
    }
    assert placement.requests_of({"spec": spec})["cpu"] == Decimal("2.1")
    spec["initContainers"] = [asks("3"), asks("200m", restartPolicy="Always")]
    assert placement.requests_of({"spec": spec})["cpu"] == Decimal("3.1")
    spec["initContainers"] = [asks("200m", restartPolicy="Always")]
    assert placement.requests_of({"spec": spec})["cpu"] == Decimal("1.8")


def test_what_a_node_does_not_have_it_cannot_give() -> None:
    wants = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"demo.io/gpu": "1"}}}]}}
    assert placement.shortages(wants, node(), []) == ["Insufficient demo.io/gpu"]

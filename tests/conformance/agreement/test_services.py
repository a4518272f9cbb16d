"""Services end as the real controllers leave them."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.objects import Obj, name_of

from ..stage import Stage
from .plays import ends_as, pods_ready, workload

pytestmark = pytest.mark.xdist_group("controllers-agree")


def service(**spec: Any) -> Obj:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "fixed", "port": 81, "targetPort": 8081}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "it", "labels": {"of": "it"}},
        "spec": {"selector": {"app": "it"}, "ports": ports} | spec,
    }


async def half_ready(stage: Stage) -> None:
    """Two pods with a named port: one ready, one not."""
    obj = workload("StatefulSet", replicas=2, serviceName="it", podManagementPolicy="Parallel")
    obj["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    stage.cast(lambda pod: "ready" if name_of(pod) == "it-0" else "running")
    await stage.create(obj)
    await pods_ready(stage, 1)


@pytest.mark.parametrize(
    ("record", "spec"),
    [
        ("plain", {}),
        ("headless", {"clusterIP": "None"}),
        ("unready-too", {"clusterIP": "None", "publishNotReadyAddresses": True}),
    ],
)
async def test_a_service_finds_its_pods(stage: Stage, record: str, spec: Obj) -> None:
    await half_ready(stage)
    await stage.create(service(**spec))
    await ends_as(stage, f"service-{record}")


async def test_a_service_without_pods(stage: Stage) -> None:
    await stage.create(service())
    await ends_as(stage, "service-without-pods")


async def test_a_service_with_a_pod_on_its_way_out(stage: Stage) -> None:
    await half_ready(stage)
    await stage.create(service())
    stage.lets_go = lambda pod: False
    await stage.client.delete("v1", "Pod", "it-0", stage.namespace)
    await ends_as(stage, "service-leaving")


async def test_addresses_given_by_hand_are_mirrored(stage: Stage) -> None:
    obj = service()
    del obj["spec"]["selector"]
    obj["spec"]["ports"] = [{"port": 80}]
    await stage.create(obj)
    await stage.create(
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "it"},
            "subsets": [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 8080}]}],
        }
    )
    await ends_as(stage, "service-by-hand")

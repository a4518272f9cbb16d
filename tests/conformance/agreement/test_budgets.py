"""Disruption budgets and evictions end as the real controllers leave them."""

from __future__ import annotations

from typing import Any

import pytest

from regional.kube.client import ApiError
from regional.kube.objects import Obj, condition_of, name_of, status_of

from ..stage import Stage
from .plays import ends_as, rolled, workload

pytestmark = pytest.mark.xdist_group("controllers-agree")


def budget(**spec: Any) -> Obj:
    selector = {"matchLabels": {"app": "it"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "it"},
        "spec": {"selector": selector} | spec,
    }


@pytest.mark.parametrize(
    ("record", "spec"),
    [
        ("at-least-2", {"minAvailable": 2}),
        ("at-least-half", {"minAvailable": "50%"}),
        ("at-most-1-away", {"maxUnavailable": 1}),
        ("at-most-a-third-away", {"maxUnavailable": "33%"}),
        ("at-least-all", {"minAvailable": "100%"}),
    ],
)
async def test_a_budget_counts(stage: Stage, record: str, spec: Obj) -> None:
    await stage.create(workload("Deployment", replicas=3))
    await rolled(stage)
    await stage.create(budget(**spec))
    await ends_as(stage, f"budget-{record}")


async def test_evictions_are_refused_when_the_budget_is_spent(stage: Stage) -> None:
    stage.lets_go = lambda pod: False
    await stage.create(workload("Deployment", replicas=2))
    await rolled(stage)
    await stage.create(budget(minAvailable=1))

    async def healthy(count: int, allowed: int) -> bool:
        status = status_of(await stage.get("policy/v1", "PodDisruptionBudget", "it"))
        return (status.get("currentHealthy"), status.get("disruptionsAllowed")) == (count, allowed)

    await stage.until(lambda: healthy(2, 1))
    stage.cast(lambda pod: "pending")
    first, second = await stage.pods()
    await evict(stage, first)
    # Before the controller has counted again, the refusal is the same in other words.
    await stage.until(lambda: healthy(1, 0))
    with pytest.raises(ApiError) as refused:
        await evict(stage, second)
    assert (refused.value.status, refused.value.reason) == (429, "TooManyRequests")
    assert refused.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    causes = refused.value.body["details"]["causes"]
    assert [cause["reason"] for cause in causes] == ["DisruptionBudget"]
    assert causes[0]["message"] == "The disruption budget it needs 1 healthy pods and has 1 currently"
    evicted = await stage.get("v1", "Pod", name_of(first))
    reason = condition_of(evicted, "DisruptionTarget") or {}
    assert (reason["status"], reason["reason"], reason["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )
    stage.lets_go = lambda pod: True
    stage.again()
    await ends_as(stage, "budget-after-an-eviction")


async def evict(stage: Stage, pod: Obj) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    await stage.client.create_in("v1", "Pod", name_of(pod), stage.namespace, "eviction", eviction)

"""The timeline: what happened when, who did it, and what the cluster waits for, from CLM, its adapter and Maestro."""

from __future__ import annotations

from typing import Any

from tests.clm.conftest import report

from .conftest import ADA, BOB, OPERATOR, Front
from .test_work_reaches_management_clusters import FULL

CLUSTERS = "/api/v0/clusters"


async def story(front: Front, cluster_id: str, query: str = "") -> dict[str, Any]:
    told: dict[str, Any] = await front.accept("GET", f"{CLUSTERS}/{cluster_id}/timeline{query}")
    assert told["kind"] == "Timeline"
    return told


def events(told: dict[str, Any]) -> list[str]:
    return [item["event"] for item in told["items"]]


async def test_it_begins_with_the_request_and_the_place(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    told = await story(front, made["id"])
    assert (told["phase"], told["complete"], told["total"]) == ("Provisioning", True, 2)
    assert told["waits_for"] == "waits for the first report of its management cluster"
    accepted, placed = told["items"]
    assert (accepted["event"], accepted["source"], accepted["request_id"]) == ("accepted", "clm", "request-1")
    assert accepted["actor"] == f"arn:aws:iam::{ADA}:user/someone"
    assert (placed["event"], placed["message"]) == ("placed", "on mc01")


async def test_it_tells_what_came_back_and_each_change(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    path = f"{CLUSTERS}/{made['id']}"
    await front.clm.put_status("Cluster", made["id"], report(1, "False"))
    await front.clm.put_status("Cluster", made["id"], report(1))
    told = await story(front, made["id"])
    assert events(told)[-1] == "Ready"
    assert "Available False" in events(told)
    assert events(told).index("Available False") < events(told).index("Available True") < events(told).index("Ready")
    assert (told["phase"], "waits_for" in told) == ("Ready", False)
    await front.accept("PATCH", path, {"spec": {"displayName": "Demo"}})
    told = await story(front, made["id"])
    assert events(told)[-1] == "changed"
    assert told["items"][-1]["generation"] == 2
    assert told["waits_for"]
    times = [item["time"] for item in told["items"]]
    assert times == sorted(times)


async def test_a_cluster_that_is_gone_still_has_one(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    await front.accept("DELETE", f"{CLUSTERS}/{made['id']}")
    assert (await story(front, made["id"]))["phase"] == "Deleting"
    await front.clm.put_status("Cluster", made["id"], report(2, "False", finalized="True"))
    told = await story(front, made["id"])
    assert (told["phase"], "waits_for" in told) == ("Gone", False)
    assert events(told)[-1] == "gone"
    assert "deletion asked for" in events(told)


async def test_it_has_pages(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    for number in range(5):
        await front.accept("PATCH", f"{CLUSTERS}/{made['id']}", {"spec": {"displayName": str(number)}})
    whole = await story(front, made["id"])
    assert (whole["total"], len(whole["items"])) == (7, 7)
    part = await story(front, made["id"], "?limit=3&offset=2")
    assert (part["items"], part["limit"], part["offset"]) == (whole["items"][2:5], 3, 2)
    assert (await story(front, made["id"], "?offset=100"))["items"] == []


async def test_more_changes_than_it_reads_are_said_to_be_left_off(front: Front, monkeypatch: Any) -> None:
    monkeypatch.setattr("regional.platform_api.timeline.MOST_PAGES", 2)
    monkeypatch.setattr("regional.platform_api.timeline._PAGE", 2)
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    for number in range(5):
        await front.accept("PATCH", f"{CLUSTERS}/{made['id']}", {"spec": {"displayName": str(number)}})
    told = await story(front, made["id"])
    assert (told["complete"], told["total"]) == (False, 4)
    assert told["items"][-1]["generation"] == 6


async def test_it_is_the_owner_s_alone(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    for account in (BOB, OPERATOR):
        assert await front.refuse("GET", f"{CLUSTERS}/{made['id']}/timeline", account=account) == (404, "not-found")
    missing = "00000000-0000-7000-8000-000000000000"
    for identifier in (missing, "demo"):
        assert await front.refuse("GET", f"{CLUSTERS}/{identifier}/timeline") == (404, "not-found")


async def test_a_bundle_that_nobody_has_taken_says_why(front_of_maestro: Front) -> None:
    front = front_of_maestro
    await front.accept("POST", "/api/v0/management_clusters", FULL, account=OPERATOR)
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    bundle = await front.accept(
        "POST",
        "/api/v0/work",
        {"cluster_id": "mc01", "data": _work("cluster-demo")},
        account=OPERATOR,
    )
    data = {"bundle": bundle["id"]}
    await front.clm.put_status("Cluster", made["id"], report(1, "False", data=data))
    told = await story(front, made["id"])
    assert (told["delivery"]["bundle"], told["delivery"]["state"]) == (bundle["id"], "pending")
    assert told["delivery"]["reason"] == "consumer mc01 never connected"
    assert told["waits_for"].endswith("consumer mc01 never connected")


async def test_without_maestro_the_rest_is_told(front: Front) -> None:
    made = await front.accept("POST", CLUSTERS, {"name": "demo"})
    data = {"bundle": "00000000-0000-4000-8000-000000000000"}
    await front.clm.put_status("Cluster", made["id"], report(1, "False", data=data))
    told = await story(front, made["id"])
    assert told["delivery"]["state"] == "unknown"
    assert events(told)[:2] == ["accepted", "placed"]


async def test_a_cluster_without_a_place_says_what_it_waits_for(front_of_maestro: Front) -> None:
    made = await front_of_maestro.accept("POST", CLUSTERS, {"name": "demo"})
    told = await story(front_of_maestro, made["id"])
    assert (told["phase"], events(told)) == ("WaitingForPlacement", ["accepted", "waiting for a place"])
    assert told["waits_for"] == told["items"][-1]["message"] != ""


def _work(name: str) -> dict[str, Any]:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    return {
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": [manifest]}},
    }

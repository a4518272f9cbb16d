"""A resource is created, changed, reported on, marked for deletion and finalized, and each step is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from regional.clm.client import ClmClient, ClmError
from tests.clm.conftest import add_management_cluster, condition, report

TENANT = "111122223333"


async def test_a_new_cluster_is_placed_and_not_reconciled(clm: ClmClient) -> None:
    await add_management_cluster(clm)
    made = await clm.for_tenant(TENANT, actor="arn:aws:iam::1:user/a").create("Cluster", "demo", {"tags": {"a": "b"}})
    assert made["generation"] == 1
    assert made["href"] == f"/api/hyperfleet/v1/clusters/{made['id']}"
    assert made["placement"]["management_cluster"] == made["placement"]["consumer"] == "mc01"
    assert made["tenancy"] == {"account": TENANT}
    assert made["created_by"] == "arn:aws:iam::1:user/a"
    assert [(found["type"], found["status"], found["reason"]) for found in made["status"]["conditions"]] == [
        ("Reconciled", "False", "ReconciledMissingAdapters"),
        ("LastKnownReconciled", "False", "AdaptersMissingReports"),
    ]
    assert await clm.get("Cluster", made["id"]) == made


async def test_a_report_at_the_current_generation_reconciles_it(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    assert await clm.put_status("Cluster", made["id"], report(1, data={"endpoint": "x"})) is not None
    ready = await clm.get("Cluster", made["id"])
    assert condition(ready, "Reconciled")["status"] == "True"
    assert condition(ready, "HypershiftSuccessful")["status"] == "True"
    changed = await clm.patch("Cluster", made["id"], spec={"tags": {"a": "b"}})
    assert changed["generation"] == 2
    assert condition(changed, "Reconciled")["status"] == "False"
    assert condition(changed, "LastKnownReconciled")["status"] == "True"


async def test_a_change_that_changes_nothing_is_no_new_generation(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {"tags": {"a": "b"}}, labels={"env": "dev"})
    same = await clm.patch("Cluster", made["id"], spec={"tags": {"a": "b"}}, labels={"env": "dev"})
    assert same == made


async def test_deleting_waits_for_the_adapter_and_for_children(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    pool = await clm.create("NodePool", "workers", {"replicas": 2}, parent_id=made["id"])
    gone = await clm.delete("Cluster", made["id"])
    assert gone["deleted_time"] and gone["generation"] == 2
    assert (await clm.get("NodePool", pool["id"]))["generation"] == 2
    with pytest.raises(ClmError, match="marked for deletion"):
        await clm.create("NodePool", "more", {}, parent_id=made["id"])
    again = await clm.delete("Cluster", made["id"])
    assert again["generation"] == 2
    await clm.put_status("Cluster", made["id"], report(2, "False", finalized="True"))
    waiting = await clm.get("Cluster", made["id"])
    assert condition(waiting, "Reconciled")["reason"] == "ReconciledWaitingForChildren"
    await clm.put_status("NodePool", pool["id"], report(2, "False", finalized="True"))
    # The last child takes the waiting parent with it: nobody else would look at it again.
    assert await clm.get_or_none("NodePool", pool["id"]) is None
    assert await clm.get_or_none("Cluster", made["id"]) is None


async def test_finalizing_an_older_generation_does_not_remove(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    await clm.put_status("Cluster", made["id"], report(1, "True", finalized="True"))
    await clm.delete("Cluster", made["id"])
    assert await clm.put_status("Cluster", made["id"], report(1, "False", finalized="True")) is not None
    assert await clm.get_or_none("Cluster", made["id"]) is not None


async def test_a_name_is_free_again_once_its_holder_is_marked(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    with pytest.raises(ClmError) as caught:
        await clm.create("Cluster", "demo", {})
    assert (caught.value.status, caught.value.code) == (409, "HYPERFLEET-CNF-001")
    await clm.delete("Cluster", made["id"])
    assert (await clm.create("Cluster", "demo", {}))["id"] != made["id"]


async def test_history_outlives_the_resource(clm: ClmClient) -> None:
    await add_management_cluster(clm)
    made = await clm.create("Cluster", "demo", {}, request_id="req-1")
    await clm.patch("Cluster", made["id"], spec={"tags": {"a": "b"}}, request_id="req-2")
    await clm.put_status("Cluster", made["id"], report(2), request_id="req-2")
    await clm.delete("Cluster", made["id"], request_id="req-3")
    await clm.put_status("Cluster", made["id"], report(3, "False", finalized="True"), request_id="req-3")
    assert await clm.get_or_none("Cluster", made["id"]) is None
    entries = (await clm.history("Cluster", made["id"]))["items"]
    assert [(entry["change"], entry["request_id"]) for entry in reversed(entries)] == [
        ("created", "req-1"),
        ("placed", "req-1"),
        ("updated", "req-2"),
        ("status", "req-2"),
        ("deleted", "req-3"),
        ("removed", "req-3"),
    ]
    assert entries[3]["document"]["spec"] == {"tags": {"a": "b"}}


async def test_kinds_without_adapters_go_at_once(clm: ClmClient) -> None:
    made = await clm.create("Account", TENANT, {"privileged": True})
    assert made["status"]["conditions"] == []
    assert (await clm.delete("Account", made["id"]))["deleted_time"]
    assert await clm.get_or_none("Account", made["id"]) is None


async def test_force_delete_forgets_the_whole_tree_of_what_is_being_deleted(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    pool = await clm.create("NodePool", "workers", {}, parent_id=made["id"])
    with pytest.raises(ClmError, match="not in Finalizing state"):
        await clm.force_delete("Cluster", made["id"], "stuck")
    await clm.delete("Cluster", made["id"])
    await clm.force_delete("Cluster", made["id"], "stuck")
    assert await clm.get_or_none("Cluster", made["id"]) is None
    assert await clm.get_or_none("NodePool", pool["id"]) is None
    assert (await clm.history("Cluster", made["id"]))["items"][0]["document"]["reason"] == "stuck"


async def test_an_overtaken_change_is_refused_when_asked_for(clm: ClmClient) -> None:
    made = await clm.create("Cluster", "demo", {})
    await clm.patch("Cluster", made["id"], spec={"tags": {"a": "1"}}, if_match='"1"')
    with pytest.raises(ClmError) as caught:
        await clm.patch("Cluster", made["id"], spec={"tags": {"a": "2"}}, if_match='"1"')
    assert (caught.value.status, caught.value.code) == (412, "HYPERFLEET-CNF-002")


@pytest.mark.parametrize(
    ("second", "status"),
    [
        ({"generation": 2}, None),  # of the future
        ({"generation": 1, "observed_time": "-60"}, None),  # older than the one before
        ({"generation": 1, "available": "Unknown"}, None),  # knows less than the one before
    ],
)
async def test_reports_that_say_nothing_new_are_discarded(clm: ClmClient, second: Any, status: Any) -> None:
    from datetime import UTC, datetime, timedelta

    made = await clm.create("Cluster", "demo", {})
    await clm.put_status("Cluster", made["id"], report(1))
    before = await clm.get("Cluster", made["id"])
    more = {}
    if "observed_time" in second:
        more["observed_time"] = (datetime.now(UTC) - timedelta(seconds=60)).isoformat()
    later = report(second["generation"], second.get("available", "False"), **more)
    assert await clm.put_status("Cluster", made["id"], later) is status
    assert await clm.get("Cluster", made["id"]) == before

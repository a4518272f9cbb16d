"""A customer's clusters and node pools, from create to delete, as only their owner sees them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from tests.clm.conftest import Region, report

from .conftest import ADA, BOB, OPERATOR, Front

CLUSTERS, POOLS = "/api/v0/clusters", "/api/v0/nodepools"


async def create(front: Front, name: str = "demo", account: str = ADA, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = await front.accept("POST", CLUSTERS, {"name": name, "spec": spec}, account=account)
    return made


def conditions(resource: dict[str, Any]) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource["status"]["conditions"]}


def steps(resource: dict[str, Any]) -> list[str]:
    return [found["step"] for found in resource["status"]["timeline"]]


async def test_a_created_cluster_is_placed_and_waits_for_its_control_plane(front: Front) -> None:
    made = await create(front, tags={"team": "a"})
    assert (made["kind"], made["name"], made["target_project_id"]) == ("Cluster", "demo", ADA)
    assert made["created_by"] == f"arn:aws:iam::{ADA}:user/someone"
    assert made["spec"] == {"platform": {"type": "None"}, "tags": {"team": "a"}}
    assert made["status"]["phase"] == "Provisioning"
    assert made["status"]["placementRef"]["managementCluster"] == "mc01"
    assert conditions(made) == {"Synced": "False", "Available": "False", "Degraded": "False"}
    assert steps(made) == ["accepted", "placed"]
    assert await front.accept("GET", f"{CLUSTERS}/{made['id']}") == made


async def test_a_cluster_becomes_ready_with_the_report_of_its_adapter(front: Front) -> None:
    made = await create(front)
    path = f"{CLUSTERS}/{made['id']}"
    assert await front.refuse("GET", f"{path}/kubeconfig") == (409, "kubeconfig-not-ready")
    data: dict[str, Any] = {
        "kubeconfig": base64.b64encode(b"apiVersion: v1\nkind: Config\n").decode(),
        "endpoint": {"host": "127.0.0.9", "port": 6443},
        "version": "4.20.1",
        "bundle": "b-1",
    }
    await front.clm.put_status("Cluster", made["id"], report(1, data=data))
    ready = await front.accept("GET", path)
    assert (ready["status"]["phase"], ready["status"]["observedGeneration"]) == ("Ready", 1)
    assert conditions(ready) == {"Synced": "True", "Available": "True", "Degraded": "False"}
    assert ready["status"]["controlPlaneEndpoint"] == {"host": "127.0.0.9", "port": 6443}
    assert ready["status"]["version"] == "4.20.1"
    assert steps(ready) == ["accepted", "placed", "published", "applied", "control plane", "Ready"]
    assert await front.call("GET", f"{path}/kubeconfig") == (200, "apiVersion: v1\nkind: Config\n")
    statuses = await front.accept("GET", f"{path}/statuses")
    assert statuses["controller_statuses"][0]["data"]["kubeconfig"] == "***REDACTED***"
    assert data["kubeconfig"] not in str(ready)


async def test_an_update_keeps_a_cluster_ready_while_it_is_carried_out(front: Front) -> None:
    made = await create(front)
    await front.clm.put_status("Cluster", made["id"], report(1))
    path = f"{CLUSTERS}/{made['id']}"
    changed = await front.accept("PATCH", path, {"spec": {"displayName": "Demo", "tags": {"a": "b"}}})
    assert changed["generation"] == 2
    assert changed["spec"] == {"platform": {"type": "None"}, "displayName": "Demo", "tags": {"a": "b"}}
    assert (changed["status"]["phase"], conditions(changed)["Synced"]) == ("Ready", "False")
    removed = await front.accept("PUT", path, {"spec": {"tags": None}})
    assert removed["spec"] == {"platform": {"type": "None"}, "displayName": "Demo"}
    assert (await front.accept("PATCH", path, {"spec": {}}))["generation"] == 3


async def test_a_cluster_whose_control_plane_died_after_a_change_is_not_ready(front: Front) -> None:
    made = await create(front)
    path = f"{CLUSTERS}/{made['id']}"
    await front.clm.put_status("Cluster", made["id"], report(1))
    await front.accept("PATCH", path, {"spec": {"displayName": "Demo"}})
    await front.clm.put_status("Cluster", made["id"], report(2, "False"))
    dead = await front.accept("GET", path)
    assert (dead["status"]["phase"], conditions(dead)["Degraded"]) == ("Provisioning", "True")
    assert dead["status"]["message"]
    (listed,) = (await front.accept("GET", CLUSTERS))["items"]  # without the report, and yet the same
    assert listed["status"]["phase"] == "Provisioning"
    await front.clm.put_status("Cluster", made["id"], report(2))
    assert (await front.accept("GET", path))["status"]["phase"] == "Ready"


async def test_what_cannot_be_changed_is_said(front: Front) -> None:
    made = await create(front)
    refused = await front.refuse("PATCH", f"{CLUSTERS}/{made['id']}", {"spec": {"platform": {"type": "AWS"}}})
    assert refused == (400, "invalid-request")


async def test_a_full_region_says_what_a_cluster_waits_for(front: Front) -> None:
    found = await front.clm.find("ManagementCluster", "mc01")
    assert found is not None
    await front.clm.patch("ManagementCluster", found["id"], spec={"capacity": 0})
    made = await create(front)
    assert made["status"]["phase"] == "WaitingForPlacement"
    assert "full" in made["status"]["message"]
    assert "placementRef" not in made["status"]


async def test_delete_answers_at_once_and_the_cluster_goes_when_it_is_finalized(front: Front) -> None:
    made = await create(front)
    path = f"{CLUSTERS}/{made['id']}"
    assert (await front.accept("DELETE", path))["cluster_id"] == made["id"]
    assert (await front.accept("DELETE", path))["cluster_id"] == made["id"]
    deleting = await front.accept("GET", path)
    assert deleting["status"]["phase"] == "Deleting"
    assert "deletion asked for" in steps(deleting)
    assert (await create(front))["id"] != made["id"]
    await front.clm.put_status("Cluster", made["id"], report(2, "False", finalized="True"))
    assert await front.refuse("GET", path) == (404, "not-found")
    changes = [entry["change"] for entry in (await front.accept("GET", f"{path}/history"))["items"]]
    assert changes[0] == "removed"
    assert changes[-1] == "created"


async def test_a_protected_cluster_is_not_deleted(front: Front) -> None:
    made = await create(front, deleteProtection=True)
    path = f"{CLUSTERS}/{made['id']}"
    assert await front.refuse("DELETE", path) == (409, "delete-protected")
    await front.accept("PATCH", path, {"spec": {"deleteProtection": False}})
    await front.accept("DELETE", path)


async def test_another_account_s_cluster_is_not_there(front: Front) -> None:
    mine = await create(front)
    await create(front, account=BOB)  # names are the account's own
    pool = await front.accept("POST", POOLS, {"cluster_id": mine["id"], "name": "workers"})
    path = f"{CLUSTERS}/{mine['id']}"
    for method, where, body in (
        ("GET", path, None),
        ("PATCH", path, {"spec": {"displayName": "x"}}),
        ("PUT", path, {"spec": {"displayName": "x"}}),
        ("DELETE", path, None),
        ("GET", f"{path}/statuses", None),
        ("GET", f"{path}/status", None),
        ("GET", f"{path}/history", None),
        ("GET", f"{path}/timeline", None),
        ("GET", f"{path}/kubeconfig", None),
        ("POST", POOLS, {"cluster_id": mine["id"], "name": "other"}),
        ("GET", f"{POOLS}?clusterId={mine['id']}", None),
        ("GET", f"{POOLS}?cluster_id={mine['id']}", None),
        ("GET", f"{POOLS}/{pool['id']}", None),
        ("GET", f"{POOLS}/workers", None),
        ("GET", f"{POOLS}/{pool['id']}/status", None),
        ("GET", f"{POOLS}/{pool['id']}/statuses", None),
        ("PUT", f"{POOLS}/{pool['id']}", {"spec": {"replicas": 1}}),
        ("PATCH", f"{POOLS}/{pool['id']}", {"spec": {"replicas": 1}}),
        ("DELETE", f"{POOLS}/{pool['id']}", None),
    ):
        # Not even those who run the region: a customer's cluster is the customer's.
        for account in (BOB, OPERATOR):
            assert await front.refuse(method, where, body, account=account) == (404, "not-found"), (method, where)
    assert [item["id"] for item in (await front.accept("GET", CLUSTERS, account=BOB))["items"]] != [mine["id"]]
    assert (await front.accept("GET", POOLS, account=BOB))["items"] == []
    assert (await front.accept("GET", path))["generation"] == 1


async def test_lists_have_pages(front: Front) -> None:
    names = [f"demo-{number}" for number in range(7)]
    for name in names:
        await create(front, name)
    newest_first = names[::-1]

    async def page(query: str) -> tuple[list[str], int, int, int]:
        found = await front.accept("GET", CLUSTERS + query)
        assert found["kind"] == "ClusterList"
        return [item["name"] for item in found["items"]], found["total"], found["limit"], found["offset"]

    assert await page("") == (newest_first, 7, 50, 0)
    assert await page("?limit=3") == (newest_first[:3], 7, 3, 0)
    assert await page("?limit=3&offset=2") == (newest_first[2:5], 7, 3, 2)
    assert await page("?limit=3&offset=6") == (newest_first[6:], 7, 3, 6)
    assert await page("?limit=3&offset=100") == ([], 7, 3, 100)
    for bad in ("limit=0", "limit=101", "limit=x", "limit=-1", "offset=-1", "offset=x", "limit=999999999999999"):
        assert await page(f"?{bad}") == (newest_first, 7, 50, 0)
    assert await page("?name=demo-3") == (["demo-3"], 1, 50, 0)
    assert await page("?name=%27%20or%201%3D1") == ([], 0, 50, 0)
    assert await front.refuse("GET", f"{CLUSTERS}?nam=x") == (400, "invalid-request")


async def test_node_pools_are_made_scaled_and_deleted(front: Front) -> None:
    cluster = await create(front)
    made = await front.accept("POST", POOLS, {"cluster_id": cluster["id"], "name": "workers"})
    assert (made["cluster_id"], made["spec"]["replicas"]) == (cluster["id"], 2)
    path = f"{POOLS}/{made['id']}"
    await front.clm.put_status("NodePool", made["id"], report(1, data={"replicas": 2, "version": "4.20.1"}))
    ready = await front.accept("GET", path)
    assert (ready["status"]["phase"], ready["status"]["replicas"]) == ("Ready", 2)
    scaled = await front.accept("PATCH", path, {"spec": {"replicas": 5}})
    assert (scaled["spec"]["replicas"], scaled["generation"]) == (5, 2)
    both = await front.refuse("PATCH", path, {"spec": {"autoScaling": {"min": 1, "max": 2}}})
    assert both == (400, "invalid-request")
    auto = await front.accept("PATCH", path, {"spec": {"replicas": None, "autoScaling": {"min": 1, "max": 2}}})
    assert "replicas" not in auto["spec"]
    assert (await front.accept("GET", f"{path}/status"))["nodepool_id"] == made["id"]
    listed = await front.accept("GET", f"{POOLS}?clusterId={cluster['id']}")
    assert [item["id"] for item in listed["items"]] == [made["id"]]
    again = await front.refuse("POST", POOLS, {"cluster_id": cluster["id"], "name": "workers"})
    assert again == (409, "already-exists")
    assert (await front.accept("DELETE", path))["nodepool_id"] == made["id"]
    assert (await front.accept("GET", path))["status"]["phase"] == "Deleting"


async def test_a_node_pool_goes_by_its_name_while_that_is_clear(front: Front) -> None:
    first, second = await create(front), await create(front, "other")
    pool = await front.accept("POST", POOLS, {"cluster_id": first["id"], "name": "workers"})
    assert (await front.accept("GET", f"{POOLS}/workers"))["id"] == pool["id"]
    assert (await front.accept("PATCH", f"{POOLS}/workers", {"spec": {"replicas": 3}}))["generation"] == 2
    await front.accept("POST", POOLS, {"cluster_id": second["id"], "name": "workers"})
    assert await front.refuse("GET", f"{POOLS}/workers") == (409, "ambiguous-name")
    assert await front.refuse("DELETE", f"{POOLS}/workers") == (409, "ambiguous-name")
    for nobody in ("nobody", "%27", "x'%20or%201=1", "%00", "a" * 200):
        assert await front.refuse("GET", f"{POOLS}/{nobody}") == (404, "not-found")


async def test_a_name_is_its_living_pool_s_even_while_the_former_one_is_being_deleted(front: Front) -> None:
    cluster = await create(front)
    body = {"cluster_id": cluster["id"], "name": "workers"}
    former = await front.accept("POST", POOLS, body)
    await front.accept("DELETE", f"{POOLS}/workers")
    assert (await front.accept("GET", f"{POOLS}/workers"))["id"] == former["id"]
    living = await front.accept("POST", POOLS, body)
    assert (await front.accept("GET", f"{POOLS}/workers"))["id"] == living["id"]
    assert (await front.accept("PATCH", f"{POOLS}/workers", {"spec": {"replicas": 3}}))["id"] == living["id"]
    assert (await front.accept("DELETE", f"{POOLS}/workers"))["nodepool_id"] == living["id"]
    assert await front.refuse("GET", f"{POOLS}/workers") == (409, "ambiguous-name")


async def test_a_change_needs_no_history(front: Front, region: Region) -> None:
    made = await create(front)
    async with region.connection() as connection:
        await connection.execute("DELETE FROM resource_history")
    changed = await front.accept("PATCH", f"{CLUSTERS}/{made['id']}", {"spec": {"displayName": "Demo"}})
    assert (changed["generation"], changed["spec"]["displayName"]) == (2, "Demo")


async def test_two_changes_at_once_both_hold(front: Front) -> None:
    made = await create(front)
    path = f"{CLUSTERS}/{made['id']}"
    changes = [front.call("PATCH", path, {"spec": {"tags": {f"t{number}": "x"}}}) for number in range(8)]
    statuses = [status for status, _ in await asyncio.gather(*changes)]
    taken = statuses.count(200)
    assert set(statuses) <= {200, 409}
    tags = (await front.accept("GET", path))["spec"]["tags"]
    assert len(tags) == taken >= 1


async def test_one_name_is_one_cluster_however_many_ask_at_once(front: Front) -> None:
    asked = [front.call("POST", CLUSTERS, {"name": "demo"}) for _ in range(8)]
    statuses = sorted(status for status, _ in await asyncio.gather(*asked))
    assert statuses == [201] + [409] * 7
    assert (await front.accept("GET", CLUSTERS))["total"] == 1


async def test_the_request_s_id_is_kept_with_what_it_changed(front: Front) -> None:
    made = await create(front)
    (entry, *_) = (await front.accept("GET", f"{CLUSTERS}/{made['id']}/history"))["items"][::-1]
    assert (entry["change"], entry["request_id"]) == ("created", "request-1")


async def test_a_duplicate_name_is_a_conflict(front: Front) -> None:
    await create(front)
    assert await front.refuse("POST", CLUSTERS, {"name": "demo"}) == (409, "already-exists")


async def test_what_is_no_id_names_nothing(front: Front) -> None:
    for identifier in ("demo", "..", "%00", "x" * 36, "0" * 36, "00000000-0000-0000-0000-00000000000G"):
        assert (await front.call("GET", f"{CLUSTERS}/{identifier}"))[0] == 404

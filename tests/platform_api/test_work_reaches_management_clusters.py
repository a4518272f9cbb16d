"""The milestone's own demonstration: register a management cluster, send it work, read what came back."""

from __future__ import annotations

import copy
import json
from typing import Any

from regional.core.paths import checkout
from tests.clm.conftest import Region
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, eventually

from .conftest import ADA, OPERATOR, Front, running_front

PAYLOAD: dict[str, Any] = json.loads((checkout() / "examples" / "work" / "payload.json").read_text())
CLUSTERS, WORK, BUNDLES = "/api/v0/management_clusters", "/api/v0/work", "/api/v0/resource_bundles"
FULL = {"id": "mc01", "region": "us-west-2", "accountId": "555555555555", "labels": {"cluster_id": "mc01"}}


async def register(front: Front, body: Any) -> tuple[int, Any]:
    return await front.call("POST", CLUSTERS, body, account=OPERATOR)


async def test_a_name_becomes_a_consumer_once(front_of_maestro: Front) -> None:
    labels = {"cluster_type": "management", "cluster_id": "management-01"}
    status, made = await register(front_of_maestro, {"name": "management-01", "labels": labels})
    assert (status, made["kind"], made["name"], made["labels"]) == (201, "Consumer", "management-01", labels)
    assert made["href"] == f"/api/maestro/v1/consumers/{made['id']}"
    status, again = await register(front_of_maestro, {"name": "management-01"})
    assert (status, again["code"]) == (409, "already-exists")
    assert "This Consumer already exists" in again["reason"]
    status, unnamed = await register(front_of_maestro, None)
    assert (status, bool(unnamed["name"])) == (201, True)
    listed = await front_of_maestro.accept("GET", CLUSTERS, account=OPERATOR)
    assert (listed["kind"], listed["total"], listed["size"]) == ("ConsumerList", 2, 2)
    assert (await front_of_maestro.accept("GET", f"{CLUSTERS}?size=1&page=2", account=OPERATOR))["size"] == 1
    for key in (made["id"], "management-01"):
        assert (await front_of_maestro.accept("GET", f"{CLUSTERS}/{key}", account=OPERATOR))["id"] == made["id"]
    assert await front_of_maestro.refuse("GET", f"{CLUSTERS}/nobody", account=OPERATOR) == (404, "not-found")


async def test_clusters_go_only_where_region_and_account_are_known(front_of_maestro: Front) -> None:
    front = front_of_maestro
    assert (await register(front, {"name": "management-01"}))[0] == 201
    waiting = await front.accept("POST", "/api/v0/clusters", {"name": "demo"})
    assert waiting["status"]["phase"] == "WaitingForPlacement"
    await front.accept("DELETE", f"/api/v0/clusters/{waiting['id']}")  # nobody overtakes one that waits
    status, made = await register(front, FULL)
    assert (status, made["accepting"], made["accountId"]) == (201, True, "555555555555")
    placed = await front.accept("POST", "/api/v0/clusters", {"name": "other"})
    assert placed["status"]["placementRef"]["managementCluster"] == "mc01"
    assert (await register(front, FULL))[0] == 409
    # One that was known by its name gets its facts later, and then takes clusters too.
    status, grown = await register(front, FULL | {"id": "management-01"})
    assert (status, grown["accepting"]) == (201, True)
    assert (await register(front, FULL | {"id": "management-01"}))[0] == 409


async def test_a_registration_that_was_broken_off_is_finished(front_of_maestro: Front, region: Region) -> None:
    assert (await register(front_of_maestro, FULL))[0] == 201
    found = await front_of_maestro.clm.find("ManagementCluster", "mc01")
    assert found is not None
    await front_of_maestro.clm.delete("ManagementCluster", found["id"])
    assert (await register(front_of_maestro, FULL))[0] == 201
    assert (await register(front_of_maestro, FULL))[0] == 409


async def test_registrations_that_make_no_sense(front_of_maestro: Front) -> None:
    for body in ({"name": "No_Name"}, {"name": "a" * 64}, {"id": "a", "name": "b"}, {"accountId": "1"}, [], {"x": 1}):
        status, answer = await register(front_of_maestro, body)
        assert (status, answer["code"]) == (400, "invalid-request"), body
    assert (await front_of_maestro.accept("GET", CLUSTERS, account=OPERATOR))["total"] == 0


async def test_work_is_applied_and_its_status_comes_back(
    region: Region, maestro: Maestro, cluster: Cluster, tmp_path: Any
) -> None:
    async with maestro.server() as client, running_front(region, client, tmp_path) as front:
        assert (await register(front, FULL))[0] == 201
        status, made = await front.call("POST", WORK, PAYLOAD, account=OPERATOR)
        assert (status, made["kind"], made["name"], made["cluster_id"]) == (
            201,
            "ManifestWork",
            "maestro-payload-test",
            "mc01",
        )
        bundle = await front.accept("GET", f"{BUNDLES}/{made['id']}", account=OPERATOR)
        assert "status" not in bundle
        assert bundle["delivery"]["reason"]
        async with maestro.agent(cluster.client, "mc01"):

            async def applied() -> Any:
                listed = await front.accept("GET", f"{BUNDLES}?search=consumer_name%20%3D%20'mc01'", account=OPERATOR)
                (item,) = listed["items"]
                resources = (item.get("status") or {}).get("resourceStatus") or []
                return [found for found in resources if (found.get("statusFeedback") or {}).get("values")]

            (found,) = await eventually(applied)
        assert {c["type"]: c["status"] for c in found["conditions"]}["Applied"] == "True"
        assert found["resourceMeta"]["kind"] == "ConfigMap"
        again = await front.call("POST", WORK, PAYLOAD, account=OPERATOR)
        assert (again[0], again[1]["id"]) == (201, made["id"])
        other = copy.deepcopy(PAYLOAD)
        other["data"]["spec"]["workload"]["manifests"][0]["data"]["message"] = "another"
        assert (await front.refuse("POST", WORK, other, account=OPERATOR))[0] == 409
        await front.accept("DELETE", f"{BUNDLES}/{made['id']}", account=OPERATOR)


async def test_secrets_in_bundles_are_not_shown(front_of_maestro: Front) -> None:
    assert (await register(front_of_maestro, FULL))[0] == 201
    payload = copy.deepcopy(PAYLOAD)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "default"},
        "data": {"a": "cGFzc3dvcmQ="},
    }
    payload["data"]["spec"]["workload"]["manifests"].append(secret)
    made = await front_of_maestro.accept("POST", WORK, payload, account=OPERATOR)
    for path in (BUNDLES, f"{BUNDLES}/{made['id']}"):
        shown = json.dumps(await front_of_maestro.accept("GET", path, account=OPERATOR))
        assert "cGFzc3dvcmQ=" not in shown
        assert "***REDACTED***" in shown


def bent(**changes: Any) -> dict[str, Any]:
    return {**PAYLOAD, "data": {**PAYLOAD["data"], **changes}}


async def test_work_that_cannot_be_sent(front_of_maestro: Front) -> None:
    front = front_of_maestro
    assert (await register(front, FULL))[0] == 201
    manifests: list[Any] = PAYLOAD["data"]["spec"]["workload"]["manifests"]
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    for body, code in (
        ([], "invalid-request"),
        ({"data": PAYLOAD["data"]}, "missing-cluster-id"),
        ({"cluster_id": ["mc01"], "data": {}}, "invalid-request"),
        ({"cluster_id": "mc01"}, "missing-data"),
        ({"cluster_id": "mc01", "data": "text"}, "invalid-data"),
        (bent(kind="ConfigMap"), "invalid-manifestwork-type"),
        (bent(apiVersion="v1"), "invalid-manifestwork-type"),
        (bent(metadata={}), "invalid-manifestwork"),
        (bent(spec={}), "invalid-manifestwork"),
        (bent(spec={"workload": {"manifests": []}}), "invalid-manifestwork"),
        (bent(spec={"workload": {"manifests": [nameless, 1]}}), "invalid-manifestwork"),
        (bent(spec={"workload": {"manifests": manifests}, "deleteOption": 1}), "invalid-manifestwork"),
    ):
        assert await front.refuse("POST", WORK, body, account=OPERATOR) == (400, code)
    large = [{**manifests[0], "data": {"a": "x" * 600_000}}]
    refused = await front.refuse("POST", WORK, bent(spec={"workload": {"manifests": large}}), account=OPERATOR)
    assert refused == (400, "invalid-manifestwork")
    assert await front.refuse("POST", WORK, PAYLOAD | {"cluster_id": "nobody"}, account=OPERATOR) == (404, "maestro-7")
    assert (await front.accept("GET", BUNDLES, account=OPERATOR))["total"] == 0
    assert await front.refuse("GET", f"{BUNDLES}?search=!!", account=OPERATOR) == (400, "maestro-21")
    gone = f"{BUNDLES}/00000000-0000-4000-8000-000000000000"
    assert (await front.refuse("GET", gone, account=OPERATOR))[0] == 404
    assert (await front.refuse("DELETE", gone, account=OPERATOR))[0] == 404
    assert await front.refuse("POST", WORK, PAYLOAD, account=ADA) == (403, "not-privileged")


async def test_a_bundle_that_carries_a_cluster_is_not_deleted_by_hand(front_of_maestro: Front) -> None:
    """It would be made again at once, with an empty control plane."""
    front = front_of_maestro
    assert (await register(front, FULL))[0] == 201
    labels = {"regional.io/resource-id": "0001", "regional.io/kind": "Cluster"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-0001"}}
    bundle = await front.maestro.create_bundle(
        "mc01", [namespace], name="cluster-0001", source="clm", metadata={"name": "cluster-0001", "labels": labels}
    )
    status, answer = await front.call("DELETE", f"/api/v0/resource_bundles/{bundle['id']}", account=OPERATOR)
    assert (status, answer["code"]) == (409, "in-use")
    assert "Cluster 0001" in answer["reason"]
    assert not (await front.maestro.get_bundle(bundle["id"])).get("deleted_at")


async def test_what_a_control_plane_cannot_change_is_refused_before_it_is_stored(front_of_maestro: Front) -> None:
    made = await front_of_maestro.accept("POST", "/api/v0/clusters", {"name": "demo"})
    change = {"spec": {"controllerAvailabilityPolicy": "HighlyAvailable"}}
    status, answer = await front_of_maestro.call("PATCH", f"/api/v0/clusters/{made['id']}", change)
    assert status == 400 and "controllerAvailabilityPolicy" in answer["errors"][0]["field"]

"""A tenant sees and changes nothing of another's, by no route, and cannot even tell that it exists."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from regional.clm.client import ClmClient, ClmError
from tests.clm.conftest import Region, add_management_cluster, report
from tests.clm.test_bad_input_is_told import MISSING, Answer, send

OURS, THEIRS = {"X-Tenant": "111122223333"}, {"X-Tenant": "444455556666"}

ROUTES = [
    ("GET", "", None),
    ("HEAD", "", None),
    ("PATCH", "", {"spec": {"tags": {"a": "b"}}}),
    ("DELETE", "", None),
    ("GET", "/statuses", None),
    ("GET", "/statuses/hypershift", None),
    ("GET", "/history", None),
]


@pytest.fixture
async def theirs(clm: ClmClient) -> dict[str, Any]:
    """A cluster with a pool, both reported on."""
    await add_management_cluster(clm)
    tenant = clm.for_tenant(THEIRS["X-Tenant"])
    cluster = await tenant.create("Cluster", "secret", {}, labels={"env": "prod"})
    pool = await tenant.create("NodePool", "workers", {}, parent_id=cluster["id"])
    for kind, made in (("Cluster", cluster), ("NodePool", pool)):
        await clm.put_status(kind, made["id"], report(1, data={"kubeconfig": "x"}))
    return {"cluster": cluster["id"], "pool": pool["id"]}


def paths_of(made: dict[str, Any]) -> list[str]:
    cluster, pool = made["cluster"], made["pool"]
    plain = [f"/clusters/{cluster}", f"/nodepools/{pool}", f"/clusters/{cluster}/nodepools/{pool}"]
    return [*plain, f"/resources/{cluster}", f"/resources/{pool}"]


def likeness(answer: Answer, *names: str) -> Any:
    """An answer without what must differ."""
    body = answer.body
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if key not in ("timestamp", "trace_id", "instance")}
        body = {key: _without(str(value), names) for key, value in body.items()}
    return answer.status, body


def _without(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        text = text.replace(name, "-")
    return text


async def test_anothers_resource_looks_like_none(region: Region, theirs: dict[str, Any]) -> None:
    nothing = {"cluster": MISSING, "pool": MISSING}
    names = (MISSING, theirs["cluster"], theirs["pool"])
    pairs = zip(paths_of(theirs), paths_of(nothing), strict=True)
    for (path, missing), (method, below, body) in itertools.product(pairs, ROUTES):
        found = await send(region, method, path + below, body, OURS)
        assert found.status == 404, path
        assert likeness(found, *names) == likeness(await send(region, method, missing + below, body, OURS), *names)
        # The same route does work for the owner: it is the tenant that makes the difference.
        if method in ("GET", "HEAD"):
            assert (await send(region, method, path + below, body, THEIRS)).status == 200


async def test_lists_and_searches_have_only_ones_own(region: Region, clm: ClmClient, theirs: dict[str, Any]) -> None:
    mine = await clm.for_tenant(OURS["X-Tenant"]).create("Cluster", "secret", {})  # names are per tenant
    for query in (
        "/clusters",
        "/resources",
        "/clusters?search=name='secret'",
        "/clusters?search=name='secret' or tenancy='444455556666'",
        "/clusters?search=tenancy!='x'",
        "/clusters?order=name&size=1",
    ):
        answer = await send(region, "GET", query, None, OURS)
        assert [found["id"] for found in answer.body["items"]] == [mine["id"]], query
        assert answer.body["total"] == 1
    for query in ("/nodepools", "/clusters?search=labels.env='prod'", "/resources?kind=ManagementCluster"):
        assert (await send(region, "GET", query, None, OURS)).body["total"] == 0
    behind = await send(region, "GET", f"/clusters?after={theirs['cluster']}", None, OURS)
    assert [found["id"] for found in behind.body["items"]] in ([], [mine["id"]])
    assert (await send(region, "GET", f"/clusters/{theirs['cluster']}/nodepools", None, OURS)).status == 404


async def test_no_pool_can_be_put_under_anothers_cluster(region: Region, theirs: dict[str, Any]) -> None:
    body = {"kind": "NodePool", "name": "mine", "spec": {}}
    answer = await send(region, "POST", f"/clusters/{theirs['cluster']}/nodepools", body, OURS)
    assert answer.status == 404


async def test_a_pool_is_not_found_under_a_cluster_that_is_not_its_own(
    region: Region, clm: ClmClient, theirs: dict[str, Any]
) -> None:
    other = await clm.for_tenant(THEIRS["X-Tenant"]).create("Cluster", "other", {})
    for below in ("", "/statuses", "/history"):
        path = f"/clusters/{other['id']}/nodepools/{theirs['pool']}{below}"
        assert (await send(region, "GET", path, None, THEIRS)).status == 404


async def test_what_is_gone_is_remembered_only_for_its_owner(
    region: Region, clm: ClmClient, theirs: dict[str, Any]
) -> None:
    await clm.delete("Cluster", theirs["cluster"])
    await clm.force_delete("Cluster", theirs["cluster"], "test")
    path = f"/clusters/{theirs['cluster']}/history"
    assert (await send(region, "GET", path, None, OURS)).status == 404
    assert (await send(region, "GET", path, None, THEIRS)).body["items"][0]["change"] == "removed"


async def test_the_regions_own_kinds_and_writes_are_not_for_tenants(
    region: Region, clm: ClmClient, theirs: dict[str, Any]
) -> None:
    for method, path, body in (
        ("GET", "/managementclusters", None),
        ("GET", "/accounts", None),
        ("POST", "/accounts", {"kind": "Account", "name": "x", "spec": {}}),
        ("POST", "/resources", {"kind": "ManagementCluster", "name": "x", "spec": {}}),
        ("PUT", f"/clusters/{theirs['cluster']}/statuses", report(1)),
        ("POST", f"/clusters/{theirs['cluster']}/force-delete", {"reason": "x"}),
    ):
        answer = await send(region, method, path, body, THEIRS)
        assert (answer.status, answer.body["code"]) == (403, "HYPERFLEET-AUZ-001"), path


async def test_secrets_of_a_report_are_masked_in_lists(clm: ClmClient, theirs: dict[str, Any]) -> None:
    tenant = clm.for_tenant(THEIRS["X-Tenant"])
    (listed,) = await tenant.statuses("Cluster", theirs["cluster"])
    assert listed["data"] == {"kubeconfig": "***REDACTED***"}
    assert "kubeconfig" not in str(await tenant.history("Cluster", theirs["cluster"]))
    with pytest.raises(ClmError, match="not found"):
        await clm.for_tenant(OURS["X-Tenant"]).statuses("Cluster", theirs["cluster"])

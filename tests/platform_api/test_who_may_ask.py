"""Identity comes from the gateway alone; accounts are let in by those who run the region."""

from __future__ import annotations

from .conftest import ADA, BOB, OPERATOR, SECRET, STRANGER, Front

CLUSTERS = "/api/v0/clusters"


async def test_identity_without_the_gateway_s_secret_is_nothing(front: Front) -> None:
    for secret in ("", "wrong", SECRET[:-1], SECRET.upper()):
        refused = await front.refuse("GET", CLUSTERS, headers={"X-Gateway-Secret": secret}, account=OPERATOR)
        assert refused == (403, "not-from-gateway")


async def test_an_account_is_twelve_digits(front: Front) -> None:
    for account in ("", "22222222222", "2" * 13, "22222222222x", "²" * 12):
        headers = {"X-Amz-Account-Id": account.encode().decode("latin-1")}
        assert await front.refuse("GET", CLUSTERS, headers=headers) == (403, "missing-account-id")


async def test_a_caller_has_an_arn(front: Front) -> None:
    assert await front.refuse("GET", CLUSTERS, headers={"X-Amz-Caller-Arn": ""}) == (403, "missing-caller-arn")


async def test_an_account_that_is_not_provisioned_is_refused_until_it_is(front: Front) -> None:
    assert await front.refuse("GET", CLUSTERS, account=STRANGER) == (403, "account-not-allowed")
    made = await front.accept("POST", "/api/v0/accounts", {"accountId": STRANGER}, account=OPERATOR)
    assert (made["accountId"], made["privileged"]) == (STRANGER, False)
    assert (await front.accept("GET", CLUSTERS, account=STRANGER))["total"] == 0
    again = await front.refuse("POST", "/api/v0/accounts", {"accountId": STRANGER}, account=OPERATOR)
    assert again == (409, "already-exists")


PRIVILEGED = (
    ("GET", "/accounts"),
    ("POST", "/accounts"),
    ("GET", f"/accounts/{ADA}"),
    ("DELETE", f"/accounts/{BOB}"),
    ("GET", "/management_clusters"),
    ("POST", "/management_clusters"),
    ("POST", "/work"),
    ("GET", "/resource_bundles"),
    ("DELETE", "/resource_bundles/00000000-0000-0000-0000-000000000000"),
)


async def test_running_the_region_is_for_privileged_accounts(front: Front) -> None:
    for method, path in PRIVILEGED:
        assert await front.refuse(method, f"/api/v0{path}", {}) == (403, "not-privileged"), path


async def test_an_account_may_be_made_privileged(front: Front) -> None:
    await front.accept("POST", "/api/v0/accounts", {"accountId": STRANGER, "privileged": True}, account=OPERATOR)
    listed = await front.accept("GET", "/api/v0/accounts", account=STRANGER)
    assert {item["accountId"]: item["privileged"] for item in listed["items"]} == {
        ADA: False,
        BOB: False,
        STRANGER: True,
    }
    assert (await front.accept("GET", f"/api/v0/accounts/{ADA}", account=STRANGER))["accountId"] == ADA


async def test_an_account_goes_when_it_has_no_clusters_left(front: Front) -> None:
    cluster = await front.accept("POST", CLUSTERS, {"name": "demo"})
    path = f"/api/v0/accounts/{ADA}"
    assert await front.refuse("DELETE", path, account=OPERATOR) == (409, "account-in-use")
    await front.clm.delete("Cluster", cluster["id"])
    await front.clm.force_delete("Cluster", cluster["id"], "for a test")
    await front.accept("DELETE", path, account=OPERATOR)
    assert await front.refuse("GET", CLUSTERS) == (403, "account-not-allowed")
    assert await front.refuse("GET", path, account=OPERATOR) == (404, "not-found")


async def test_live_and_ready_need_no_identity(front: Front) -> None:
    for path in ("/api/v0/live", "/api/v0/ready", "/v0/live", "/v0/ready"):
        assert await front.call("GET", path, headers={"X-Gateway-Secret": ""}) == (200, {"status": "ok"})


async def test_info_says_who_you_are(front: Front) -> None:
    status, answer = await front.call("GET", "/api/v0/info", account=STRANGER)
    assert (status, answer["arn"]) == (200, f"arn:aws:iam::{STRANGER}:user/someone")

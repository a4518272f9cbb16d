"""The milestone's commands against the real edge in front of the real API, CLM and Maestro, signed with keys of IAM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regional.clm.client import ClmClient
from regional.cloud.aws import Credentials
from regional.core import pki
from regional.core.paths import checkout
from regional.core.role import Dependency
from regional.gateway.client import ApiClient, ApiError
from regional.platform_api.accounts import Accounts
from regional.platform_api.app import Api
from regional.platform_api.identity import GatewaySecret
from regional.platform_api.operations import Region as ApiRegion
from tests.clm.conftest import Region
from tests.cloud.conftest import Host
from tests.gateway.conftest import REGION, Door, Identities, authority, aws_host, running_edge
from tests.gateway.signing import by_hand
from tests.maestro.harness import Maestro

from .conftest import OPERATOR

__all__ = ["authority", "aws_host"]

PAYLOAD = (checkout() / "examples" / "work" / "payload.json").read_bytes()
REGISTER = b'{"name":"management-01","labels":{"cluster_type":"management","cluster_id":"management-01"}}'


class Desk:
    """A customer at a shell that `regionctl env` has set up."""

    def __init__(self, door: Door, credentials: Credentials) -> None:
        self.door, self.credentials = door, credentials

    async def awscurl(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Signed as awscurl signs: body hash in a header, and no Content-Type."""
        headers = by_hand(self.credentials, method, self.door.host, path, body=body)
        status, answer, _ = await self.door.send(method, self.door.url + path, headers, body)
        return status, answer


@pytest.fixture
def identities(aws_host: Host) -> Iterator[Identities]:
    made = Identities(aws_host)
    yield made
    made.inside.close()


@pytest.fixture
async def desk(
    region: Region, maestro: Maestro, aws_host: Host, authority: pki.KeyPair, tmp_path: Path, identities: Identities
) -> AsyncIterator[Desk]:
    async with region.api() as url, ClmClient(url, timeout=60) as clm, maestro.server() as maestro_client:
        reachable = Dependency("clm")
        reachable.up(url)
        parts = ApiRegion(clm, maestro_client, Accounts(clm, frozenset({OPERATOR})), reachable.check)
        # The edge writes the secret that it shares with the API to this file.
        app = Api(parts, GatewaySecret(tmp_path / "secret")).application()
        spec = {"accountId": identities.account, "privileged": True}
        await clm.create("Account", identities.account, spec)
        async with running_edge(aws_host.url, tmp_path, authority, app) as door:
            yield Desk(door, identities.user)


async def test_register_send_work_and_look_at_the_bundles(desk: Desk) -> None:
    assert await desk.awscurl("GET", "/prod/api/v0/live") == (200, {"status": "ok"})
    status, made = await desk.awscurl("POST", "/prod/api/v0/management_clusters", REGISTER)
    assert (status, made["kind"], made["name"]) == (201, "Consumer", "management-01")
    status, again = await desk.awscurl("POST", "/prod/api/v0/management_clusters", REGISTER)
    assert (status, again["kind"], again["code"]) == (409, "Error", "already-exists")
    status, unknown = await desk.awscurl("POST", "/prod/api/v0/work", PAYLOAD)
    assert (status, unknown["kind"]) == (404, "Error")  # there is no mc01 yet
    facts = b'{"id":"mc01","region":"us-west-2","accountId":"555555555555"}'
    assert (await desk.awscurl("POST", "/prod/api/v0/management_clusters", facts))[0] == 201
    status, work = await desk.awscurl("POST", "/prod/api/v0/work", PAYLOAD)
    assert (status, work["kind"], work["cluster_id"]) == (201, "ManifestWork", "mc01")
    status, listed = await desk.awscurl("GET", "/prod/api/v0/resource_bundles")
    assert (status, listed["kind"], [item["id"] for item in listed["items"]]) == (
        200,
        "ResourceBundleList",
        [work["id"]],
    )
    assert "status" not in listed["items"][0]  # its consumer has no agent
    assert listed["items"][0]["delivery"]["reason"] == "consumer mc01 never connected"


async def test_the_client_creates_and_finds_a_cluster(desk: Desk) -> None:
    def work() -> None:
        client = ApiClient(desk.door.host, REGION, desk.credentials, ca_file=str(desk.door.ca_file))
        try:
            made = client.call("POST", "/api/v0/clusters", {"name": "demo"}, request_id="trace-me").json()
            told = client.get(f"/api/v0/clusters/{made['id']}/timeline")
            assert told["items"][0]["request_id"] == "trace-me"
            assert client.get("/api/v0/clusters", {"name": "demo"})["items"][0]["id"] == made["id"]
            with pytest.raises(ApiError) as refused:
                client.call("POST", "/api/v0/clusters", {"name": "No", "spec": {"x": 1}})
            assert {fault["field"] for fault in refused.value.errors} == {"name", "spec.x"}
        finally:
            client.close()

    await asyncio.to_thread(work)


async def test_an_account_that_nobody_provisioned_gets_no_further_than_its_own_name(desk: Desk, aws_host: Host) -> None:
    other = Identities(aws_host)
    try:
        stranger = Desk(desk.door, other.user)
        assert (await stranger.awscurl("GET", "/prod/api/v0/info"))[1]["account_id"] == other.account
        status, refused = await stranger.awscurl("GET", "/prod/api/v0/clusters")
        assert (status, refused["code"]) == (403, "account-not-allowed")
        plain = json.dumps({"accountId": other.account}).encode()
        assert (await desk.awscurl("POST", "/prod/api/v0/accounts", plain))[0] == 201
        deadline = asyncio.get_running_loop().time() + 60
        while (await stranger.awscurl("GET", "/prod/api/v0/clusters"))[0] != 200:
            assert asyncio.get_running_loop().time() < deadline
        for path in ("resource_bundles", "management_clusters", "accounts"):
            status, refused = await stranger.awscurl("GET", f"/prod/api/v0/{path}")
            assert (status, refused["code"]) == (403, "not-privileged")
    finally:
        other.inside.close()


async def test_an_identity_that_a_client_writes_itself_is_worth_nothing(desk: Desk) -> None:
    headers = by_hand(desk.credentials, "GET", desk.door.host, "/prod/api/v0/info")
    forged = {"X-Amz-Account-Id": OPERATOR, "X-Amz-Caller-Arn": "arn:forged", "X-Gateway-Secret": "guess"}
    _, said, _ = await desk.door.send("GET", f"{desk.door.url}/prod/api/v0/info", headers | forged)
    assert said["account_id"] != OPERATOR
    async with aiohttp.ClientSession() as past_the_edge:
        url = f"http://{desk.door.address}:8000/api/v0/clusters"
        async with past_the_edge.get(url, headers=forged) as answer:
            assert (answer.status, (await answer.json())["code"]) == (403, "not-from-gateway")

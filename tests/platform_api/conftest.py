"""The API in front of the real CLM on a real PostgreSQL, and of the real Maestro where a test needs it."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from regional.clm.client import ClmClient
from regional.core.role import Dependency
from regional.core.web import serving
from regional.maestro.client import MaestroClient
from regional.platform_api.accounts import Accounts
from regional.platform_api.app import Api
from regional.platform_api.identity import GatewaySecret
from regional.platform_api.operations import Region as ApiRegion
from tests.clm.conftest import Region, add_management_cluster, free_address, postgres_server, region
from tests.maestro.conftest import broker, cluster, database, maestro, shared_database, shared_postgres
from tests.maestro.harness import Maestro

__all__ = [
    "broker",
    "cluster",
    "database",
    "maestro",
    "postgres_server",
    "region",
    "shared_database",
    "shared_postgres",
]

SECRET = "s3cret between the two"
OPERATOR = "111111111111"  # the region's own account
ADA, BOB, STRANGER = "222222222222", "333333333333", "444444444444"
NOWHERE = "http://127.0.0.1:1"


class Front:
    """The API as the gateway calls it, for one account after another."""

    def __init__(self, url: str, clm: ClmClient, maestro: MaestroClient, session: aiohttp.ClientSession) -> None:
        self.url, self.clm, self.maestro, self._session = url, clm, maestro, session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        account: str = ADA,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        sent = {
            "X-Gateway-Secret": SECRET,
            "X-Amz-Account-Id": account,
            "X-Amz-Caller-Arn": f"arn:aws:iam::{account}:user/someone",
            "X-Request-Id": "request-1",
        }
        given = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        content = io.BytesIO(given) if given else None
        url = f"{self.url}{path}"
        async with self._session.request(method, url, data=content, headers=sent | (headers or {})) as answer:
            text = await answer.read()
            if answer.content_type == "application/json":
                return answer.status, json.loads(text)
            return answer.status, text.decode()

    async def accept(self, method: str, path: str, body: Any = None, *, account: str = ADA) -> Any:
        status, answer = await self.call(method, path, body, account=account)
        assert 200 <= status < 300, (status, answer)
        return answer

    async def refuse(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        status, answer = await self.call(method, path, body, **more)
        assert answer["kind"] == "Error", answer
        assert answer["reason"]
        return status, answer["code"]


@contextlib.asynccontextmanager
async def running_front(region: Region, maestro_client: MaestroClient, directory: Path) -> AsyncIterator[Front]:
    secret = directory / "gateway.secret"
    secret.write_text(SECRET)
    address = free_address(8000)
    silent = ("Content-Type",)
    async with (
        region.api() as url,
        ClmClient(url, timeout=60) as clm,
        aiohttp.ClientSession(skip_auto_headers=silent) as session,
    ):
        reachable = Dependency("clm")
        reachable.up(url)
        parts = ApiRegion(clm, maestro_client, Accounts(clm, frozenset({OPERATOR})), reachable.check)
        async with serving(Api(parts, GatewaySecret(secret)).application(), address, 8000):
            front = Front(f"http://{address}:8000", clm, maestro_client, session)
            for account in (ADA, BOB):
                await front.accept("POST", "/api/v0/accounts", {"accountId": account}, account=OPERATOR)
            yield front


@pytest.fixture
async def front(region: Region, tmp_path: Path) -> AsyncIterator[Front]:
    """Without Maestro: customers' own requests do not need it. One management cluster has room."""
    async with MaestroClient(NOWHERE) as nobody, running_front(region, nobody, tmp_path) as made:
        await add_management_cluster(made.clm)
        yield made


@pytest.fixture
async def front_of_maestro(region: Region, maestro: Maestro, tmp_path: Path) -> AsyncIterator[Front]:
    async with maestro.server() as client, running_front(region, client, tmp_path) as made:
        yield made

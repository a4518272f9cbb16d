"""Before a former certificate is withdrawn, the region has seen its agent with the newest, or says what it saw."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regional.cloud.aws import Credentials
from regional.core.problems import UserError
from regional.gateway.client import ApiClient
from regional.local.agent_certificate import digest, seen, wait_for
from tests.cli.conftest import Place
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, eventually


async def test_an_agent_is_seen_with_the_certificate_that_it_has(
    place_with_maestro: Place, maestro: Maestro, cluster: Cluster, tmp_path: Path
) -> None:
    given = place_with_maestro.operator.environment
    key = Credentials(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"])
    url = f"https://{given['API_GATEWAY_URL']}/prod"
    api = ApiClient(url, given["AWS_REGION"], key, ca_file=given["AWS_CA_BUNDLE"])

    async def missing(certificate: str) -> str:
        return await asyncio.to_thread(seen, api, "mc01", certificate)

    try:
        assert "404" in await missing("0" * 64)
        await place_with_maestro.operator.succeed("management-cluster", "register", "mc01")
        assert await missing("0" * 64) == "the agent was never seen"
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            (mount,) = tmp_path.glob("mc01-*")
            own = digest((mount / "tls.crt").read_text())

            async def came_in() -> bool:
                return await missing(own) == ""

            await eventually(came_in, 60)
            assert await missing("0" * 64) == "the agent still uses a former one"
    finally:
        api.close()


def test_who_waits_in_vain_is_told_what_is_missing_and_that_nothing_is_lost() -> None:
    with pytest.raises(
        UserError, match=r"mc01 was not seen with its new certificate .*: the agent was never seen"
    ) as late:
        wait_for(lambda: "the agent was never seen", "mc01", 0.0)
    assert "stays good" in late.value.hint

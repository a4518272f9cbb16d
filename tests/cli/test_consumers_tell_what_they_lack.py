"""Consumers by command: who is connected, what has not arrived and why; a bundle's history, and sending it again."""

from __future__ import annotations

from typing import Any

import pytest

from regional.core.paths import checkout
from tests.cli.conftest import Place
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro

PAYLOAD = str(checkout() / "examples" / "work" / "payload.json")
NAME = "maestro-payload-test"


@pytest.fixture
async def operator(place_with_maestro: Place) -> Any:
    for name in ("mc01", "management-01"):
        await place_with_maestro.operator.succeed("management-cluster", "register", name)
    return place_with_maestro.operator


async def test_who_is_away_and_what_waits_for_it_is_told(operator: Any, maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01", "--wait")
        await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "management-01")
        found = (await operator.succeed("consumer", "list", "-o", "json")).json()
        consumers = {item["name"]: item for item in found["items"]}
        assert consumers["mc01"]["connected"] is True
        assert consumers["management-01"]["connected"] is False
        assert consumers["management-01"]["pending"] == 1
        lines = {line.split()[0]: line for line in (await operator.succeed("consumer", "list")).out.splitlines()}
        assert lines["management-01"].split()[1:4] == ["no", "never", "1"]
        shown = (await operator.succeed("consumer", "describe", "management-01")).out
        assert "not applied: 1" in shown
        assert "never connected" in shown
        late = (await operator.succeed("bundle", "list", "--not-applied", "-o", "json")).json()
        assert [item["consumer_name"] for item in late["items"]] == ["management-01"]
        none = await operator.succeed("bundle", "list", "--not-applied", "--to", "mc01")
        assert "no resource bundles" in none.err


async def test_a_bundle_has_a_history_and_is_sent_again(operator: Any, maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01", "--wait")
        sent = await operator.succeed("bundle", "redeliver", NAME, "--wait")
        assert f"bundle {NAME} is applied" in sent.out
        found = (await operator.succeed("bundle", "get", NAME, "-o", "json")).json()
        assert NAME in (await operator.succeed("bundle", "get", NAME)).out
        changes = (await operator.succeed("bundle", "history", NAME, "-o", "json")).json()["items"]
        assert {"accepted", "redelivered", "status"} <= {entry["change"] for entry in changes}
        assert "accepted" in (await operator.succeed("bundle", "history", NAME)).out
        await operator.succeed("bundle", "delete", NAME, "--yes", "--wait")
        ended = (await operator.succeed("bundle", "history", found["id"])).out
        assert "deleted" in ended
    missing = await operator.run("bundle", "redeliver", found["id"])
    assert missing.code == 1
    assert "there is no resource bundle" in missing.err


async def test_who_may_not_run_the_region_is_refused(place_with_maestro: Place) -> None:
    for command in (("maestro", "rebuild"), ("maestro", "unknown"), ("consumer", "list"), ("bundle", "list")):
        refused = await place_with_maestro.customer.run(*command)
        assert refused.code == 1, refused

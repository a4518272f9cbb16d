"""The slides' flow by command: register, send work, see what came back, and why nothing did."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regional.core.paths import checkout
from regional.maestro.protocol.bundles import status_event
from tests.cli.conftest import Place
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Maestro, eventually

PAYLOAD = str(checkout() / "examples" / "work" / "payload.json")


@pytest.fixture
async def operator(place_with_maestro: Place) -> Any:
    for name in ("mc01", "management-01"):
        await place_with_maestro.operator.succeed(
            "management-cluster", "register", name, "--label", "cluster_type=management"
        )
    return place_with_maestro.operator


async def test_work_is_applied_and_what_came_back_is_shown(operator: Any, maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
        sent = await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01", "--wait")
        assert "✓ applied" in sent.err
        assert "maestro-payload-test is applied on mc01" in sent.out
        none = await operator.succeed("bundle", "list", "--not-applied", "--to", "mc01")
        assert "no resource bundles for mc01 that are not applied" in none.err
        text = (await operator.succeed("bundle", "describe", "maestro-payload-test")).out
        assert "ConfigMap default/maestro-payload-test: Applied=True" in text
        assert "status = " in text  # the feedback
        found = (await operator.succeed("bundle", "describe", "maestro-payload-test", "-o", "json")).json()
        assert found["status"]["resourceStatus"][0]["resourceMeta"]["kind"] == "ConfigMap"
        listed = (await operator.succeed("management-cluster", "list")).out
        assert "never" in next(line for line in listed.splitlines() if line.startswith("management-01"))
        assert "ago" in next(line for line in listed.splitlines() if line.startswith("mc01"))
        gone = await operator.succeed("bundle", "delete", "maestro-payload-test", "--yes", "--wait")
        assert "is deleted" in gone.out
        assert await cluster.client.get_or_none("v1", "ConfigMap", "maestro-payload-test", "default") is None


async def test_work_for_a_consumer_without_an_agent_says_why_it_is_not_applied(operator: Any) -> None:
    await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "management-01")
    text = (await operator.succeed("bundle", "describe", "maestro-payload-test")).out
    assert "no status has come back" in text
    assert "consumer management-01 never connected" in text
    listed = (await operator.succeed("bundle", "list")).out.splitlines()
    assert listed[1].split()[:5] == ["maestro-payload-test", "management-01", "1", "-", "-"]
    late = await operator.run("work", "create", "-f", PAYLOAD, "--to", "management-01", "--wait", "--timeout", "1s")
    assert late.code == 4
    assert "regionctl bundle describe" in late.err
    shown = (await operator.succeed("management-cluster", "describe", "management-01")).out
    assert "not applied: 1" in shown


async def test_names_that_mean_two_bundles_are_told_apart_by_their_management_cluster(operator: Any) -> None:
    for consumer in ("mc01", "management-01"):
        await operator.succeed("work", "create", "-f", PAYLOAD, "--to", consumer)
    both = await operator.run("bundle", "describe", "maestro-payload-test")
    assert both.code == 1
    assert "2 bundles" in both.err
    one = (await operator.succeed("bundle", "describe", "maestro-payload-test", "--to", "mc01", "-o", "json")).json()
    assert one["consumer_name"] == "mc01"
    assert (await operator.succeed("bundle", "describe", one["id"], "-o", "json")).json()["id"] == one["id"]


async def test_refusals_name_what_is_wrong(operator: Any) -> None:
    again = await operator.run("management-cluster", "register", "management-01")
    assert again.code == 1
    assert "already exists" in again.err
    unknown = await operator.run("work", "create", "-f", PAYLOAD, "--to", "nobody")
    assert unknown.code == 1
    assert "nobody" in unknown.err
    empty = await operator.run("work", "create", "-f", "-", "--to", "mc01", stdin=json.dumps({"kind": "ManifestWork"}))
    assert empty.code == 1
    assert "work.open-cluster-management.io/v1" in empty.err
    for name in ("absent", "o'clock", "00000000-0000-7000-8000-000000000000"):
        missing = await operator.run("bundle", "describe", name)
        assert missing.code == 1
        assert "there is no resource bundle" in missing.err
    nobody = await operator.run("management-cluster", "describe", "a/../b")
    assert nobody.code == 1


async def test_the_words_of_agents_stay_on_their_line_and_command_no_terminal(operator: Any, maestro: Maestro) -> None:
    await operator.succeed("work", "create", "-f", PAYLOAD, "--to", "mc01")
    wild = "first\nsecond \x1b[2J\x9b31m\x07 end"
    failed = {"type": "Applied", "status": "False", "reason": "R", "message": wild}
    meta = {"kind": "ConfigMap", "namespace": "default", "name": "maestro-payload-test"}
    value = {"name": "a\x1bb", "fieldValue": {"type": "String", "string": wild}}
    resource = {"resourceMeta": meta, "statusFeedback": {"values": [value]}, "conditions": [failed]}
    async with maestro.wire("mc01") as agent:
        spec = await agent.next(subresource="spec")
        await agent.send(
            status_event(
                source="mc01-agent",
                consumer="mc01",
                original_source="maestro",
                resource_id=spec.resource_id,
                version=spec.version,
                sequence=1,
                hash="h",
                conditions=[failed],
                resource_status=[resource],
                metadata="{}",
            )
        )

        async def told() -> bool:
            return "second" in (await operator.succeed("bundle", "list")).out

        await eventually(told)
    listed = (await operator.succeed("bundle", "list")).out
    assert len(listed.splitlines()) == 2
    described = (await operator.succeed("bundle", "describe", "maestro-payload-test")).out
    history = (await operator.succeed("bundle", "history", "maestro-payload-test")).out
    consumer = (await operator.succeed("consumer", "describe", "mc01")).out
    for shown in (listed, described, history, consumer):
        assert "second" in shown and not set(shown) & {"\x1b", "\x9b", "\x07"}

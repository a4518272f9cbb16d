"""Condition rules: a bundle's own words for the state of its objects, by CEL or by what kinds are known for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regional.maestro.agent.main import Agent
from regional.maestro.agent.rules import MOST_RULES, aggregated, conditions_of
from regional.maestro.client import MaestroError
from regional.maestro.protocol.bundles import ConditionRule, spec_event
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, condition, config_map, eventually

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Running"}}


def cel(*expressions: str, name: str = "Done", **more: str) -> ConditionRule:
    return ConditionRule(condition=name, type="CEL", cel_expressions=list(expressions), **more)


def verdict(live: Document, rule: ConditionRule) -> tuple[str, str, str]:
    (found,) = conditions_of(live, [rule], 3)
    assert (found["type"], found["observedGeneration"]) == (rule.condition, 3)
    return found["status"], found["reason"].removeprefix("ConditionRule"), found["message"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (cel("object.status.phase == 'Running'"), ("True", "Evaluated", "Manifest is Done")),
        (cel("true", "object.status.phase == 'Failed'"), ("False", "Evaluated", "Manifest is not Done")),
        (cel("true", message="fine"), ("True", "Evaluated", "fine")),
        (
            cel("true", message_expression="'phase ' + object.status.phase + (result ? '!' : '?')"),
            ("True", "Evaluated", "phase Running!"),
        ),
        (cel("1 + 1"), ("False", "ExpressionError", "expected bool result, got int")),
        (cel("true", message_expression="1"), ("True", "Evaluated", "expected message expression to have a string")),
        (cel("object.nothing.here"), ("False", "ExpressionError", "nothing")),
        (cel("object.("), ("False", "ExpressionError", "")),
        (ConditionRule(condition="Done", type="Tarot"), ("Unknown", "Invalid", "unrecognized condition rule type")),
    ],
)
def test_a_rule_says_what_holds_or_why_it_cannot_tell(rule: ConditionRule, said: tuple[str, str, str]) -> None:
    status, reason, message = verdict(POD, rule)
    assert (status, reason) == said[:2] and said[2] in message


@pytest.mark.parametrize(
    ("live", "status"),
    [
        (JOB, "False"),
        (JOB | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "True"),
        (JOB | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "True"),
        (JOB | {"status": {"conditions": [{"type": "Failed", "status": "False"}]}}, "False"),
        (POD, "False"),
        (POD | {"status": {"phase": "Succeeded"}}, "True"),
        (POD | {"status": {"phase": "Failed"}}, "True"),
    ],
)
def test_jobs_and_pods_are_known_to_come_to_an_end(live: Document, status: str) -> None:
    rule = ConditionRule(condition="Complete", type="WellKnownConditions")
    assert verdict(live, rule)[0] == status


def test_a_kind_that_is_known_for_nothing_has_no_such_condition() -> None:
    rule = ConditionRule(condition="Complete", type="WellKnownConditions")
    assert conditions_of(config_map("a"), [rule], 1) == []


STATES = st.lists(st.sampled_from(["True", "False", "Unknown"]), min_size=1, max_size=6)


@given(STATES, st.sampled_from(["Done", "Progressing"]))
def test_a_work_has_what_all_of_its_manifests_have(states: list[str], kind: str) -> None:
    made = [
        {"conditions": [{"type": kind, "status": status, "reason": "ConditionRuleEvaluated", "message": "one"}]}
        for status in states
    ]
    (found,) = aggregated([*made, {"conditions": [{"type": "Applied", "status": "False", "reason": "x"}]}], 2)
    worst = ["True", "Unknown", "False"] if kind == "Progressing" else ["False", "Unknown", "True"]
    assert found["status"] == next(status for status in worst if status in states)
    assert found["reason"] == "ConditionRulesAggregated"
    many = f"Aggregated from {len(states)} manifest conditions"
    assert found["message"] == ("one" if len(states) == 1 else many)


def test_a_bundle_cannot_make_its_status_grow_without_end() -> None:
    rules = [cel("true", name=f"C{number}", message="x" * 5000) for number in range(200)]
    found = conditions_of(POD, rules, 1)
    assert len(found) == MOST_RULES and all(len(one["message"]) <= 1024 for one in found)


def configured(resource: str, name: str, group: str = "", **more: Any) -> Document:
    return {
        "resourceIdentifier": {"group": group, "resource": resource, "name": name, "namespace": "default"},
        **more,
    }


async def test_conditions_follow_the_object(maestro: Maestro, cluster: Cluster) -> None:
    rules = [{"condition": "Big", "type": "CEL", "celExpressions": ["size(object.data) > 1"]}]
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        configs = [configured("configmaps", "a", conditionRules=rules, updateStrategy={"type": "ServerSideApply"})]
        made = await client.create_bundle("mc01", [config_map("a")], manifest_configs=configs)

        async def says(status: str) -> Document | None:
            bundle = await client.get_bundle(made["id"])
            return bundle if condition(bundle, "Big") == status else None

        bundle = await eventually(lambda: says("False"))
        assert condition(bundle, "Applied") == "True"
        await cluster.client.patch("v1", "ConfigMap", "a", "default", {"data": {"more": "than one"}})
        bundle = await eventually(lambda: says("True"))
        (resource,) = bundle["status"]["resourceStatus"]
        (found,) = [one for one in resource["conditions"] if one["type"] == "Big"]
        assert found["reason"] == "ConditionRuleEvaluated" and found["message"] == "Manifest is Big"


@pytest.mark.parametrize("name", ["Applied", "Deleting", "Deleted"])
async def test_a_rule_cannot_speak_for_server_or_agent(maestro: Maestro, cluster: Cluster, name: str) -> None:
    """`Deleted` of a rule would end a bundle whose objects are still there. Of another server's making, too."""
    rules = [{"condition": name, "type": "CEL", "celExpressions": ["true"]}]
    configs = [configured("configmaps", "a", conditionRules=rules)]
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        with pytest.raises(MaestroError, match=rf"manifest_configs\[0\]: a rule cannot be called '{name}'"):
            await client.create_bundle("mc01", [config_map("a")], manifest_configs=configs)
    data = {"manifests": [config_map("a")], "manifestConfigs": configs}
    spec = spec_event(
        "create_request",
        source="maestro",
        consumer="mc01",
        resource_id="b",
        version=1,
        data=msgspec.json.encode(data),
    )
    async with maestro.wire("maestro-server") as server, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await server.send(spec)
        answer = msgspec.json.decode((await server.next(subresource="status")).data)
        assert [found["type"] for found in answer["conditions"]] == ["Applied", "Available"]
        (resource,) = answer["resourceStatus"]
        kinds = [found["type"] for found in resource["conditions"]]
        assert kinds == ["Applied", "Available", "StatusFeedbackSynced"]


async def test_what_is_complete_is_not_applied_again(maestro: Maestro, cluster: Cluster) -> None:
    """Somebody who cleans up a finished thing does not make it run a second time."""
    rules = [{"condition": "Complete", "type": "CEL", "celExpressions": ["object.data.key == 'done'"]}]
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01") as agent:
        await client.create_consumer("mc01")
        configs = [configured("configmaps", "a", conditionRules=rules)]
        made = await client.create_bundle("mc01", [config_map("a"), config_map("b")], manifest_configs=configs)
        await applied(client, made["id"])
        await cluster.client.patch("v1", "ConfigMap", "a", "default", {"data": {"key": "done"}})

        async def complete() -> bool:
            return condition(await client.get_bundle(made["id"]), "Complete") == "True"

        await eventually(complete)
        for name in ("a", "b"):
            await cluster.client.delete("v1", "ConfigMap", name, "default")

        async def back() -> bool:
            return await cluster.client.get_or_none("v1", "ConfigMap", "b", "default") is not None

        await eventually(back)  # by a pass that has looked at both
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None
        assert condition(await client.get_bundle(made["id"]), "Complete") == "True"
        assert agent.works.get(made["id"]) is not None


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_is_complete_is_not_applied_again_because_something_else_has_changed(
    maestro: Maestro, cluster: Cluster, tmp_path: Path, restarts: bool
) -> None:
    """A Job that has run and was cleaned up must not run again with each new version of its bundle."""
    rules = [{"condition": "Complete", "type": "CEL", "celExpressions": ["object.data.key == 'done'"]}]
    configs, done = [configured("configmaps", "a", conditionRules=rules)], config_map("a", {"key": "done"})

    def agent() -> AbstractAsyncContextManager[Agent]:
        return maestro.agent(cluster.api.client("work-agent"), "mc01", works_dir=str(tmp_path / "works"))

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(maestro.server())
        running = await stack.enter_async_context(AsyncExitStack())
        await running.enter_async_context(agent())
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [done, config_map("b")], manifest_configs=configs)
        await applied(client, made["id"])

        async def complete() -> bool:
            return condition(await client.get_bundle(made["id"]), "Complete") == "True"

        await eventually(complete)
        if restarts:
            await running.aclose()
        await cluster.client.delete("v1", "ConfigMap", "a", "default")
        await client.patch_bundle(made["id"], manifests=[done, config_map("b", {"key": "2"})], request_id="another")
        if restarts:
            await stack.enter_async_context(agent())
        bundle = await applied(client, made["id"], version=2)
        assert condition(bundle, "Complete") == "True"
        assert (await cluster.client.get("v1", "ConfigMap", "b", "default"))["data"] == {"key": "2"}
        assert await cluster.client.get_or_none("v1", "ConfigMap", "a", "default") is None
        # It is itself another thing now.
        await client.patch_bundle(made["id"], manifests=[config_map("a", {"key": "new"}), config_map("b")])
        await applied(client, made["id"], version=3)
        assert (await cluster.client.get("v1", "ConfigMap", "a", "default"))["data"] == {"key": "new"}

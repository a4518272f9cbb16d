"""One request's id and spans through server and agent, and what must never be in a log."""

from __future__ import annotations

import base64
import logging

import pytest

from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_map, eventually, gone, values

SPANS = ["maestro.commit", "maestro.publish", "agent.apply", "maestro.status"]


def spans(caplog: pytest.LogCaptureFixture, request_id: str) -> list[tuple[str, str, float]]:
    return [
        (record.__dict__["span"], record.__dict__["resource"], record.__dict__["ms"])
        for record in caplog.records
        if record.__dict__.get("request_id") == request_id and "span" in record.__dict__
    ]


async def test_a_create_leaves_a_span_for_each_stretch(
    maestro: Maestro, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")], request_id="req-1")
        await applied(client, made["id"])
        changed = [config_map("a", {"key": "2"})]
        await client.patch_bundle(made["id"], manifests=changed, request_id="req-2")
        await applied(client, made["id"], version=2)
        await client.delete_bundle(made["id"], request_id="req-3")
        await gone(client, made["id"])

        async def all_told() -> bool:
            """The broker's answer to a message may come later than the agent's."""
            ended = {name for name, _, _ in spans(caplog, "req-3")}
            whole = [{name for name, _, _ in spans(caplog, known)} >= set(SPANS) for known in ("req-1", "req-2")]
            return all(whole) and ended >= {"maestro.commit", "maestro.publish", "maestro.status"}

        await eventually(all_told)
    for request_id in ("req-1", "req-2"):
        found = spans(caplog, request_id)
        assert {name for name, _, _ in found} == set(SPANS)
        assert {resource for _, resource, _ in found} == {made["id"]}
        assert all(ms >= 0 for _, _, ms in found)
    ended = [name for name, _, _ in spans(caplog, "req-3")]
    assert ended[0] == "maestro.commit" and ended.index("maestro.commit") < ended.index("maestro.status")


async def test_a_secret_is_fed_back_and_its_value_is_in_no_log(
    maestro: Maestro, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    word = "s3cret-kubeconfig-word"
    encoded = base64.b64encode(word.encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "admin-kubeconfig", "namespace": "default"},
        "data": {"kubeconfig": encoded},
    }
    bare = {"apiVersion": "v1", "kind": "Secret", "metadata": secret["metadata"]}
    identifier = {"group": "", "resource": "secrets", "name": "admin-kubeconfig", "namespace": "default"}
    paths = [{"name": "kubeconfig", "path": ".data.kubeconfig"}]
    config: Document = {
        "resourceIdentifier": identifier,
        "updateStrategy": {"type": "ReadOnly"},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": paths}],
    }
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [bare], manifest_configs=[config])
        await cluster.client.create(secret)

        async def fed_back() -> bool:
            return values(await client.get_bundle(made["id"])) == {"kubeconfig": encoded}

        await eventually(fed_back)
        # Applied, changed, refused and removed: other ways for a value to come near a log line.
        own = secret | {"metadata": {"name": "own", "namespace": "default"}}
        put = await client.create_bundle("mc01", [own])
        await applied(client, put["id"])
        broken = own | {"data": {"kubeconfig": word + "!"}}
        await client.patch_bundle(put["id"], manifests=[broken])

        async def refused() -> bool:
            return (await client.get_bundle(put["id"]))["delivery"]["state"] == "delivered"

        await eventually(refused)
        said = (await client.get_bundle(put["id"]))["delivery"]["reason"]
        assert word not in said
        await client.delete_bundle(put["id"])
        await gone(client, put["id"])
        await client.delete_bundle(made["id"])
        await gone(client, made["id"])
    for record in caplog.records:
        text = f"{record.getMessage()} {record.__dict__}"
        assert word not in text and encoded not in text, record.name

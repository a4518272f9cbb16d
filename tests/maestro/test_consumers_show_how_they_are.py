"""Whoever looks at a consumer sees whether its agent is there, who it is, what it has not confirmed, and whether the
agent can do anything at all."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from regional.core import paths
from regional.kube.client import Client
from regional.kube.client.local import LocalTransport
from regional.maestro.agent import session
from regional.maestro.client import MaestroClient
from regional.maestro.server.consumers import Consumers
from tests.kube_controllers.harness import Cluster, Faults
from tests.maestro.harness import Document, Maestro, applied, config_map, eventually


async def shown(client: MaestroClient, **wanted: Any) -> Document:
    """The consumer, once it shows this; None stands for a field that is not there."""

    async def check() -> Document:
        (consumer,) = await client.consumers()
        assert {name: consumer.get(name) for name in wanted} == wanted, consumer
        assert await client.get_consumer(consumer["id"]) == consumer
        return consumer

    found: Document = await eventually(check, seconds=60)
    return found


async def test_a_consumer_shows_its_agent_and_what_it_has_not_confirmed(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client:
        await client.create_consumer("mc01")
        await shown(client, connected=False, pending=0, last_seen_at=None, agent=None, oldest_pending_at=None)
        first = await client.create_bundle("mc01", [config_map("a")])
        await shown(client, connected=False, pending=1, oldest_pending_at=first["updated_at"])
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await applied(client, first["id"])
            consumer = await shown(client, connected=True, pending=0, agent="mc01-work-agent", oldest_pending_at=None)
            assert consumer["agent_version"].startswith("regional/")
            assert "last_seen_at" in consumer and "cluster_unreachable" not in consumer
        second = await client.create_bundle("mc01", [config_map("b")])
        await client.create_bundle("mc01", [config_map("c")])
        await shown(client, connected=False, pending=2, oldest_pending_at=second["updated_at"])
        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await shown(client, connected=True, pending=0)


async def test_an_agent_that_was_there_before_its_consumer_is_seen_at_once(
    maestro: Maestro, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A region's agents connect while their clusters are being registered. Excludes one that shows as never seen until
    it speaks by itself again."""
    monkeypatch.setattr(session, "RESYNC_SECONDS", 3600.0)
    caplog.set_level(logging.DEBUG, session.__name__)

    async def spoken() -> bool:
        return "resync asked for" in caplog.messages

    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await eventually(spoken)
        await asyncio.sleep(0.3)  # on its way through the broker
        await client.create_consumer("mc01")
        await shown(client, connected=True, agent="mc01-work-agent")


async def test_an_agent_says_that_it_cannot_reach_its_cluster_and_catches_up(
    maestro: Maestro, cluster: Cluster
) -> None:
    faults = Faults(LocalTransport(cluster.api.handle), 1, lost=1.0, cut=1.0)
    faults.on = False
    async with (
        maestro.server() as client,
        maestro.agent(Client(faults, user_agent="work-agent"), "mc01"),
    ):
        await client.create_consumer("mc01")
        made = await client.create_bundle("mc01", [config_map("a")])
        await applied(client, made["id"])
        await shown(client, connected=True, cluster_unreachable=None)
        faults.on = True

        async def said() -> bool:
            (consumer,) = await client.consumers()
            return bool(consumer.get("cluster_unreachable") and consumer["cluster_unreachable_since"])

        await eventually(said, seconds=60)
        assert (await Consumers(maestro.servers[-1].database).by_state()) == {"cluster unreachable": 1}
        later = await client.create_bundle("mc01", [config_map("b")])
        await client.patch_bundle(later["id"], manifests=[config_map("b", {"key": "newest"})])
        delivery = (await client.get_bundle(later["id"]))["delivery"]
        assert delivery["state"] != "applied" and delivery["reason"]
        faults.on = False
        await applied(client, later["id"], version=2, seconds=90)
        found = await cluster.client.get("v1", "ConfigMap", "b", "default")
        assert found["data"] == {"key": "newest"}
        await shown(client, connected=True, cluster_unreachable=None, cluster_unreachable_since=None, pending=0)


def test_alert_rules_ask_for_metrics_that_there_are() -> None:
    chart: Path = paths.checkout() / "argocd" / "config" / "regional-cluster" / "maestro-server"
    rules = (chart / "templates" / "prometheusrule.yaml").read_text()
    asked = {name.removesuffix("_total") for name in re.findall(r"\b(?:maestro_server|regional)_\w+", rules)}
    known = {metric.name for metric in prometheus_client.REGISTRY.collect()}
    assert asked and asked <= known
    states = set(re.findall(r'state="([^"]+)"', rules))
    assert states <= {"connected", "cluster unreachable", "silent", "never seen"}

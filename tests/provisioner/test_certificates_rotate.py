"""An agent gets a new certificate while bundles are sent: real broker, Maestro's server and agent, and every step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regional.core.files import write_atomic
from regional.local.agent_certificate import digest
from regional.local.provisioner import mosquitto
from regional.maestro.client import MaestroClient
from tests.kube_controllers.harness import Cluster
from tests.maestro.conftest import cluster, database, shared_database, shared_postgres
from tests.maestro.harness import Maestro, applied, config_map, eventually, running
from tests.provisioner.harness import Ground
from tests.provisioner.mqtt_client import Client, Refused, agent_bundle

__all__ = ["cluster", "database", "shared_database", "shared_postgres"]

MOST_BUNDLES = 150
PATIENCE = 90.0


class Provisioned:
    """The broker of a provisioned region, to Maestro's harness: secrets as the secrets driver mounts them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def files(self, name: str, mount: str | Path) -> dict[str, str]:
        server = name == mosquitto.SERVER_NAME
        account = self._ground.regional() if server else self._ground.management(name)
        kind = "server" if server else "agent"
        bundle = json.loads(self._ground.secret(account, f"maestro/{kind}-cert"))
        config = json.loads(self._ground.secret(account, f"maestro/{kind}-config"))
        return {
            "config.yaml": config["config"].replace("/mnt/secrets-store", str(mount)),
            "ca.crt": bundle["caCert"],
            "tls.crt": bundle["certificate"],
            "tls.key": bundle["privateKey"],
            "consumerName": config.get("consumerName", ""),
        }


class Sender:
    """Sends bundles all the time, and a second version of each. What a busy machine answers too late is sent again."""

    def __init__(self, client: MaestroClient) -> None:
        self._client = client
        self.sent: list[str] = []
        self.enough = asyncio.Event()

    async def keep_sending(self) -> None:
        for number in range(MOST_BUNDLES):
            bundle = str(uuid.uuid4())
            first, second = ([config_map(f"b{number}", {"version": version})] for version in "12")
            await eventually(partial(self._client.create_bundle, "mc01", first, id=bundle), PATIENCE)
            self.sent.append(bundle)
            await asyncio.sleep(0.05)
            await eventually(partial(self._client.patch_bundle, bundle, manifests=second), PATIENCE)
            if self.enough.is_set():
                return

    async def arrived(self) -> None:
        """What is sent from now on: one bundle at least, applied."""
        before = len(self.sent)
        await eventually(lambda: _true(len(self.sent) > before or len(self.sent) == MOST_BUNDLES), PATIENCE)
        await applied(self._client, self.sent[-1], seconds=PATIENCE)


async def _true(value: bool) -> bool:
    return value


@contextlib.asynccontextmanager
async def sending(client: MaestroClient) -> AsyncIterator[Sender]:
    sender = Sender(client)
    async with running(sender.keep_sending()) as task:
        yield sender
        sender.enough.set()
        await task


@pytest.mark.timeout(900)
async def test_no_message_is_lost_while_a_certificate_is_rotated(
    ground: Ground, database: dict[str, str], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regional.core.mqtt._CHANGE_SECONDS", 0.05)
    await ground.with_broker("mc01")
    provisioned: Any = Provisioned(ground)
    maestro = Maestro(tmp_path, database, provisioned)
    inputs, former = ground.management_inputs("mc01"), agent_bundle(ground, "mc01")
    async with maestro.server() as client:
        await client.create_consumer("mc01")

        async def uses(certificate: str) -> bool:
            (found,) = await client.consumers()
            return bool(found.get("agent_certificate") == digest(certificate))

        async with maestro.agent(cluster.api.client("work-agent"), "mc01"):
            await eventually(lambda: uses(former["certificate"]), PATIENCE)
            async with sending(client) as sender:
                await sender.arrived()
                await ground.provision("maestro-agent-iot-regional", inputs, renew=True)
                await ground.provision("maestro-agent-iot-management", inputs)
                await sender.arrived()
                assert await uses(former["certificate"])  # it works on: its cluster has not looked for secrets yet
                (mount,) = tmp_path.glob("mc01-*")
                for name, content in provisioned.files("mc01", mount).items():
                    write_atomic(mount / name, content)
                    await asyncio.sleep(0.1)  # an agent may find files of two pairs
                new = agent_bundle(ground, "mc01")
                await eventually(lambda: uses(new["certificate"]), PATIENCE)
                await sender.arrived()
                await ground.provision("maestro-agent-iot-regional", inputs, retire=True)
                await sender.arrived()
            for bundle in sender.sent:
                await applied(client, bundle, version=2, seconds=PATIENCE)
            for number in range(len(sender.sent)):
                assert (await cluster.client.get("v1", "ConfigMap", f"b{number}", "default"))["data"]["version"] == "2"
            assert await uses(new["certificate"])
    host = json.loads(ground.secret(ground.management("mc01"), "maestro/agent-config"))["config"]
    address = host.partition("brokerHost: ")[2].split()[0]
    with pytest.raises(Refused):
        async with Client(address, former, f"mc01-{secrets.token_hex(3)}"):
            pass

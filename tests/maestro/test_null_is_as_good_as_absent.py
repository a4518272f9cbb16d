"""Clients in Go write `null` for lists that they left empty, and people do in YAML: it says nothing, at either door and
on the wire."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from regional.local.provisioner import mosquitto
from regional.maestro.protocol import bundles as protocol
from regional.maestro.protocol.events import CREATE
from tests.kube_controllers.harness import Cluster
from tests.maestro.harness import Document, Maestro, applied, config_map, eventually
from tests.maestro.test_clients_come_in_by_grpc import speaking

IDENTIFIER = {"group": None, "resource": "configmaps", "name": "one", "namespace": "default"}
NULLS: Document = {
    "deleteOption": {
        "propagationPolicy": "SelectivelyOrphan",
        "selectivelyOrphans": {"orphaningRules": None},
        "ttlSecondsAfterFinished": None,
    },
    "manifestConfigs": [
        {
            "resourceIdentifier": IDENTIFIER,
            "feedbackRules": [
                {"type": "JSONPaths", "jsonPaths": [{"name": "v", "path": ".data.key", "version": None}]}
            ],
            "updateStrategy": {
                "type": "ServerSideApply",
                "serverSideApply": {
                    "force": None,
                    "fieldManager": None,
                    "ignoreFields": [{"condition": "OnSpokeChange", "jsonPaths": None}],
                },
            },
            "conditionRules": None,
            "feedbackScrapeType": None,
        },
        {"resourceIdentifier": IDENTIFIER, "feedbackRules": None, "updateStrategy": None},
    ],
    "executer": None,
}
SAID: Document = {
    "deleteOption": {"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": {}},
    "manifestConfigs": [
        {
            "resourceIdentifier": {"resource": "configmaps", "name": "one", "namespace": "default"},
            "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "v", "path": ".data.key"}]}],
            "updateStrategy": {
                "type": "ServerSideApply",
                "serverSideApply": {"ignoreFields": [{"condition": "OnSpokeChange"}]},
            },
        },
        {"resourceIdentifier": {"resource": "configmaps", "name": "one", "namespace": "default"}},
    ],
}


@pytest.mark.parametrize("door", ["rest", "patch", "grpc"])
async def test_whoever_writes_null_says_nothing(maestro: Maestro, door: str) -> None:
    work = str(uuid.uuid4())
    rest = {"delete_option": NULLS["deleteOption"], "manifest_configs": NULLS["manifestConfigs"]}
    async with speaking(maestro) as (channel, client):
        await client.create_consumer("mc01")
        async with maestro.wire("mc01") as agent:
            if door == "grpc":
                data = json.dumps({"manifests": [config_map("one")], **NULLS}).encode()
                await channel.publish(CREATE, work, data=data)
            else:
                given: Any = rest if door == "rest" else {}
                await client.create_bundle("mc01", [config_map("one")], id=work, **given)
                if door == "patch":
                    await client.patch_bundle(work, **rest)
            # What is not confirmed within seconds comes once more.
            event = await agent.next(action="update_request" if door == "patch" else "create_request")
            assert json.loads(event.data) == {"manifests": [config_map("one")], **SAID}


async def test_an_agent_applies_what_is_sent_with_nulls(maestro: Maestro, cluster: Cluster) -> None:
    """Another server passes on what its clients have written."""
    manifest = config_map("one", {"key": "value"})
    manifest["metadata"] |= {"labels": None, "annotations": None, "creationTimestamp": None}
    async with (
        maestro.wire(mosquitto.SERVER_NAME) as server,
        maestro.agent(cluster.api.client("work-agent"), "mc01"),
    ):
        spec = protocol.spec_event(
            CREATE,
            source="maestro",
            consumer="mc01",
            resource_id="work",
            version=1,
            data=json.dumps({"manifests": [manifest], **NULLS}).encode(),
        )
        await server.send(spec)

        async def told() -> Any:
            event = await server.next(subresource="status")
            (resource,) = json.loads(event.data).get("resourceStatus") or [{}]
            return (resource.get("statusFeedback") or {}).get("values")

        (value,) = await eventually(told)
        assert value["fieldValue"] == {"type": "String", "string": "value"}
        assert await cluster.client.get("v1", "ConfigMap", "one", "default")


async def test_our_agent_under_our_server_applies_it_too(maestro: Maestro, cluster: Cluster) -> None:
    async with maestro.server() as client, maestro.agent(cluster.api.client("work-agent"), "mc01"):
        await client.create_consumer("mc01")
        rest = {"delete_option": NULLS["deleteOption"], "manifest_configs": NULLS["manifestConfigs"]}
        made = await client.create_bundle("mc01", [config_map("one")], **rest)
        await applied(client, made["id"])

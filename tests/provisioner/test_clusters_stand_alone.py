"""Clusters as the roots make them: real API and node processes, and nothing of one in the hands of the other."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from regional.cloud.aws import Aws, Credentials
from regional.kube.client import Client
from regional.local.provisioner.cluster import bootstrap_kubeconfig
from tests.provisioner.harness import AWS_REGION, Ground

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


class Clusters:
    def __init__(self, ground: Ground, regional: dict[str, Any], management: dict[str, Any]) -> None:
        self.ground = ground
        self.outputs = {"rc": regional, "mc01": management}

    def directory(self, name: str) -> Path:
        return self.ground.paths.cluster(name)

    def client(self, name: str) -> Client:
        return Client.from_kubeconfig(self.directory(name) / "admin.kubeconfig")


async def _make(ground: Ground) -> Clusters:
    for root in ("network", "database", "certificate-authority", "broker", "api-gateway"):
        await ground.provision(root, ground.regional_inputs())
    regional = await ground.provision("regional-cluster", ground.regional_inputs())
    inputs = ground.management_inputs("mc01")
    for root in ("maestro-agent-iot-regional", "maestro-agent-iot-management"):
        await ground.provision(root, inputs)
    return Clusters(ground, regional, await ground.provision("management-cluster", inputs))


def contents(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Of all files; the clusters are at work, so some may go while they are being read."""
    for place, _, names in os.walk(directory):
        for file in (Path(place) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                yield file, file.read_bytes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clusters(shared_ground: Ground) -> Clusters:
    await shared_ground.with_warm_parent()
    return await _make(shared_ground)


async def test_outputs_lead_to_a_running_cluster(clusters: Clusters) -> None:
    for name, outputs in clusters.outputs.items():
        kubeconfig = bootstrap_kubeconfig(clusters.ground.paths, outputs["cluster_name"])
        assert kubeconfig == clusters.directory(name) / "admin.kubeconfig"
        document = yaml.safe_load(kubeconfig.read_text())
        assert document["clusters"][0]["cluster"] == {
            "server": outputs["cluster_endpoint"],
            "certificate-authority-data": outputs["cluster_certificate_authority_data"],
        }
        client = clusters.client(name)
        assert await client.get("v1", "Namespace", "kube-system")
        assert [node["metadata"]["name"] for node in await client.list("v1", "Node")] == [f"{name}-node-1"]
        await client.close()


async def test_again_changes_nothing(clusters: Clusters) -> None:
    ground = clusters.ground

    async def seen() -> dict[str, Any]:
        services = {s.name: (s.pid, s.restarts) for s in await ground.context().supervisor.services()}
        files = dict(contents(ground.paths.root / "clusters"))
        return {"services": services, "files": {p: c for p, c in files.items() if "data" not in p.parts}}

    before = await seen()
    again = await _make(ground)
    assert again.outputs == clusters.outputs
    assert await seen() == before


async def test_the_clusters_records_say_private(clusters: Clusters) -> None:
    for name, aws in (("rc", clusters.ground.regional()), ("mc01", clusters.ground.management("mc01"))):
        described = aws.client("eks").describe_cluster(name=clusters.outputs[name]["cluster_name"])["cluster"]
        assert described["resourcesVpcConfig"]["endpointPublicAccess"] is False
        assert described["resourcesVpcConfig"]["endpointPrivateAccess"] is True


async def test_a_nodes_key_belongs_to_its_own_account(clusters: Clusters) -> None:
    for name, account in (
        ("rc", clusters.ground.regional_account),
        ("mc01", clusters.ground.management_inputs("mc01")["account_id"]),
    ):
        file = clusters.directory(name) / "aws-credentials.json"
        assert file.stat().st_mode & 0o777 == 0o600
        found = json.loads(file.read_text())
        credentials = Credentials(found["access_key"], found["secret_key"])
        aws = Aws(region=AWS_REGION, endpoint=clusters.ground.endpoint, credentials=credentials)
        assert aws.account_id() == account
        user = f"{clusters.outputs[name]['cluster_name']}-node"
        client = aws.client("iam")
        policy = client.get_user_policy(UserName=user, PolicyName="read-own-secrets")["PolicyDocument"]
        for statement in policy["Statement"]:
            assert statement["Action"] == ["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"]
            assert all(f":{account}:secret:" in resource for resource in statement["Resource"])
        aws.close()


async def test_neither_cluster_holds_the_others_address_or_authority(clusters: Clusters) -> None:
    for own, other in (("rc", "mc01"), ("mc01", "rc")):
        address = clusters.outputs[other]["cluster_endpoint"].removeprefix("https://").encode()
        authority = base64.b64decode(clusters.outputs[other]["cluster_certificate_authority_data"])
        for file, content in contents(clusters.directory(own)):
            assert address not in content, file
            assert authority not in content, file

"""What is mounted is what the cluster says, also after it changed; what is missing is waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from regional.core.files import write_json
from regional.kube.objects import is_true, status_of
from tests.kube_node.harness import NodeCluster, Warm, ask, config_map, eventually, pod, readiness


def with_volume(name: str, volume: dict[str, object]) -> dict[str, object]:
    return pod(
        name,
        "http",
        "8000",
        readinessProbe=readiness(),
        pod_volumes=[{"name": "v"} | volume],
        volumeMounts=[{"name": "v", "mountPath": "/mnt/v"}],
    )


async def test_a_changed_config_map_reaches_the_running_pod(cluster: NodeCluster) -> None:
    await cluster.client.create(config_map("settings", app__yaml="one"))
    await cluster.client.create(with_volume("web", {"configMap": {"name": "settings"}}))
    address = status_of(await cluster.ready("web"))["podIP"]
    assert await ask(address, "/file/mnt/v/app.yaml") == "one"
    await cluster.client.patch("v1", "ConfigMap", "settings", "default", {"data": {"app.yaml": "two"}})

    async def changed() -> bool:
        return await ask(address, "/file/mnt/v/app.yaml") == "two"

    await eventually(changed)


async def test_what_runs_goes_on_without_the_source_of_its_files(cluster: NodeCluster) -> None:
    await cluster.client.create(config_map("settings", colour="blue"))
    await cluster.client.create(with_volume("web", {"configMap": {"name": "settings"}}))
    address = status_of(await cluster.ready("web"))["podIP"]
    await cluster.client.delete("v1", "ConfigMap", "settings", "default")
    await cluster.event("FailedMount", 'configmap "settings" not found')
    web = await cluster.ready("web")
    assert is_true(web, "PodReadyToStartContainers")
    assert await ask(address, "/file/mnt/v/colour") == "blue"
    await cluster.client.create(config_map("settings", colour="green"))

    async def renewed() -> bool:
        return await ask(address, "/file/mnt/v/colour") == "green"

    await eventually(renewed)


async def test_a_pod_waits_for_what_it_mounts_or_reads(cluster: NodeCluster) -> None:
    await cluster.client.create(with_volume("mounts", {"configMap": {"name": "later"}}))
    reference = {"configMapKeyRef": {"name": "later", "key": "level"}}
    await cluster.client.create(
        pod("reads", "http", "8000", env=[{"name": "L", "valueFrom": reference}], readinessProbe=readiness())
    )
    assert 'configmap "later" not found' in (await cluster.waiting("mounts", "ContainerCreating"))["message"]
    assert 'configmap "later" not found' in (await cluster.waiting("reads", "CreateContainerConfigError"))["message"]
    await cluster.event("FailedMount", "later")
    await cluster.client.create(config_map("later", level="info"))
    await cluster.ready("mounts")
    reads = await cluster.ready("reads")
    assert await ask(status_of(reads)["podIP"], "/env/L") == "info"


async def test_host_paths_are_refused(cluster: NodeCluster) -> None:
    await cluster.client.create(with_volume("nosy", {"hostPath": {"path": "/etc"}}))
    assert "hostPath is not offered" in (await cluster.waiting("nosy", "ContainerCreating"))["message"]


@pytest.fixture
def secrets_manager(region_directory: Path) -> Iterator[str]:
    """Real moto, spoken to over HTTP with signed requests."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def test_secrets_come_from_secrets_manager(
    region_directory: Path, shared_warm: Warm, secrets_manager: str
) -> None:
    keys = {"access_key": "AKIAEXAMPLE", "secret_key": "example", "region": "us-west-2"}
    boto3.client(
        "secretsmanager",
        endpoint_url=secrets_manager,
        region_name=keys["region"],
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
    ).create_secret(Name="maestro/db-credentials", SecretString=json.dumps({"host": "db", "password": "s3cret"}))
    cluster = NodeCluster(region_directory, shared_warm)
    write_json(cluster.files.aws_credentials, keys)
    cluster.settings.aws_endpoint = secrets_manager
    cluster.settings.aws_credentials = str(cluster.files.aws_credentials)
    objects = """
- objectName: maestro/db-credentials
  objectType: secretsmanager
  jmesPath: [{path: password, objectAlias: password}]
"""
    provider_class = {
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"provider": "aws", "parameters": {"objects": objects}},
    }
    csi = {
        "driver": "secrets-store.csi.k8s.io",
        "readOnly": True,
        "volumeAttributes": {"secretProviderClass": "db"},
    }
    async with cluster.running():
        await cluster.client.create(with_volume("web", {"csi": csi}))
        assert 'SecretProviderClass "db" not found' in (await cluster.waiting("web", "ContainerCreating"))["message"]
        await cluster.client.create(provider_class)
        address = status_of(await cluster.ready("web"))["podIP"]
        assert await ask(address, "/file/mnt/v/password") == "s3cret"
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ

"""`regionctl kube`: a region's cluster is copied while it runs, and put back by the command that stops it for that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from regional.kube.client import ApiError, Client
from regional.local.addresses import API_PORT, Addresses
from regional.local.provisioner.cluster_directory import ClusterDirectory
from regional.local.region import Region
from regional.local.supervisor_client import ServiceSpec

REGION = "kept"


@pytest.fixture
async def region(regional_home: Path) -> AsyncIterator[Region]:
    target = Region(REGION)
    target.paths.root.mkdir(parents=True)
    await target.start_supervisor()
    yield target
    await target.down(purge=True)


async def regionctl(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "regional.cli.main", "kube", *arguments, "--region", REGION]
    pipes = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipes, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def serve_cluster(region: Region, name: str) -> ClusterDirectory:
    block = Addresses(region.paths).block(name)
    directory = ClusterDirectory(region.paths.cluster(name), name, block)
    directory.ensure()
    command = [sys.executable, "-m", "regional.cli.main", "serve", "kube-api", "--cluster", name]
    command += ["--data", str(directory.data), "--pki", str(directory.certificates), "--address", block.api]
    await region.client.ensure(
        ServiceSpec(
            name=f"{name}-api",
            description="a cluster's API",
            kind="exec",
            argv=[*command, "--service-cidr", block.service_cidr, "--controllers", "none"],
            ready=f"https://{block.api}:{API_PORT}/readyz",
        ),
        timeout=180,
    )
    return directory


async def test_cluster_of_a_region_goes_back_to_its_snapshot(region: Region) -> None:
    directory = await serve_cluster(region, "mc01")
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}
    async with Client.from_kubeconfig(directory.admin_kubeconfig) as client:
        await client.create(settings)
        code, said = await regionctl("snapshot", "mc01")
        assert code == 0 and "checked" in said, said
        await client.delete("v1", "ConfigMap", "kept", "default")
        later = await client.create(settings | {"metadata": {"name": "later", "namespace": "default"}})

        code, said = await regionctl("restore", "mc01", "-y")
        assert code == 1 and "in use by another process" in said and "--stop" in said, said
        assert await client.get("v1", "ConfigMap", "later", "default")

        code, said = await regionctl("restore", "mc01", "-y", "--stop")
        assert code == 0 and "objects are back" in said, said
        kept = await client.get("v1", "ConfigMap", "kept", "default")
        assert int(kept["metadata"]["resourceVersion"]) > int(later["metadata"]["resourceVersion"])
        with pytest.raises(ApiError) as gone:
            await client.get("v1", "ConfigMap", "later", "default")
        assert gone.value.status == 404
    code, said = await regionctl("snapshots", "mc01")
    assert code == 0 and "yes" in said
    code, said = await regionctl("snapshot", "mc99")
    assert code == 1 and "has no cluster 'mc99'" in said

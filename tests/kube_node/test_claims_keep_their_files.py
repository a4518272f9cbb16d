"""What a pod writes on a claim is there for the next pod, and gone with the claim."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from regional.kube.objects import Obj, status_of
from tests.kube_node.harness import NodeCluster, eventually, pod


def claim(name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def writer(name: str, claim_name: str) -> Obj:
    """Appends a line to a file on the claim and ends."""
    return pod(
        name,
        "count",
        "/data/lines",
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        pod_volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        pod_restartPolicy="Never",
    )


def files(cluster: NodeCluster) -> list[Path]:
    return sorted((cluster.root / "volumes").glob("*/lines"))


async def test_files_outlive_pods_and_go_with_the_claim(cluster: NodeCluster) -> None:
    await cluster.client.create(claim("keep"))
    for number in (1, 2):
        await cluster.client.create(writer(f"writer-{number}", "keep"))
        await cluster.phase(f"writer-{number}", "Succeeded")
    (lines,) = files(cluster)
    assert lines.read_text().count("\n") == 2
    assert oct(lines.parent.stat().st_mode & 0o777) == "0o700"
    for number in (1, 2):
        await cluster.client.delete("v1", "Pod", f"writer-{number}", "default")
        await cluster.gone(f"writer-{number}")
    assert lines.exists()
    await cluster.client.delete("v1", "PersistentVolumeClaim", "keep", "default")

    async def removed() -> bool:
        return await cluster.client.get_or_none("v1", "PersistentVolumeClaim", "keep", "default") is None

    await eventually(removed)
    assert not lines.parent.exists()
    assert await cluster.client.list("v1", "PersistentVolume") == []


async def test_two_claims_do_not_see_each_other(cluster: NodeCluster) -> None:
    for name in ("one", "two"):
        await cluster.client.create(claim(name))
        await cluster.client.create(writer(f"w-{name}", name))
        await cluster.phase(f"w-{name}", "Succeeded")
    assert [lines.read_text().count("\n") for lines in files(cluster)] == [1, 1]


async def test_a_pod_waits_for_a_claim_that_comes_later(cluster: NodeCluster) -> None:
    await cluster.client.create(writer("early", "late"))
    await cluster.event("FailedMount", 'persistentvolumeclaim "late" not found')
    await cluster.client.create(claim("late"))
    await cluster.phase("early", "Succeeded")


async def test_a_volume_deleted_while_the_node_was_away_is_removed_when_it_is_back(cluster: NodeCluster) -> None:
    await cluster.client.create(claim("away"))
    await cluster.client.create(writer("w", "away"))
    await cluster.phase("w", "Succeeded")
    (lines,) = files(cluster)
    await cluster.client.delete("v1", "Pod", "w", "default")
    await cluster.gone("w")
    await cluster.stop_node()
    await cluster.client.delete("v1", "PersistentVolumeClaim", "away", "default")

    async def deleted() -> bool:
        (volume,) = await cluster.client.list("v1", "PersistentVolume")
        return "deletionTimestamp" in volume["metadata"]

    await eventually(deleted)
    assert lines.exists()
    cluster.start_node()

    async def removed() -> bool:
        return not await cluster.client.list("v1", "PersistentVolume")

    await eventually(removed)
    assert not lines.parent.exists()


async def test_a_restarted_container_finds_its_files(cluster: NodeCluster) -> None:
    await cluster.client.create(claim("server"))
    made = pod(
        "server",
        "http",
        "8000",
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        pod_volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "server"}}],
    )
    await cluster.client.create(made)
    live = await cluster.ready("server")
    (volume,) = (cluster.root / "volumes").iterdir()
    (volume / "note").write_text("still here")
    os.kill(cluster.process_of(live).pid, signal.SIGKILL)
    live = await cluster.restarted("server", 1)
    address = status_of(live)["podIP"]
    assert await eventually(lambda: cluster.ask(address, "/file/data/note")) == "still here"

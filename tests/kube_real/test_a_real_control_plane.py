"""Kubernetes' own control plane, run by us: its keys, its controllers and scheduler, its end, and its return."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regional.core.process import ProcessRef
from regional.kube.client import Client
from regional.kube.objects import is_true
from regional.kube.real import RealControlPlane, find_programs

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_programs() is None, reason="Kubernetes' own control plane is not built: `make kube`"),
]
PATIENCE = 120.0


async def furnished(plane: RealControlPlane) -> Client:
    """Its first namespaces are made beside what makes it ready, not before."""
    client = Client.from_kubeconfig(plane.kubeconfig)
    async with asyncio.timeout(PATIENCE):
        while await client.get_or_none("v1", "Namespace", "default") is None:
            await asyncio.sleep(0.05)
    return client


async def test_what_it_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    async with RealControlPlane(tmp_path / "cluster", fsync=True) as plane:
        client = await furnished(plane)
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}}
        made = await client.create(kept | {"data": {"answer": "42"}})
        plane.kill()
        await plane.start()
        found = await client.get("v1", "ConfigMap", "kept", "default")
        assert found == made
        refs = [ProcessRef.of(pid) for pid in plane.pids]
        await client.close()
    assert refs and not any(ref is not None and ref.alive() for ref in refs)


async def test_controllers_and_scheduler_work_in_the_same_process(tmp_path: Path) -> None:
    async with RealControlPlane(tmp_path / "cluster") as plane:
        client = await furnished(plane)
        labels = {"app": "web"}
        container = {"name": "web", "image": "example/web:1"}
        await client.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            }
        )
        async with asyncio.timeout(PATIENCE):
            # The controllers make a pod; the scheduler says that there is no node for it.
            while not any(_unschedulable(pod) for pod in await client.list("v1", "Pod", "default")):
                await asyncio.sleep(0.1)
        await client.close()


def _unschedulable(pod: dict[str, object]) -> bool:
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    told = any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in conditions or [])
    return told and not is_true(pod, "PodScheduled")

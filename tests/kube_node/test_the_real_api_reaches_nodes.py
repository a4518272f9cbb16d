"""Kubernetes' own API server in front of our node: pods, their logs, and the streams that it translates to SPDY."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from regional.kube.client import Client
from regional.kube.node.sweeping import kill_inside
from regional.kube.objects import is_true, status_of
from regional.kube.real.plane import RealControlPlane
from regional.kube.real.programs import find_programs
from regional.local.provisioner.real_cluster import control_plane_of, furniture
from tests.kube_node.channels import Channels
from tests.kube_node.harness import NodeCluster, Warm, ask, eventually, pod, readiness

pytestmark = pytest.mark.skipif(find_programs() is None, reason="kube-apiserver is not built: `make kube` does that")

# Input and size travel in streams of their own: either may come first.
_WAITS_FOR_SIZE = 'while [ "$(stty size)" != "17 91" ]; do sleep 0.05; done; stty size'


class RealNodeCluster(NodeCluster):
    """The same node, another API."""

    @contextlib.asynccontextmanager
    async def running(self, *, node: bool = True) -> AsyncIterator[NodeCluster]:
        real = RealControlPlane(self.files.directory, address=self.block.api)
        real.plane = msgspec.structs.replace(control_plane_of(self.files), fsync=False)
        try:
            async with real:
                self.client = Client.from_kubeconfig(self.admin)
                for obj in furniture():
                    await self.client.apply(obj, field_manager="test", force=True)
                if node:
                    self.start_node()
                await eventually(lambda: self.client.get_or_none("v1", "ServiceAccount", "default", "default"), 60)
                try:
                    yield self
                finally:
                    await self.stop_node()
                    await self.client.close()
        finally:
            kill_inside([str(self.root)])
            self.addresses.release_all()


async def test_pods_logs_and_streams(region_directory: Path, shared_warm: Warm) -> None:
    async with RealNodeCluster(region_directory, shared_warm).running() as cluster:
        await eventually(lambda: cluster.client.get_or_none("v1", "Node", cluster.settings.node_name), 60)
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
        web = await cluster.ready("web")
        address = status_of(web)["podIP"]
        assert await ask(address) == "web"
        for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"):
            assert is_true(web, kind), status_of(web)["conditions"]
        code, output, errors = await cluster.kubectl("logs", "web")
        assert (code, output) == (0, f"serving {address}:8000\n"), errors

        script = "echo said; echo oops >&2; exit 7"
        code, output, errors = await cluster.kubectl("exec", "web", "--", "sh", "-c", script)
        assert (code, output) == (7, "said\n"), errors
        assert errors.startswith("oops\n")
        text = "".join(f"line {number}\n" for number in range(20_000))
        assert await cluster.kubectl("exec", "-i", "web", "--", "cat", text=text) == (0, text, "")

        async with Channels(cluster, "web", ["sh", "-c", _WAITS_FOR_SIZE], tty=True) as channel:
            await channel.send(4, b'{"Width":91,"Height":17}')
            await channel.until(b"17 91")
            assert b'"Success"' in await channel.status()

        forward = await cluster.start_kubectl("port-forward", "pod/web", ":8000")
        assert forward.stdout is not None
        try:
            async with asyncio.timeout(60):
                line = (await forward.stdout.readline()).decode()
            assert await ask("127.0.0.1", port=int(line.split(":")[1].split()[0])) == "web"
        finally:
            forward.kill()
            await forward.communicate()

        await cluster.client.delete("v1", "Pod", "web", "default")
        await cluster.gone("web")

"""Many clusters behind one port, each at https://HOST:PORT/c/NAME: foreign clients use one of them as any other."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap as Kr8sConfigMap
from kubernetes import client, config, dynamic, watch

from regional.kube.apiserver.hostmain import admin_socket, order

from .harness import Shell, own_address
from .test_helm import chart

PATIENCE = 120.0


async def host(folder: Path, address: str) -> asyncio.subprocess.Process:
    """`regionctl serve kube-host`, and the socket of its administrators there."""
    command = ("-m", "regional.cli.main", "serve", "kube-host", f"--data={folder}", f"--address={address}")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--port=6443", "--log-level=warning")
    async with asyncio.timeout(PATIENCE):
        while not await answers(admin_socket(folder)):
            assert process.returncode is None, "it ended"
            await asyncio.sleep(0.05)
    return process


async def answers(socket: Path) -> bool:
    """A socket's file is there a moment before anybody listens."""
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    """A shell that knows one of two clusters."""
    data = tmp_path / "host"
    process = await host(data, own_address())
    try:
        await order(admin_socket(data), "create", name="bank")
        made = await order(admin_socket(data), "create", name="shop")
        (tmp_path / "kubeconfig").write_text(made["kubeconfig"])
        yield Shell(tmp_path)
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_kubectl(shell: Shell) -> None:
    assert "/c/shop" in await shell.run("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'")
    assert "deployments" in await shell.run("kubectl api-resources")
    assert "Number of desired pods." in await shell.run("kubectl explain deploy.spec.replicas")
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: one}}"
    assert "configmap/a created" in await shell.run("kubectl apply -f -", stdin=text)
    assert "configmap/a serverside-applied" in await shell.run(
        "kubectl apply --server-side --force-conflicts -f -", stdin=text
    )
    assert "configmap/a condition met" in await shell.run(
        "kubectl wait --for=jsonpath='{.data.x}'=one cm/a --timeout=100s"
    )
    assert (
        json.loads(await shell.run("kubectl get --raw /api/v1/namespaces/default/configmaps/a"))["data"]["x"] == "one"
    )
    assert "yes" in await shell.run("kubectl auth can-i delete nodes")
    assert 'configmap "a" deleted' in await shell.run("kubectl delete cm a")


async def test_helm(shell: Shell) -> None:
    chart(shell.folder)
    assert "STATUS: deployed" in await shell.run("helm install rel chart --timeout 100s")
    await shell.run("helm upgrade rel chart --set value=two --wait --timeout 100s")
    assert await shell.run("kubectl get cm rel-config -o jsonpath='{.data.value}'") == "two"
    await shell.run("helm rollback rel 1 --timeout 100s")
    assert await shell.run("kubectl get cm rel-config -o jsonpath='{.data.value}'") == "one"
    await shell.run("helm uninstall rel --wait --timeout 100s")
    assert "NotFound" in await shell.run("kubectl get cm rel-config", fails=True)


async def test_the_official_python_client(shell: Shell) -> None:
    def work() -> None:
        with config.new_client_from_config(str(shell.kubeconfig)) as api:
            core = client.CoreV1Api(api)
            body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"a": "b"}), data={"x": "one"})
            made = core.create_namespaced_config_map("default", body)
            maps = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
            assert maps.get(name="a", namespace="default").data.x == "one"
            core.patch_namespaced_config_map("a", "default", {"data": {"x": "two"}})
            stream = watch.Watch().stream(
                core.list_namespaced_config_map,
                "default",
                label_selector="a=b",
                resource_version=made.metadata.resource_version,
                timeout_seconds=100,
            )
            event = next(iter(stream))
            assert (event["type"], event["object"].data) == ("MODIFIED", {"x": "two"})
            stream.close()
            core.delete_namespaced_config_map("a", "default")
            api.rest_client.pool_manager.clear()

    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(work)


async def test_kr8s(shell: Shell) -> None:
    api = await kr8s.asyncio.api(kubeconfig=str(shell.kubeconfig))
    try:
        assert (await api.version())["major"] == "1"
        body = {"metadata": {"name": "a", "namespace": "default", "labels": {"a": "b"}}, "data": {"x": "one"}}
        made = await Kr8sConfigMap(body, api=api)
        await made.create()
        await made.patch({"data": {"x": "two"}})
        found = [item async for item in api.get("configmaps", namespace="default", label_selector="a=b")]
        assert [(item.name, item.data.x) for item in found] == [("a", "two")]
        async with asyncio.timeout(PATIENCE):
            async for kind, obj in api.watch("configmaps", namespace="default", label_selector="a=b"):
                assert (kind, obj.name) == ("ADDED", "a")
                break
        await made.delete()
        assert not await made.exists()
    finally:
        await api._session.aclose()  # it has no public way to close, and an open socket is a warning at the end

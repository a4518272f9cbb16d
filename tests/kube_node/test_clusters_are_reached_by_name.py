"""Services: their addresses answer, their names resolve, their pods take turns and may die."""

from __future__ import annotations

import asyncio
import os

import pytest

from regional.kube.objects import spec_of, status_of
from tests.kube_node.harness import NodeCluster, ask, eventually, pod, readiness, service


async def served(cluster: NodeCluster, name: str) -> str:
    return str(spec_of(await cluster.client.get("v1", "Service", name, "default"))["clusterIP"])


async def test_ready_pods_take_turns_and_without_any_the_service_refuses(cluster: NodeCluster) -> None:
    await cluster.client.create(service("web", {"app": "web"}))
    address = await served(cluster, "web")
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await ask(address, port=9000)
    for name in ("one", "two"):
        await cluster.client.create(pod(name, "http", "8000", labels={"app": "web"}, readinessProbe=readiness()))
    await cluster.ready("one")
    await cluster.ready("two")

    async def both() -> bool:
        return {await ask(address, port=9000) for _ in range(4)} == {"one", "two"}

    await eventually(both)
    await cluster.client.delete("v1", "Pod", "one", "default")
    await cluster.client.delete("v1", "Pod", "two", "default")

    async def refused() -> bool:
        try:
            await ask(address, port=9000)
        except OSError:
            return True
        return False

    await eventually(refused)


async def test_pods_resolve_services_and_see_new_ones(cluster: NodeCluster) -> None:
    await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
    web = await cluster.ready("web")
    api = spec_of(await cluster.client.get("v1", "Service", "kubernetes", "default"))["clusterIP"]
    assert await ask(status_of(web)["podIP"], "/resolve/kubernetes.default.svc") == api
    assert await ask(status_of(web)["podIP"], "/env/KUBERNETES_SERVICE_HOST") == api
    await cluster.client.create(service("late", {"app": "web"}))
    address = await served(cluster, "late")

    async def known() -> bool:
        return await ask(status_of(web)["podIP"], "/resolve/late") == address

    await eventually(known)


async def test_the_api_answers_on_its_service_address(cluster: NodeCluster) -> None:
    kubernetes = spec_of(await cluster.client.get("v1", "Service", "kubernetes", "default"))

    async def connects() -> bool:
        _, writer = await asyncio.open_connection(kubernetes["clusterIP"], kubernetes["ports"][0]["port"])
        writer.close()
        return True

    await eventually(connects)


async def by_hand(cluster: NodeCluster, name: str, addresses: list[str], target: int) -> str:
    """A Service whose endpoints are written by hand; its address."""
    await cluster.client.create(service(name, None, 9000, target))
    await cluster.client.create(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]} for address in addresses],
            "ports": [{"name": "", "port": target, "protocol": "TCP"}],
        }
    )
    return await served(cluster, name)


async def echo_reversed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    received = await reader.read()  # until the client closes its side
    writer.write(received[::-1])
    await writer.drain()
    writer.close()


async def round_trip(address: str, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address, 9000)
    writer.write(content)
    await writer.drain()
    writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


async def test_large_bodies_and_half_closed_connections_pass(cluster: NodeCluster) -> None:
    address = await by_hand(cluster, "echo", [cluster.block.infra(9)], 7000)
    content = os.urandom(5_000_000)
    async with await asyncio.start_server(echo_reversed, cluster.block.infra(9), 7000):
        assert await eventually(lambda: round_trip(address, content)) == content[::-1]


async def test_a_connection_that_one_pod_refuses_goes_to_the_next(cluster: NodeCluster) -> None:
    dead, alive = cluster.block.infra(8), cluster.block.infra(9)
    address = await by_hand(cluster, "echo", [dead, alive], 7000)
    async with await asyncio.start_server(echo_reversed, alive, 7000):
        await eventually(lambda: round_trip(address, b"first"))
        for _ in range(6):
            assert await round_trip(address, b"abc") == b"cba"


async def test_a_server_that_speaks_first_is_heard(cluster: NodeCluster) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        writer.close()

    address = await by_hand(cluster, "greeter", [cluster.block.infra(9)], 7000)
    async with await asyncio.start_server(greet, cluster.block.infra(9), 7000):
        assert await eventually(lambda: round_trip(address, b"")) == b"welcome"


async def test_a_port_that_cannot_be_had_is_told_in_an_event(cluster: NodeCluster) -> None:
    await cluster.client.create(service("web", {"app": "web"}))
    address = await served(cluster, "web")
    taken = await asyncio.start_server(lambda r, w: None, address, 9000)
    async with taken:
        await cluster.client.create(pod("web", "http", "8000", readinessProbe=readiness()))
        event = await cluster.event("FailedToListen")
    assert f"cannot listen on {address}:9000" in event["message"]

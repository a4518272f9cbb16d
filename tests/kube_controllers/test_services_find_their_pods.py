"""EndpointSlices and Endpoints name exactly the pods that a Service selects, ready or not, leaving or staying."""

from __future__ import annotations

from typing import Any

from regional.kube.client import Client
from regional.kube.objects import Obj, labels_of, name_of, owners_of
from tests.kube_controllers.harness import Cluster, deployment, eventually


def service(name: str = "web", **spec: Any) -> Obj:
    base = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "t", "labels": {"team": "a"}},
        "spec": base | spec,
    }


async def slices(client: Client, name: str = "web") -> list[Obj]:
    return await client.list("discovery.k8s.io/v1", "EndpointSlice", "t", labels={"kubernetes.io/service-name": name})


async def ready_addresses(client: Client) -> list[str]:
    found = [e for s in await slices(client) for e in s.get("endpoints") or [] if e["conditions"]["ready"]]
    return sorted(endpoint["addresses"][0] for endpoint in found)


async def ready(cluster: Cluster, count: int) -> list[str]:
    async def check() -> list[str] | None:
        addresses = await ready_addresses(cluster.client)
        return addresses if len(addresses) == count else None

    found: list[str] = await eventually(check, f"{count} ready endpoints")
    return found


async def test_ready_pods_stand_behind_the_service(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(service())
    await cluster.client.create(deployment("web", "t", replicas=2))
    addresses = await ready(cluster, 2)
    (only,) = await slices(cluster.client)
    assert only["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert labels_of(only)["team"] == "a"
    assert owners_of(only)[0]["kind"] == "Service"
    pods = {name_of(pod) for pod in await cluster.pods("t")}
    assert {endpoint["targetRef"]["name"] for endpoint in only["endpoints"]} == pods

    async def classic() -> bool:
        endpoints = await cluster.client.get("v1", "Endpoints", "web", "t")
        (subset,) = endpoints["subsets"]
        assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        return sorted(address["ip"] for address in subset["addresses"]) == addresses

    await eventually(classic)


async def test_a_pod_that_is_not_ready_is_listed_but_not_ready(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(service())
    await cluster.client.create(deployment("web", "t", replicas=2))
    await ready(cluster, 2)
    sick = name_of((await cluster.pods("t"))[0])
    cluster.kubelet.healthy = lambda pod: name_of(pod) != sick
    cluster.kubelet.recheck()
    await ready(cluster, 1)
    (only,) = await slices(cluster.client)
    assert len(only["endpoints"]) == 2

    async def classic() -> bool:
        (subset,) = (await cluster.client.get("v1", "Endpoints", "web", "t"))["subsets"]
        return [address["targetRef"]["name"] for address in subset.get("notReadyAddresses") or []] == [sick]

    await eventually(classic)


async def test_addresses_can_be_published_before_they_are_ready(cluster: Cluster) -> None:
    await cluster.namespace("t")
    cluster.kubelet.healthy = lambda pod: False
    await cluster.client.create(service(publishNotReadyAddresses=True, clusterIP="None"))
    await cluster.client.create(deployment("web", "t"))
    await ready(cluster, 1)


async def test_a_service_without_pods_has_an_empty_slice(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(service())

    async def empty() -> bool:
        found = await slices(cluster.client)
        return len(found) == 1 and not found[0].get("endpoints")

    await eventually(empty)
    before = name_of((await slices(cluster.client))[0])
    await cluster.client.create(deployment("web", "t"))
    await ready(cluster, 1)
    assert [name_of(obj) for obj in await slices(cluster.client)] == [before]


async def test_named_ports_are_looked_up_in_the_pod(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(service(ports=[{"port": 80, "targetPort": "web"}]))
    made = deployment("web", "t")
    made["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "web", "containerPort": 9090}]
    await cluster.client.create(made)
    await ready(cluster, 1)
    ports = [port["port"] for obj in await slices(cluster.client) for port in obj.get("ports") or []]
    assert ports == [9090]


async def test_nothing_is_left_of_a_deleted_service(cluster: Cluster) -> None:
    await cluster.namespace("t")
    await cluster.client.create(service())
    await cluster.client.create(deployment("web", "t"))
    await ready(cluster, 1)
    await cluster.client.delete("v1", "Service", "web", "t")

    async def gone() -> bool:
        endpoints = await cluster.client.get_or_none("v1", "Endpoints", "web", "t")
        return endpoints is None and not await slices(cluster.client)

    await eventually(gone)


async def test_a_service_without_selector_is_left_to_its_maker(cluster: Cluster) -> None:
    await cluster.namespace("t")
    made: Obj = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "t"}}
    await cluster.client.create(made | {"subsets": [{"addresses": [{"ip": "127.90.9.9"}], "ports": [{"port": 1}]}]})
    await cluster.client.create(service(selector=None))
    await cluster.client.create(service("other"))

    async def other_done() -> bool:
        return bool(await slices(cluster.client, "other"))

    await eventually(other_done)
    kept = await cluster.client.get("v1", "Endpoints", "web", "t")
    assert kept["subsets"][0]["addresses"][0]["ip"] == "127.90.9.9"

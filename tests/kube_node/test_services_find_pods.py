"""Which pods answer for a Service, and which names lead to it."""

from __future__ import annotations

from typing import Any

from regional.core.loop import parse_hosts
from regional.kube.node.endpoints import Listener, doors
from regional.kube.node.hosts import hosts_file
from regional.kube.objects import Obj

API = ("127.64.0.1", 6443)


def pod(name: str, address: str, *, ready: bool = True, namespace: str = "team", **more: Any) -> Obj:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}} | more.pop("metadata", {}),
        "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]} | more,
        "status": {"podIP": address, "conditions": [condition]},
    }


def service(name: str, address: str, namespace: str = "team", **spec: Any) -> Obj:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": address, "ports": ports} | spec}


def backends(services: list[Obj], pods: list[Obj], slices: list[Obj] | None = None) -> dict[Listener, Any]:
    return {where: door.backends for where, door in doors(services, pods, slices or [], API).items()}


def test_ready_pods_of_the_same_namespace_answer() -> None:
    pods = [
        pod("b", "127.64.2.2"),
        pod("a", "127.64.2.1"),
        pod("unready", "127.64.2.3", ready=False),
        pod("leaving", "127.64.2.4", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("elsewhere", "127.64.2.5", namespace="other"),
        pod("other", "127.64.2.6", metadata={"labels": {"app": "db"}}),
    ]
    web = service("web", "127.64.1.9", selector={"app": "web"})
    assert backends([web], pods) == {Listener("127.64.1.9", 80): (("127.64.2.1", 8080), ("127.64.2.2", 8080))}
    web["spec"]["publishNotReadyAddresses"] = True
    assert len(backends([web], pods)[Listener("127.64.1.9", 80)]) == 3


def test_the_api_answers_for_the_kubernetes_service_and_slices_for_those_without_selector() -> None:
    kubernetes = service("kubernetes", "127.64.1.1", "default", ports=[{"name": "https", "port": 6443}])
    outside = service("database", "127.64.1.5", ports=[{"name": "sql", "port": 5432}])
    entry = {
        "metadata": {"name": "database-1", "namespace": "team", "labels": {"kubernetes.io/service-name": "database"}},
        "ports": [{"name": "sql", "port": 15432}],
        "endpoints": [
            {"addresses": ["127.70.0.1"]},
            {"addresses": ["127.70.0.2"], "conditions": {"ready": False}},
        ],
    }
    found = backends([kubernetes, outside], [], [entry])
    assert found[Listener("127.64.1.1", 6443)] == (API,)
    assert found[Listener("127.64.1.5", 5432)] == (("127.70.0.1", 15432),)


def test_headless_and_external_services_need_no_listener() -> None:
    assert backends([service("a", "None"), service("b", "", type="ExternalName")], []) == {}


def test_a_pod_knows_itself_its_aliases_and_every_service() -> None:
    me = pod("web-0", "127.64.2.1", hostAliases=[{"ip": "127.9.9.9", "hostnames": ["legacy", "legacy.example"]}])
    services = [service("api", "127.64.1.2"), service("api", "127.64.1.3", "other")]
    names = parse_hosts(hosts_file(me, "127.64.2.1", services, []))
    assert names["localhost"] == "127.0.0.1"
    assert names["web-0"] == "127.64.2.1"
    assert names["legacy.example"] == "127.9.9.9"
    for name in ("api", "api.team", "api.team.svc", "api.team.svc.cluster.local"):
        assert names[name] == "127.64.1.2"
    assert names["api.other.svc"] == "127.64.1.3"


def test_a_headless_service_names_its_pods() -> None:
    members = [pod(f"etcd-{n}", f"127.64.2.{n + 1}", hostname=f"etcd-{n}", subdomain="etcd") for n in range(2)]
    names = parse_hosts(
        hosts_file(members[0], "127.64.2.1", [service("etcd", "None", selector={"app": "web"})], members)
    )
    assert names["etcd-1.etcd.team.svc.cluster.local"] == "127.64.2.2"
    assert names["etcd-1.etcd"] == "127.64.2.2"
    assert names["etcd.team.svc"] == "127.64.2.1"


def test_a_headless_service_names_only_pods_that_answer() -> None:
    etcd = service("etcd", "None", selector={"app": "web"})
    well, sick, done = (pod(f"etcd-{n}", f"127.64.2.{n + 1}", hostname=f"etcd-{n}", subdomain="etcd") for n in range(3))
    for condition in sick["status"]["conditions"]:
        condition["status"] = "False"
    done["status"]["phase"] = "Succeeded"
    members = [well, sick, done]
    assert published_names([etcd], members) == {"etcd-0"}
    etcd["spec"]["publishNotReadyAddresses"] = True
    assert published_names([etcd], members) == {"etcd-0", "etcd-1"}


def published_names(services: list[Obj], members: list[Obj]) -> set[str]:
    names = parse_hosts(hosts_file(members[0], "127.64.2.1", services, members))
    return {name.removesuffix(".etcd.team.svc") for name in names if name.endswith(".etcd.team.svc")}

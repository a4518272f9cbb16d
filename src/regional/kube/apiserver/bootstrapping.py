"""What is in a cluster before anybody has asked for anything: namespaces, RBAC, the API's own Service, add-ons' CRDs.

The objects are YAML files beside the code, the namespaces in the first of them, and go in through the API's own front
door. What people may change (namespaces, roles, bindings) is only created where it is missing; what belongs to
the server (CRDs of add-ons) is applied at every start.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from importlib import resources
from typing import Protocol

import msgspec

from regional.kube.apiserver.addresses import ServiceAddresses
from regional.kube.apiserver.catalogue import Catalogue, store_name
from regional.kube.apiserver.entries import Obj, encode
from regional.kube.apiserver.media import from_yaml
from regional.kube.apiserver.store import Store
from regional.kube.messages import Request, Response
from regional.kube.objects import labels_of, matches, name_of

log = logging.getLogger(__name__)

FIELD_MANAGER = "kube-apiserver"


class Bootstrapped(Protocol):
    store: Store
    catalogue: Catalogue
    addresses: ServiceAddresses
    address: str
    port: int

    async def handle(self, request: Request) -> Response: ...


async def bootstrap(server: Bootstrapped) -> None:
    """The namespaces, then everything else together, so that the disk is waited for twice."""
    namespaces, *files = packaged()
    service = _kubernetes_service(server.addresses.first, server.address, server.port)
    await asyncio.gather(*(_ensure(server, obj, ours=False) for obj in namespaces))
    await asyncio.gather(
        *(_ensure(server, obj, ours=obj["kind"] == "CustomResourceDefinition") for file in files for obj in file),
        *(_ensure(server, obj, ours=True) for obj in service),
    )


@functools.cache
def packaged() -> tuple[tuple[Obj, ...], ...]:
    """Read once: the warm parent does it for all the APIs that it forks."""
    folder = resources.files("regional.kube.apiserver").joinpath("bootstrap")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda each: each.name)
    read = tuple(
        tuple(document for text in file.read_text().split("\n---\n") if (document := from_yaml(text.encode())))
        for file in files
    )
    for documents in read:
        _aggregate([document for document in documents if document["kind"] == "ClusterRole"])
    return read


def _aggregate(roles: list[Obj]) -> None:
    """Roles made of others have their rules from the start: where no controllers run, nobody would fill them in."""
    for role in roles:
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        for part in sorted(roles, key=name_of) if selectors else ():
            if part is not role and any(matches(selector, labels_of(part)) for selector in selectors):
                known = role.setdefault("rules", [])
                known += [rule for rule in part["rules"] if rule not in known]


def _kubernetes_service(cluster_ip: str, address: str, port: int) -> list[Obj]:
    """`https://kubernetes.default.svc`, on the API's own port: nothing here may listen below 1024."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
    ports = [{"name": "https", "port": port, "protocol": "TCP", "targetPort": port}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ClusterIP", "clusterIP": cluster_ip, "ports": ports},
    }
    slice_labels = {"kubernetes.io/service-name": "kubernetes"}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": slice_labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    return [service, endpoints]


async def _ensure(server: Bootstrapped, obj: Obj, *, ours: bool) -> None:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = server.catalogue.by_kind(group, version, obj["kind"])
    assert kind is not None, obj["kind"]
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path = f"{root}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    if ours:
        headers = {"content-type": "application/apply-patch+yaml"}
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        request = Request("PATCH", f"{path}/{name}", query, headers, encode(obj))
    elif server.store.get(store_name(kind), namespace, name) is not None:
        return
    else:
        headers = {"content-type": "application/json"}
        request = Request("POST", path, [("fieldManager", FIELD_MANAGER)], headers, encode(obj))
    answer = await server.handle(request)
    if answer.status >= 300:
        body = msgspec.json.decode(answer.body) if isinstance(answer.body, bytes) else {}
        raise RuntimeError(f"bootstrap of {obj['kind']} {name} was refused: {body.get('message')}")

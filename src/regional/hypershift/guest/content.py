"""What every guest has inside, kept there for as long as the cluster lives: the hosted cluster config operator's part.

All of it is written before a cluster is called Available for the first time, so that whoever gets the kubeconfig finds
a furnished house. Later it is looked at now and then and put right where somebody changed it.
"""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Coroutine
from datetime import datetime
from importlib import resources
from typing import Any

import yaml

from regional.hypershift.guest.connection import CONFIG
from regional.hypershift.guest.passwords import bcrypt
from regional.hypershift.guest.report import GuestReport
from regional.hypershift.guest.versions import OPERATORS, Facts, cluster_operator, cluster_version
from regional.hypershift.names import REQUEST_ID
from regional.hypershift.writing import covers
from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, is_true, name_of

FIELD_MANAGER = "hosted-cluster-config-operator"
NAMESPACES = tuple(
    f"openshift-{name}"
    for name in (
        *("infra", "apiserver", "cloud-controller-manager", "controller-manager", "kube-apiserver"),
        *("kube-controller-manager", "kube-scheduler", "etcd", "ingress", "authentication", "route-controller-manager"),
    )
)
KUBEADMIN = ("kube-system", "kubeadmin")


@functools.cache
def definitions() -> tuple[Obj, ...]:
    text = resources.files("regional.hypershift.guest").joinpath("data/crds.yaml").read_text()
    return tuple(document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document)


async def furnish(client: Client, facts: Facts, now: datetime) -> GuestReport:
    """Bring the guest's own objects up to date and say how it is doing. Raises ApiError."""
    await asyncio.gather(*(_ensure_definition(client, definition) for definition in definitions()))
    versions, operators, namespaces, nodes = await asyncio.gather(
        client.list(CONFIG, "ClusterVersion"),
        client.list(CONFIG, "ClusterOperator"),
        client.list("v1", "Namespace"),
        client.list("v1", "Node"),
    )
    ready = sum(1 for node in nodes if is_true(node, "Ready"))
    version = next((live for live in versions if name_of(live) == "version"), None)
    known = {name_of(live): live for live in operators}
    present = {name_of(live) for live in namespaces}
    work: list[Coroutine[Any, Any, Any]] = [
        *(_create_namespace(client, name, facts) for name in NAMESPACES if name not in present),
        *(_ensure(client, cluster_operator(n, known.get(n), facts, now), known.get(n), facts) for n in OPERATORS),
        _ensure_kubeadmin(client, facts),
    ]
    told, *_ = await asyncio.gather(_ensure(client, cluster_version(version, facts, ready, now), version, facts), *work)
    return GuestReport(told, len(nodes), ready)


async def glance(client: Client) -> GuestReport:
    """How the guest is doing, with nothing touched."""
    version, nodes = await asyncio.gather(
        client.get_or_none(CONFIG, "ClusterVersion", "version"), client.list("v1", "Node")
    )
    return GuestReport(version, len(nodes), sum(1 for node in nodes if is_true(node, "Ready")))


async def _ensure_definition(client: Client, definition: Obj) -> None:
    """Looked for by name: definitions are the largest objects in a guest."""
    if await client.get_or_none(definition["apiVersion"], definition["kind"], name_of(definition)) is None:
        await client.apply(definition, field_manager=FIELD_MANAGER, force=True)


async def _ensure(client: Client, wanted: Obj, live: Obj | None, facts: Facts) -> Obj:
    status = wanted.pop("status")
    if live is None or not covers(wanted, live):
        if facts.request_id:
            wanted["metadata"]["annotations"] = {REQUEST_ID: facts.request_id}
        live = await client.apply(wanted, field_manager=FIELD_MANAGER, force=True)
    if not covers(status, live.get("status")):
        live = await client.update_status({**live, "status": status})
    return live


async def _create_namespace(client: Client, name: str, facts: Facts) -> None:
    metadata: Obj = {"name": name, "labels": {"hypershift.openshift.io/managed": "true"}}
    if facts.request_id:
        metadata["annotations"] = {REQUEST_ID: facts.request_id}
    try:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    except ApiError as error:
        if not error.exists:
            raise


async def _ensure_kubeadmin(client: Client, facts: Facts) -> None:
    namespace, name = KUBEADMIN
    live = await client.get_or_none("v1", "Secret", name, namespace)
    if not facts.password:
        if live is not None:
            await client.delete("v1", "Secret", name, namespace, missing_ok=True)
        return
    if live is not None:
        return
    hashed = await asyncio.to_thread(bcrypt, facts.password)
    if not hashed:
        return
    data = {"kubeadmin": base64.b64encode(hashed.encode()).decode()}
    metadata = {"name": name, "namespace": namespace}
    try:
        await client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
        )
    except ApiError as error:
        if not error.exists:
            raise

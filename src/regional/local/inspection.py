"""What is true of a region right now: every part with its state, as `status`, `up` and tests see it.

Services come from the supervisor, the rest from the clusters' own APIs with the machine owner's credentials: nothing
here keeps a second account of what runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import aiohttp
import msgspec

from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.core.process import ProcessRef
from regional.core.spawn import read_state
from regional.kube.client import ApiError, Client
from regional.kube.objects import (
    Obj,
    is_deleting,
    is_true,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
)
from regional.local.edge_check import edge_problem
from regional.local.provisioner.roots.api_gateway import SERVICE as EDGE
from regional.local.supervisor_client import ServiceStatus, SupervisorClient

GITOPS = "argocd"  # namespace and Deployment
UNATTENDED = "Unattended"
ISOLATION = (
    "separation: processes hold no address or credential of another cluster; "
    "network paths are not cut (all share this machine's loopback)"
)


class Part(msgspec.Struct):
    kind: str  # service | cluster | node | application | pod
    name: str
    where: str  # the region, or a cluster
    state: str
    ok: bool
    address: str = ""
    pid: int = 0
    since: str = ""
    message: str = ""


class Inspection(msgspec.Struct):
    region: str
    healthy: bool
    parts: list[Part]
    isolation: str = ISOLATION

    def problems(self) -> list[Part]:
        return [part for part in self.parts if not part.ok]

    def without_gitops(self) -> list[str]:
        """Clusters that had it and lost it: waiting does not bring it back."""
        return [part.where for part in self.parts if part.state == UNATTENDED]


def clusters(region: RegionPaths) -> list[str]:
    """Clusters whose provisioning has got as far as an admin kubeconfig; the Regional Cluster first."""
    found = sorted(path.parent.name for path in region.root.glob("clusters/*/admin.kubeconfig"))
    return sorted(found, key=lambda name: (name != "rc", name))


async def inspect(region: RegionPaths, expected: list[str] | None = None) -> Inspection:
    """`expected`: clusters that must be there; without them a half-provisioned region would look well."""
    services = await SupervisorClient.of(region).services()
    parts = [_service(status) for status in services]
    if expected and not any(part.name == EDGE for part in parts):
        parts.append(Part("service", EDGE, "region", "Absent", False, message="not provisioned yet"))
    names = clusters(region)
    parts += [
        Part("cluster", missing, region.region, "Absent", False, message="not provisioned yet")
        for missing in expected or []
        if missing not in names
    ]
    edges = [part for part in parts if part.kind == "service" and part.name == EDGE and part.ok]
    groups, _ = await asyncio.gather(
        asyncio.gather(*(inspect_cluster(region, name) for name in names)),
        asyncio.gather(*(_check_edge(region, part) for part in edges)),
    )
    for group in groups:
        parts += group
    return Inspection(region.region, bool(parts) and all(part.ok for part in parts), parts)


def _service(status: ServiceStatus) -> Part:
    message = status.message or (f"restarted {status.restarts}×" if status.restarts else "")
    return Part(
        kind="service",
        name=status.name,
        where="region",
        state=status.state.capitalize(),
        ok=status.state == "ready",
        address=status.address,
        pid=status.pid,
        since=status.since,
        message=message or status.description,
    )


async def _check_edge(region: RegionPaths, part: Part) -> None:
    if problem := await edge_problem(region, part.address):
        part.state, part.ok, part.message = "Unreachable", False, problem


async def inspect_cluster(region: RegionPaths, cluster: str) -> list[Part]:
    client = Client.from_kubeconfig(region.cluster(cluster) / "admin.kubeconfig")
    try:
        async with asyncio.timeout(5):
            return await parts_of(client, cluster, _pids(region, cluster))
    except (ApiError, OSError, TimeoutError, aiohttp.ClientError) as error:
        reason = str(error) or type(error).__name__
        return [Part("cluster", cluster, cluster, "Unreachable", False, message=reason)]
    finally:
        await client.close()


async def parts_of(client: Client, cluster: str, pids: dict[str, int]) -> list[Part]:
    nodes, applications, pods, deployments = await _all(
        client.list("v1", "Node"),
        _applications(client),
        client.list("v1", "Pod"),
        client.list("apps/v1", "Deployment", GITOPS),
    )
    parts = [_node(node, cluster) for node in nodes] or [
        Part("node", f"{cluster}-node-1", cluster, "Absent", False, message="no node has registered yet")
    ]
    parts += [_application(application, cluster) for application in applications] or [
        Part("application", "root", cluster, "Absent", False, message="GitOps has not been bootstrapped yet")
    ]
    # It cannot bring itself back, and nobody else writes what Applications say of themselves.
    if applications and not any(name_of(one) == GITOPS and spec_of(one).get("replicas") != 0 for one in deployments):
        message = "GitOps does not run, so that Applications may tell old news: `regionctl up` brings it back"
        parts.append(Part("cluster", cluster, cluster, UNATTENDED, False, message=message))
    return parts + [_pod(pod, cluster, pids) for pod in pods]


async def _all(*questions: Awaitable[list[Obj]]) -> list[list[Obj]]:
    """The first failure counts, and the others have come to their end too before the client is closed under them."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _applications(client: Client) -> list[Obj]:
    try:
        return await client.list("argoproj.io/v1alpha1", "Application", GITOPS)
    except (ApiError, UserError, LookupError):
        return []  # the CRD arrives with the bootstrap


def _node(node: Obj, cluster: str) -> Part:
    ready = is_true(node, "Ready")
    addresses = status_of(node).get("addresses") or [{}]
    condition: dict[str, Any] = next(
        (c for c in status_of(node).get("conditions") or [] if c.get("type") == "Ready"), {}
    )
    return Part(
        kind="node",
        name=name_of(node),
        where=cluster,
        state="Ready" if ready else "NotReady",
        ok=ready,
        address=str(addresses[0].get("address", "")),
        since=str(condition.get("lastTransitionTime", "")),
        message="" if ready else str(condition.get("message", "")),
    )


def _application(application: Obj, cluster: str) -> Part:
    status = status_of(application)
    sync = (status.get("sync") or {}).get("status", "Unknown")
    health = (status.get("health") or {}).get("status", "Unknown")
    conditions = "; ".join(str(c.get("message", "")) for c in status.get("conditions") or [])
    operation = status.get("operationState") or {}
    ok = sync == "Synced" and health == "Healthy"
    message = conditions or ("" if ok else str(operation.get("message", "")))
    since = str(operation.get("finishedAt") or operation.get("startedAt") or "")
    return Part("application", name_of(application), cluster, f"{sync}/{health}", ok, since=since, message=message)


def _pod(pod: Obj, cluster: str, pids: dict[str, int]) -> Part:
    status = status_of(pod)
    ready = is_true(pod, "Ready")
    done = status.get("phase") == "Succeeded"
    phase = str(status.get("phase", "Pending"))
    waiting = [
        f"{c.get('name')}: {w.get('reason', '')} {w.get('message', '')}".strip()
        for c in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
        if (w := (c.get("state") or {}).get("waiting"))
    ]
    state = "Terminating" if is_deleting(pod) else ("Ready" if ready else phase)
    return Part(
        kind="pod",
        name=f"{namespace_of(pod)}/{name_of(pod)}",
        where=cluster,
        state=state,
        ok=(ready and not is_deleting(pod)) or done,
        address=str(status.get("podIP", "")),
        pid=pids.get(uid_of(pod), 0),
        since=str(status.get("startTime") or metadata_of(pod).get("creationTimestamp", "")),
        message="; ".join(waiting),
    )


def _pids(region: RegionPaths, cluster: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for state in region.node(cluster).glob("pods/*/containers/*/state.json"):
        ref: ProcessRef | None = read_state(state)
        if ref is not None and ref.alive():
            found.setdefault(state.parents[2].name, ref.pid)
    return found

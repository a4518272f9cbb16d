"""The end of a hosted cluster, in order: pools, control plane, its namespace with all in it, the customer's Secrets.

Each step waits until what it removes is gone. Where it stands, and for whom it waits, is said in the condition
`HostedClusterDeleting`, because a deletion that hangs in silence is the worst of all.
"""

from __future__ import annotations

import logging

from regional.core.clock import Clock
from regional.hypershift.certificates import KeyRing
from regional.hypershift.conditions import Finding, write
from regional.hypershift.guest.connection import Guests
from regional.hypershift.looking import Looker
from regional.hypershift.names import (
    API_VERSION,
    FINALIZER,
    KEEP_NAMESPACE,
    Traced,
    admin_kubeconfig,
    cluster_of,
    control_plane_namespace,
    kubeadmin_password,
)
from regional.hypershift.plane import PlaneMaker
from regional.hypershift.world import World
from regional.hypershift.writing import Writer, drop_finalizer
from regional.kube.client import Client
from regional.kube.objects import (
    Obj,
    annotations_of,
    copied,
    finalizers_of,
    generation_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    status_of,
    uid_of,
)

log = logging.getLogger(__name__)
AGAIN_SECONDS = 2.0
"""Only a net below the events that bring us back."""


class Deletion:
    def __init__(
        self,
        client: Client,
        world: World,
        writer: Writer,
        maker: PlaneMaker,
        ring: KeyRing,
        guests: Guests,
        looker: Looker,
        clock: Clock,
    ) -> None:
        self._client, self._world, self._writer, self._maker = client, world, writer, maker
        self._ring, self._guests, self._looker, self._clock = ring, guests, looker, clock

    async def advance(self, hosted: Obj) -> float | None:
        if FINALIZER not in finalizers_of(hosted):
            return None
        key = key_of(hosted)
        if waiting := await self._remove_pools(hosted):
            return await self._wait(hosted, "WaitingForNodePools", waiting)
        await self._guests.forget(key)
        if await self._remove_control_plane(hosted):
            return await self._wait(hosted, "WaitingForHostedControlPlane", name_of(hosted))
        if waiting := await self._remove_namespace(hosted):
            return await self._wait(hosted, "WaitingForNamespace", waiting)
        for name in (admin_kubeconfig(hosted), kubeadmin_password(hosted)):
            await self._maker.take_back(hosted, name)
        self._looker.forget(key)
        self._ring.forget(hosted)
        await drop_finalizer(self._client, "HostedCluster", hosted)
        Traced(log, hosted).info("hosted cluster is gone")
        return None

    async def _remove_pools(self, hosted: Obj) -> str:
        pools = self._world.pools_of(key_of(hosted))
        for pool in pools:
            if not is_deleting(pool):
                answer = await self._client.delete(
                    API_VERSION, "NodePool", name_of(pool), namespace_of(pool), uid=uid_of(pool), missing_ok=True
                )
                if answer.get("kind") == "NodePool":
                    self._world.pools.observe(answer)
        if pools:
            return ", ".join(sorted(name_of(pool) for pool in pools))
        # Asked of the server, too: a pool that our copy does not show yet would be left without its cluster.
        live = await self._client.list(API_VERSION, "NodePool", namespace_of(hosted))
        return ", ".join(name_of(pool) for pool in live if pool["spec"].get("clusterName") == name_of(hosted))

    async def _remove_control_plane(self, hosted: Obj) -> bool:
        """There is nothing of a cloud to clean up after it, so its finalizer goes as soon as it is deleted."""
        namespace = control_plane_namespace(hosted)
        live = await self._client.get_or_none(API_VERSION, "HostedControlPlane", name_of(hosted), namespace)
        if live is None or cluster_of(live) != key_of(hosted):
            return False
        if not is_deleting(live):
            live = await self._client.delete(
                API_VERSION, "HostedControlPlane", name_of(live), namespace, uid=uid_of(live), missing_ok=True
            )
        if live.get("kind") == "HostedControlPlane" and FINALIZER in finalizers_of(live):
            await drop_finalizer(self._client, "HostedControlPlane", live)
            Traced(log, hosted).info("control plane removed")
        left = await self._client.get_or_none(API_VERSION, "HostedControlPlane", name_of(hosted), namespace)
        return left is not None

    async def _remove_namespace(self, hosted: Obj) -> str:
        name = control_plane_namespace(hosted)
        live = await self._client.get_or_none("v1", "Namespace", name)
        if live is None or cluster_of(live) != key_of(hosted) or KEEP_NAMESPACE in annotations_of(hosted):
            return ""
        if not is_deleting(live):
            await self._client.delete("v1", "Namespace", name, uid=uid_of(live), missing_ok=True)
            Traced(log, hosted).info("control plane's namespace is being removed", extra={"namespace": name})
        remains = [
            c["message"] for c in status_of(live).get("conditions") or [] if c["type"] == "NamespaceContentRemaining"
        ]
        return f"{name}: {remains[0]}" if remains and is_deleting(live) else name

    async def _wait(self, hosted: Obj, phase: str, what: str) -> float:
        wanted = copied(hosted)
        finding = Finding("True", phase, f"waiting for the end of {what}")
        write(wanted, {"HostedClusterDeleting": finding}, generation_of(hosted), self._clock.now())
        await self._writer.status(self._world.hosted, hosted, wanted["status"])
        return AGAIN_SECONDS

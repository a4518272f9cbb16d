"""NodePool → simulated nodes in its guest → status: one pass over one pool."""

from __future__ import annotations

import asyncio
import logging

from regional.core.clock import Clock
from regional.hypershift import pool_findings as findings
from regional.hypershift.conditions import Finding, Findings, false, keep_only, read, true, write
from regional.hypershift.guest import nodes
from regional.hypershift.guest.connection import GuestClient, Guests
from regional.hypershift.guest.nodes import Pace, PoolNodes
from regional.hypershift.names import API_VERSION, CURRENT_CONFIG_VERSION, FINALIZER, Traced
from regional.hypershift.releases import Release
from regional.hypershift.world import World
from regional.hypershift.writing import Writer, drop_finalizer, overtaken
from regional.kube.client import ApiError, Client
from regional.kube.objects import (
    Obj,
    annotations_of,
    copied,
    finalizers_of,
    generation_of,
    is_deleting,
    is_true,
    key_of,
    name_of,
    namespace_of,
    owner_reference,
    owners_of,
    spec_of,
    status_of,
    version_of,
)

log = logging.getLogger(__name__)
STEADY_SECONDS, WAITING_SECONDS = 60.0, 5.0
_GUEST_SECONDS = 60.0
_ONLY_WHILE_FALSE = "IgnitionEndpointAvailable"


class Broken(Exception):
    """A validation that stops the pass; the condition says why."""

    def __init__(self, kind: str, finding: Finding) -> None:
        super().__init__(finding.message)
        self.kind, self.finding = kind, finding


class NodePoolReconciler:
    def __init__(self, client: Client, world: World, writer: Writer, guests: Guests, clock: Clock) -> None:
        self._client, self._world, self._writer = client, world, writer
        self._guests, self._clock = guests, clock

    async def reconcile(self, pool: Obj) -> float | None:
        hosted = self._world.cluster_of_pool(pool)
        if is_deleting(pool):
            return await self._end(pool, hosted)
        if hosted is None:
            name = spec_of(pool)["clusterName"]
            await self._tell(pool, findings.waiting("NotFound", f"hosted cluster {name} does not exist"))
            return STEADY_SECONDS
        if is_deleting(hosted):
            return None
        pool = await self._claim(pool, hosted)
        told: dict[str, Finding] = {**findings.autoscaling(pool)}
        try:
            return await self._furnish(pool, hosted, told)
        except Broken as broken:
            told |= findings.waiting(broken.finding.reason, broken.finding.message)
            told[broken.kind] = broken.finding
            await self._tell(pool, told)
            return WAITING_SECONDS

    async def _claim(self, pool: Obj, hosted: Obj) -> Obj:
        """Finalizer and owner, before the first node is made."""
        owners = [owner for owner in owners_of(pool) if owner.get("kind") != "HostedCluster"]
        wanted = [*owners, owner_reference(hosted, controller=False)]
        if FINALIZER in finalizers_of(pool) and owners_of(pool) == wanted:
            return pool
        finalizers = [f for f in finalizers_of(pool) if f != FINALIZER]
        metadata = {
            "resourceVersion": version_of(pool),
            "finalizers": [*finalizers, FINALIZER],
            "ownerReferences": wanted,
        }
        return await self._patch(pool, metadata)

    async def _patch(self, pool: Obj, metadata: Obj) -> Obj:
        answer = await self._client.patch(
            API_VERSION, "NodePool", name_of(pool), namespace_of(pool), {"metadata": metadata}
        )
        self._world.pools.observe(answer)
        return answer

    async def _furnish(self, pool: Obj, hosted: Obj, told: dict[str, Finding]) -> float:
        """`told` is filled as far as the pass comes."""
        release = self._validate(pool, hosted, told)
        config = await self._config(pool)
        made_of = findings.digest(pool, hosted, release, config)
        if findings.paused(pool, self._clock.now()):
            told["ReconciliationActive"] = false("ReconciliationPaused", "paused by spec.pausedUntil")
            await self._tell(pool, told)
            return WAITING_SECONDS
        told["ReconciliationActive"] = true("ReconciliationActive", "Reconciliation is active")
        client = await self._guest(hosted)
        replicas = findings.desired_replicas(pool, int(status_of(pool).get("replicas") or 0))
        pace = Pace.of(spec_of(pool)["management"], replicas)
        if annotations_of(pool).get(CURRENT_CONFIG_VERSION) != made_of:
            # Not the answer: it may have a newer spec than the one this pass is about.
            await self._patch(pool, {"annotations": {CURRENT_CONFIG_VERSION: made_of}})
        try:
            async with asyncio.timeout(_GUEST_SECONDS):
                template = findings.template(pool, hosted, release, made_of)
                found = await nodes.bring(client, template, replicas, pace, self._clock.now())
        except (ApiError, TimeoutError) as error:
            text = f"the guest's API does not take nodes: {error or 'no answer in time'}"
            raise Broken("Ready", false("WaitingForAvailableMachines", text)) from error
        told |= findings.with_nodes(found, replicas, made_of)
        await self._tell(pool, told, found, release)
        return STEADY_SECONDS

    def _validate(self, pool: Obj, hosted: Obj, told: dict[str, Finding]) -> Release:
        told["UpdateManagementEnabled"] = findings.management(pool)
        release, told["ValidReleaseImage"] = findings.release_of(pool, hosted)
        if release is None:
            raise Broken("ValidReleaseImage", told["ValidReleaseImage"])
        if not told["UpdateManagementEnabled"].holds:
            raise Broken("UpdateManagementEnabled", told["UpdateManagementEnabled"])
        told["ValidArchPlatform"] = findings.architecture(pool, hosted)
        if not told["ValidArchPlatform"].holds:
            raise Broken("ValidArchPlatform", told["ValidArchPlatform"])
        told["SupportedVersionSkew"] = findings.skew(release, hosted)
        if not status_of(hosted).get("kubeconfig") or not is_true(hosted, "KubeAPIServerAvailable"):
            missing = false("IgnitionEndpointMissing", "the hosted cluster's control plane is not available yet")
            raise Broken(_ONLY_WHILE_FALSE, missing)
        return release

    async def _config(self, pool: Obj) -> dict[str, str]:
        """What the pool's ConfigMaps say: part of what nodes are made of."""
        found: dict[str, str] = {}
        for field, key, kind in (
            ("config", "config", "ValidMachineConfig"),
            ("tuningConfig", "tuning", "ValidTuningConfig"),
        ):
            for reference in spec_of(pool).get(field) or []:
                name = reference["name"]
                live = await self._client.get_or_none("v1", "ConfigMap", name, namespace_of(pool)) if name else None
                text = ((live or {}).get("data") or {}).get(key)
                if text is None:
                    why = f'configmap "{name}" not found' if live is None else f'configmap "{name}" has no key {key}'
                    raise Broken(kind, false("ValidationFailed", why))
                found[f"{field}/{name}"] = text
        return found

    async def _guest(self, hosted: Obj) -> GuestClient:
        access = self._world.access_to(hosted)
        if access is None:
            raise Broken("Ready", false("WaitingForAvailableMachines", "the guest has no address or keys yet"))
        return await self._guests.client(key_of(hosted), access)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _end(self, pool: Obj, hosted: Obj | None) -> float | None:
        if FINALIZER not in finalizers_of(pool):
            return None
        try:
            await self._remove_nodes(pool, hosted)
        except (ApiError, TimeoutError, Broken) as error:
            going = hosted is None or is_deleting(hosted)
            if not going:
                await self._tell(
                    pool, findings.waiting("WaitingForGuest", f"cannot remove nodes: {error or 'timeout'}")
                )
                return 1.0
            # The guest goes with all that is in it; its API need not be asked first.
            Traced(log, pool).info("nodes are left to the end of their guest", extra={"reason": str(error)})
        await drop_finalizer(self._client, "NodePool", pool)
        self._world.pools.observe_deleted(pool)
        Traced(log, pool).info("node pool is gone")
        return None

    async def _remove_nodes(self, pool: Obj, hosted: Obj | None) -> None:
        if hosted is None or self._world.pod_of(hosted) is None:
            return
        client = await self._guest(hosted)
        async with asyncio.timeout(2.0 if is_deleting(hosted) else 20.0):
            count = await nodes.remove_all(client, name_of(pool))
        if count:
            Traced(log, pool).info("nodes removed", extra={"nodes": count})

    # -- telling -----------------------------------------------------------------------------------------------------

    async def _tell(
        self, pool: Obj, told: Findings, found: PoolNodes | None = None, release: Release | None = None
    ) -> None:
        live = self._world.pools.get(*key_of(pool)) or pool
        if overtaken(pool, live):
            return
        wanted = copied(live)
        write(wanted, told, generation_of(live), self._clock.now())
        if _ONLY_WHILE_FALSE not in told and read(wanted, _ONLY_WHILE_FALSE) is not None:
            keep_only(wanted, {c["type"] for c in wanted["status"]["conditions"]} - {_ONLY_WHILE_FALSE})
        status = wanted["status"]
        if found is not None and release is not None:
            before = int(status.get("replicas") or 0)
            status |= {"replicas": len(found.ready), "version": release.version}
            versions = nodes.versions_of(found.nodes)
            status.pop("nodesInfo", None)
            if versions:
                status["nodesInfo"] = {"nodeVersions": versions}
            if before != len(found.ready):
                Traced(log, pool).info("node pool scaled", extra={"nodes": len(found.ready), "before": before})
        await self._writer.status(self._world.pools, live, status)

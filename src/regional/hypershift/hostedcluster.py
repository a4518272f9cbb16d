"""HostedCluster → control plane → status: one pass over one cluster.

A pass looks at everything anew and may end anywhere; the next one goes on. It never assumes that an earlier pass
finished, nor that it was made by this process.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from typing import Any

from regional.core.clock import Clock, rfc3339
from regional.hypershift import manifests, status
from regional.hypershift.conditions import Finding, Findings, write
from regional.hypershift.guest.versions import Facts
from regional.hypershift.looking import Looker
from regional.hypershift.names import (
    API_PORT,
    API_VERSION,
    FINALIZER,
    HAS_BEEN_AVAILABLE,
    KUBE_APISERVER,
    Traced,
    admin_kubeconfig,
    control_plane_namespace,
    kubeadmin_password,
    request_of,
)
from regional.hypershift.plane import Plane, PlaneMaker, has_kubeadmin
from regional.hypershift.releases import Release
from regional.hypershift.status import Observed
from regional.hypershift.timing import Stretches
from regional.hypershift.validation import Gates, Surroundings, judge
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
    spec_of,
    status_of,
    version_of,
)

log = logging.getLogger(__name__)
STEADY_SECONDS, WAITING_SECONDS, GUEST_SECONDS = 60.0, 1.0, 0.25
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_INFRA_NAME = 21
SUCCEEDED = Finding("True", "ReconciliatonSucceeded", "Reconciliation completed successfully")


class HostedClusterReconciler:
    def __init__(
        self,
        client: Client,
        world: World,
        writer: Writer,
        maker: PlaneMaker,
        looker: Looker,
        stretches: Stretches,
        clock: Clock,
    ) -> None:
        self._client, self._world, self._writer = client, world, writer
        self._maker, self._looker, self._stretches, self._clock = maker, looker, stretches, clock

    async def reconcile(self, hosted: Obj) -> float:
        """Seconds until the next look, should nothing happen before."""
        hosted = await self._identify(hosted)
        around = await self._surroundings(hosted)
        gates = judge(hosted, around)
        release = gates.carried_out
        if release is None:
            return await self._stand_still(hosted, gates)
        assert around.pull_secret is not None
        if around.control_plane is not None and is_deleting(around.control_plane):
            return await self._let_go(hosted, gates, around.control_plane)
        if not status_of(hosted).get("conditions"):
            plane, _ = await asyncio.gather(
                self._maker.make(hosted, around.pull_secret), self._tell(hosted, gates, None, Observed())
            )
        else:
            try:
                plane = await self._maker.make(hosted, around.pull_secret)
            except ApiError:
                await self._tell_what_runs(hosted, gates, around.control_plane)
                raise
        observed = await self._observe(hosted, release, plane)
        await self._tell(hosted, gates, plane.control_plane, observed)
        if not observed.serving:
            return WAITING_SECONDS * 2
        return STEADY_SECONDS if not (observed.unreachable or observed.configured) else GUEST_SECONDS

    async def _identify(self, hosted: Obj) -> Obj:
        """The finalizer before anything is made; ids that never change, because they are in the spec from then on."""
        spec = spec_of(hosted)
        ids = {}
        if not spec.get("clusterID"):
            ids["clusterID"] = str(uuid.uuid4())
        if not spec.get("infraID"):
            suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
            ids["infraID"] = f"{name_of(hosted)[:_INFRA_NAME].replace('.', '-').rstrip('-')}-{suffix}"
        if not ids and FINALIZER in finalizers_of(hosted):
            return hosted
        metadata = {
            "resourceVersion": version_of(hosted),
            "finalizers": [*finalizers_of(hosted), *([FINALIZER] if FINALIZER not in finalizers_of(hosted) else [])],
        }
        patch = {"metadata": metadata} | ({"spec": ids} if ids else {})
        answer = await self._client.patch(API_VERSION, "HostedCluster", name_of(hosted), namespace_of(hosted), patch)
        self._world.said_of_hosted(answer)
        Traced(log, hosted).info("hosted cluster accepted", extra={"infra_id": spec_of(answer)["infraID"]})
        return answer

    async def _surroundings(self, hosted: Obj) -> Surroundings:
        namespace = control_plane_namespace(hosted)
        known = self._world.namespaces.get("", namespace)
        pull_secret, there = await asyncio.gather(
            self._client.get_or_none("v1", "Secret", _pull_secret(hosted), namespace_of(hosted)),
            _there(known) if known is not None else self._client.get_or_none("v1", "Namespace", namespace),
        )
        control_plane = self._world.control_planes.get(namespace, name_of(hosted))
        return Surroundings(self._clock.now(), pull_secret, there, control_plane)

    async def _let_go(self, hosted: Obj, gates: Gates, control_plane: Obj) -> float:
        """Somebody deleted the control plane (or its whole namespace) under a cluster that lives: it ends, and is made
        again, empty. Nobody may hold it in between, and nobody may call it available."""
        if FINALIZER in finalizers_of(control_plane):
            await drop_finalizer(self._client, "HostedControlPlane", control_plane)
            Traced(log, hosted).warning("the control plane was deleted by somebody else; it will be made again")
        await self._tell_what_runs(hosted, gates, control_plane)
        return WAITING_SECONDS

    async def _tell_what_runs(self, hosted: Obj, gates: Gates, control_plane: Obj | None) -> None:
        if control_plane is not None:
            observed = await self._look(hosted, self._seen(hosted, None), None)
            await self._tell(hosted, gates, control_plane, observed)

    async def _stand_still(self, hosted: Obj, gates: Gates) -> float:
        """Nothing is made or changed; what runs goes on and is still reported."""
        namespace = control_plane_namespace(hosted)
        control_plane = self._world.control_planes.get(namespace, name_of(hosted))
        observed = Observed()
        if control_plane is not None:
            if gates.paused:
                await self._pause(hosted, control_plane)
            observed = await self._look(hosted, self._seen(hosted, None), None)
        Traced(log, hosted).info("hosted cluster waits", extra={"reason": gates.blocked or "paused"})
        await self._tell(hosted, gates, control_plane, observed)
        return WAITING_SECONDS

    async def _pause(self, hosted: Obj, control_plane: Obj) -> None:
        """Nothing else of the spec is passed on: that is what the pause is for."""
        until = spec_of(hosted)["pausedUntil"]
        if spec_of(control_plane).get("pausedUntil") != until:
            wanted = manifests.hosted_control_plane(hosted)
            wanted["spec"] = spec_of(control_plane) | {"pausedUntil": until}
            await self._writer.ensure(self._world.control_planes, wanted)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _seen(self, hosted: Obj, release: Release | None) -> Observed:
        namespace = control_plane_namespace(hosted)
        return Observed(
            address=self._world.address_of(hosted),
            kubeconfig=self._world.secrets.get(namespace_of(hosted), admin_kubeconfig(hosted)) is not None,
            stateful_set=self._world.stateful_sets.get(namespace, KUBE_APISERVER),
            pod=self._world.pod_of(hosted),
            release=release,
        )

    async def _observe(self, hosted: Obj, release: Release, plane: Plane) -> Observed:
        observed = self._seen(hosted, release)
        facts = Facts(
            cluster_id=spec_of(hosted)["clusterID"],
            channel=str(spec_of(hosted).get("channel") or ""),
            release=release,
            rolled_out=observed.rolled_out,
            password=plane.keys.password if has_kubeadmin(hosted) else "",
            request_id=request_of(hosted),
        )
        return await self._look(hosted, observed, facts)

    async def _look(self, hosted: Obj, observed: Observed, facts: Facts | None) -> Observed:
        key, access = key_of(hosted), self._world.access_to(hosted)
        if not observed.serving or access is None:
            observed.unreachable = "kube-apiserver is not ready"
            observed.guest = self._looker.last_report(key)
            return observed
        depends_on = self._depends_on(hosted, observed)
        look = await self._looker.look(key, access, observed.address, facts, depends_on)
        # The look took its time, in which the workload's own counts have followed its pod.
        seen = self._seen(hosted, observed.release)
        observed.stateful_set, observed.pod = seen.stateful_set, seen.pod
        observed.unreachable, observed.store_problem = look.unreachable, look.store_problem
        observed.configured, observed.guest = look.configured, look.report
        return observed

    def _depends_on(self, hosted: Obj, observed: Observed) -> tuple[Any, ...]:
        pools = self._world.pools_of(key_of(hosted))
        nodes = sorted((name_of(pool), int(status_of(pool).get("replicas") or 0)) for pool in pools)
        assert observed.pod is not None
        restarts = [c.get("restartCount") for c in status_of(observed.pod).get("containerStatuses") or []]
        return (nodes, observed.pod["metadata"]["uid"], restarts)

    # -- telling -----------------------------------------------------------------------------------------------------

    async def _tell(self, hosted: Obj, gates: Gates, control_plane: Obj | None, observed: Observed) -> None:
        """Components and the control plane first: the HostedCluster's word is made of theirs."""
        parts = status.components(observed)
        findings: Findings | None = None
        if control_plane is not None:
            was_available = HAS_BEEN_AVAILABLE in annotations_of(hosted) or is_true(hosted, "Available")
            findings = status.control_plane_findings(observed, parts, was_available=was_available)
            if observed.serving or self._world.components.in_namespace(control_plane_namespace(hosted)):
                await asyncio.gather(*(self._tell_component(hosted, name, part) for name, part in parts.items()))
        live = self._world.hosted.get(*key_of(hosted)) or hosted
        if overtaken(hosted, live):
            return
        wanted = copied(live)
        now, generation = self._clock.now(), generation_of(live)
        told = status.hosted_cluster_findings(live, gates.findings, findings, gates.blocked, observed.guest)
        write(wanted, {**told, "ReconciliationSucceeded": SUCCEEDED}, generation, now)
        body = wanted["status"]
        body["version"] = status.version(live, observed.guest, generation, now)
        if control_plane is not None:
            self._describe(hosted, body, gates, observed, parts, generation)
            await self._tell_control_plane(hosted, findings or {}, body)
        await self._writer.status(self._world.hosted, live, body)
        if findings is not None:
            await self._note_availability(hosted, live, findings["Available"], observed.address)

    async def _note_availability(self, hosted: Obj, before: Obj, available: Finding, endpoint: str) -> None:
        if HAS_BEEN_AVAILABLE not in annotations_of(before):
            if available.holds:
                self._stretches.end(before, endpoint)
                await self._remember_availability(hosted)
        elif available.holds != is_true(before, "Available"):
            text = "hosted cluster is available again" if available.holds else "hosted cluster is not available"
            Traced(log, hosted).info(text, extra={"reason": available.reason, "detail": available.message})

    def _describe(
        self,
        hosted: Obj,
        body: Obj,
        gates: Gates,
        observed: Observed,
        parts: dict[str, status.Component],
        generation: int,
    ) -> None:
        if observed.address:
            body["controlPlaneEndpoint"] = {"host": observed.address, "port": API_PORT}
        if observed.kubeconfig:
            body["kubeconfig"] = {"name": admin_kubeconfig(hosted)}
        body.pop("kubeadminPassword", None)
        if observed.kubeconfig and has_kubeadmin(hosted):
            body["kubeadminPassword"] = {"name": kubeadmin_password(hosted)}
        if (release := gates.carried_out) is not None:
            body["payloadArch"] = release.architecture
            complete = all(part.rolled_out.holds for part in parts.values())
            known = body.get("controlPlaneVersion") or {}
            body["controlPlaneVersion"] = status.control_plane_version(
                known, release, complete, generation, self._clock.now()
            )

    async def _tell_component(self, hosted: Obj, name: str, part: status.Component) -> None:
        live = await self._writer.ensure(self._world.components, manifests.component(hosted, name))
        wanted = copied(live)
        generation = generation_of(live)
        write(wanted, {"Available": part.available, "RolloutComplete": part.rolled_out}, generation, self._clock.now())
        if part.version:
            wanted["status"]["version"] = part.version
        await self._writer.status(self._world.components, live, wanted["status"])

    async def _tell_control_plane(self, hosted: Obj, findings: Findings, body: Obj) -> None:
        live = self._world.control_planes.get(control_plane_namespace(hosted), name_of(hosted))
        if live is None:
            return
        wanted = copied(live)
        write(wanted, findings, generation_of(live), self._clock.now())
        ready = findings["Available"].holds
        told = wanted["status"]
        told |= {
            "ready": ready,
            "initialized": bool(told.get("initialized")) or ready,
            "externalManagedControlPlane": True,
            "versionStatus": body["version"],
        }
        told |= {name: body[name] for name in ("controlPlaneVersion", "controlPlaneEndpoint") if name in body}
        if "kubeconfig" in body:
            told["kubeConfig"] = {"name": "admin-kubeconfig", "key": "kubeconfig"}
        complete = [e for e in body.get("controlPlaneVersion", {}).get("history", []) if e["state"] == "Completed"]
        if complete:
            told |= {"version": complete[0]["version"], "releaseImage": complete[0]["image"]}
        await self._writer.status(self._world.control_planes, live, told)

    async def _remember_availability(self, hosted: Obj) -> None:
        patch = {"metadata": {"annotations": {HAS_BEEN_AVAILABLE: rfc3339(self._clock.now())}}}
        answer = await self._client.patch(API_VERSION, "HostedCluster", name_of(hosted), namespace_of(hosted), patch)
        self._world.hosted.observe(answer)

    async def tell_failure(self, hosted: Obj, error: Exception) -> None:
        """What stopped a pass, where people look for it."""
        live = self._world.hosted.get(*key_of(hosted))
        if live is None or overtaken(hosted, live):
            return
        wanted = copied(live)
        failed = Finding("False", "ReconciliationError", str(error) or type(error).__name__)
        write(wanted, {"ReconciliationSucceeded": failed}, generation_of(live), self._clock.now())
        await self._writer.status(self._world.hosted, live, wanted["status"])


def _pull_secret(hosted: Obj) -> str:
    """An empty name would ask for all Secrets."""
    return str(spec_of(hosted)["pullSecret"].get("name") or "-")


async def _there(obj: Obj) -> Obj:
    return obj

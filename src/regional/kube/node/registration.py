"""This node's own objects: the Node, with what the machine has, and the Lease that says that we are alive."""

from __future__ import annotations

import logging
import os
import platform
from datetime import datetime
from pathlib import Path

from regional.core.clock import Clock, rfc3339
from regional.kube.client import ApiError, Client
from regional.kube.node.context import NodeSettings
from regional.kube.node.quantities import machine_capacity
from regional.kube.objects import Obj, copied, is_true, set_condition, status_of, uid_of

log = logging.getLogger(__name__)
VERSION = "v1.35.2"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
STATUS_SECONDS = 300.0
_MAX_PODS = "250"


class Registration:
    def __init__(self, client: Client, settings: NodeSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._lease: Obj | None = None
        self._node: Obj | None = None

    async def run(self) -> None:
        """Until cancelled. An API that does not answer is asked again; leases are what tells others that we live."""
        status_due = self._clock.monotonic()
        while True:
            pause = RENEW_SECONDS
            try:
                if self._clock.monotonic() >= status_due or not await self._believed():
                    await self.register()
                    status_due = self._clock.monotonic() + STATUS_SECONDS
                await self.renew()
            except ApiError as error:
                log.info("node not renewed", extra={"reason": str(error)})
                self._lease, pause = None, 1.0
                if error.not_found:
                    status_due = self._clock.monotonic()
            await self._clock.sleep(pause)

    async def _believed(self) -> bool:
        """Others may have called us lost while the machine or the API stood still; only we can say otherwise."""
        node = await self._client.get_or_none("v1", "Node", self._settings.node_name)
        return node is not None and is_true(node, "Ready")

    async def register(self) -> None:
        name = self._settings.node_name
        node = await self._client.get_or_none("v1", "Node", name)
        if node is None:
            node = await self._client.create(self._object())
            log.info("node registered", extra={"node": name})
        wanted = copied(node)
        wanted["status"] = {**status_of(node), **self._status(node)}
        self._node = await self._client.patch(
            "v1", "Node", name, None, {"status": wanted["status"]}, subresource="status"
        )

    async def renew(self) -> None:
        now = _micro(self._clock.now())
        if self._lease is None:
            self._lease = await self._client.get_or_none(
                "coordination.k8s.io/v1", "Lease", self._settings.node_name, LEASE_NAMESPACE
            )
        if self._lease is None:
            self._lease = await self._client.create(self._new_lease(now))
        else:
            self._lease["spec"] |= {"renewTime": now, "holderIdentity": self._settings.node_name}
            self._lease = await self._client.update(self._lease)

    def _new_lease(self, now: str) -> Obj:
        name = self._settings.node_name
        lease: Obj = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
        }
        if self._node is not None:
            lease["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(self._node)}
            ]
        return lease

    def _object(self) -> Obj:
        name = self._settings.node_name
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
            "node.kubernetes.io/instance-type": "processes",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"podCIDR": self._settings.pod_cidr, "podCIDRs": [self._settings.pod_cidr]},
        }

    def _status(self, node: Obj) -> Obj:
        capacity = machine_capacity() | {"pods": _MAX_PODS}
        probe: Obj = {"status": {"conditions": copied(status_of(node)).get("conditions") or []}}
        now = self._clock.now()
        set_condition(probe, "Ready", True, "KubeletReady", "the node runs pods as processes", now=now)
        for pressure in ("MemoryPressure", "DiskPressure", "PIDPressure"):
            set_condition(probe, pressure, False, f"KubeletHasNo{pressure}", "not measured on this node", now=now)
        conditions = [c | {"lastHeartbeatTime": rfc3339(now)} for c in probe["status"]["conditions"]]
        return {
            "addresses": [
                {"type": "InternalIP", "address": self._settings.address},
                {"type": "Hostname", "address": self._settings.node_name},
            ],
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._settings.port}},
            "nodeInfo": _node_info(),
        }


def _node_info() -> Obj:
    release = {}
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        if Path(path).exists():
            pairs = (line.partition("=") for line in Path(path).read_text().splitlines())
            release = {key: value.strip('"') for key, _, value in pairs}
            break
    return {
        "architecture": _architecture(),
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "containerRuntimeVersion": "process://1",
        "kernelVersion": os.uname().release,
        "kubeProxyVersion": VERSION,
        "kubeletVersion": VERSION,
        "machineID": _line("/etc/machine-id"),
        "operatingSystem": "linux",
        "osImage": release.get("PRETTY_NAME", "Linux"),
        "systemUUID": _line("/etc/machine-id"),
    }


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

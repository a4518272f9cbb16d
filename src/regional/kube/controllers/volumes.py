"""Storage: every PersistentVolumeClaim gets a volume of its node's disk, and the volume goes with the claim.

The roles of the volume binder, of the provisioner and of the protection of claims in use, for the one kind of storage
there is: a directory on the node (`kube.node` makes and removes it). Whatever class a claim names, it gets that.

A claim that is deleted stays until no pod uses it and its directory is gone, so that a namespace that is gone has left
no file. The order is the reverse of a cloud's, where the claim leaves first.
"""

from __future__ import annotations

from collections.abc import Iterable

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context, Controller
from regional.kube.controllers.pods import is_finished
from regional.kube.disks import DRIVER, HOLDS_FILES, is_ours
from regional.kube.objects import (
    Key,
    Obj,
    copied,
    finalizers_of,
    is_deleting,
    key_of,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    uid_of,
    version_of,
)

IN_USE = "kubernetes.io/pvc-protection"
BOUND = "pv.kubernetes.io/bind-completed"
"""Without it kube-scheduler takes a claim for unbound."""


class VolumeController(Controller):
    """Keys are claims (namespace, name) and volumes ("", name)."""

    name = "volume"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.claims = context.informers.of("v1", "PersistentVolumeClaim")
        self.volumes = context.informers.of("v1", "PersistentVolume")
        self.pods = context.informers.of("v1", "Pod")
        self.claims.add_handler(self._claim_changed)
        self.volumes.add_handler(self._volume_changed)
        self.pods.add_handler(self._pod_changed)

    def keys(self) -> Iterable[Key]:
        return [*self.claims.objects, *self.volumes.objects]

    def _claim_changed(self, kind: str, claim: Obj) -> None:
        self.queue.add(key_of(claim))
        if kind == "DELETED":
            self.queue.add(("", volume_name(claim)))

    def _volume_changed(self, kind: str, volume: Obj) -> None:
        self.queue.add(key_of(volume))
        claim = spec_of(volume).get("claimRef") or {}
        if kind == "DELETED" and claim:
            self.queue.add((claim.get("namespace", ""), claim.get("name", "")))

    def _pod_changed(self, kind: str, pod: Obj) -> None:
        if kind == "DELETED" or is_finished(pod):
            for name in claims_of(pod):
                self.queue.add((namespace_of(pod), name))

    async def reconcile(self, key: Key) -> float | None:
        if not key[0]:
            volume = self.volumes.get(*key)
            return await self._reclaim(volume) if volume is not None else None
        claim = self.claims.get(*key)
        if claim is None:
            return None
        return await (self._release(claim) if is_deleting(claim) else self._provide(claim))

    # -- a claim that lives ----------------------------------------------------------------------------------------

    async def _provide(self, claim: Obj) -> float | None:
        """The volume first: a claim never names a volume that is not there."""
        wanted = volume_name(claim)
        if spec_of(claim).get("volumeName") not in (None, "", wanted):
            return None  # somebody chose a volume by hand
        volume = self.volumes.get("", wanted)
        if volume is None:
            volume = await self._make(claim)
        marked = BOUND in (metadata_of(claim).get("annotations") or {})
        if spec_of(claim).get("volumeName") != wanted or not marked or IN_USE not in finalizers_of(claim):
            changed = copied(claim)
            changed["spec"]["volumeName"] = wanted
            changed["metadata"]["annotations"] = (metadata_of(claim).get("annotations") or {}) | {BOUND: "yes"}
            changed["metadata"]["finalizers"] = sorted({*finalizers_of(claim), IN_USE})
            claim = await self.client.update(changed)
            self.claims.observe(claim)
        status = {
            "phase": "Bound",
            "accessModes": spec_of(claim).get("accessModes"),
            "capacity": {"storage": spec_of(claim)["resources"]["requests"]["storage"]},
        }
        if any(status_of(claim).get(name) != value for name, value in status.items()):
            changed = copied(claim)
            changed["status"] = status_of(claim) | status
            self.claims.observe(await self.client.update_status(changed))
        if status_of(volume).get("phase") != "Bound":
            changed = copied(volume)
            changed["status"] = {"phase": "Bound"}
            self.volumes.observe(await self.client.update_status(changed))
        return None

    async def _make(self, claim: Obj) -> Obj:
        spec = spec_of(claim)
        name = volume_name(claim)
        volume: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "finalizers": [HOLDS_FILES],
                "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
            },
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec.get("accessModes"),
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec.get("storageClassName") or "",
                "csi": {"driver": DRIVER, "volumeHandle": name},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": namespace_of(claim),
                    "name": name_of(claim),
                    "uid": uid_of(claim),
                },
            },
        }
        try:
            made = await self.client.create(volume)
        except ApiError as error:
            if not error.exists:
                raise
            made = await self.client.get("v1", "PersistentVolume", name)
        self.volumes.observe(made)
        message = f"Successfully provisioned volume {name}"
        self.context.recorder.normal("volume-controller", claim, "ProvisioningSucceeded", message)
        return made

    # -- a claim that goes -----------------------------------------------------------------------------------------

    async def _release(self, claim: Obj) -> float | None:
        if IN_USE not in finalizers_of(claim):
            return None
        pods = self.pods.in_namespace(namespace_of(claim))
        if any(name_of(claim) in claims_of(pod) and not is_finished(pod) for pod in pods):
            return None
        volume = await self.client.get_or_none("v1", "PersistentVolume", volume_name(claim))
        if volume is not None and spec_of(volume).get("persistentVolumeReclaimPolicy") != "Retain":
            if not is_deleting(volume):
                await self.client.delete("v1", "PersistentVolume", name_of(volume), uid=uid_of(volume), missing_ok=True)
            return None  # its end is an event that brings us back
        left = [finalizer for finalizer in finalizers_of(claim) if finalizer != IN_USE]
        metadata = {"uid": uid_of(claim), "resourceVersion": version_of(claim), "finalizers": left}
        await self.client.patch(
            "v1", "PersistentVolumeClaim", name_of(claim), namespace_of(claim), {"metadata": metadata}
        )
        return None

    async def _reclaim(self, volume: Obj) -> float | None:
        """A volume whose claim vanished past its finalizer. The server is asked: files do not come back."""
        spec = spec_of(volume)
        claim = spec.get("claimRef") or {}
        if not is_ours(volume) or is_deleting(volume) or not claim:
            return None
        cached = self.claims.get(claim["namespace"], claim["name"])
        if cached is not None and uid_of(cached) == claim["uid"]:
            return None
        live = await self.client.get_or_none("v1", "PersistentVolumeClaim", claim["name"], claim["namespace"])
        if live is not None and uid_of(live) == claim["uid"]:
            return None
        if spec.get("persistentVolumeReclaimPolicy") == "Retain":
            if status_of(volume).get("phase") != "Released":
                changed = copied(volume)
                changed["status"] = {"phase": "Released"}
                self.volumes.observe(await self.client.update_status(changed))
            return None
        await self.client.delete("v1", "PersistentVolume", name_of(volume), uid=uid_of(volume), missing_ok=True)
        return None


def volume_name(claim: Obj) -> str:
    """One volume for one claim's life: a claim made anew under the same name starts empty."""
    return f"pvc-{uid_of(claim)}"


def claims_of(pod: Obj) -> set[str]:
    volumes = spec_of(pod).get("volumes") or []
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}

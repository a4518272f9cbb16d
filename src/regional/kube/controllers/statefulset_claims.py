"""The claims of a StatefulSet's pods: one per template and ordinal, and what becomes of them afterwards.

The retention policy is carried out by ownership: a claim that shall go with the set is owned by the set, one that
shall go with a pod that is scaled away is owned by that pod, and the garbage collector does the rest.
"""

from __future__ import annotations

from regional.kube.client import ApiError
from regional.kube.controllers.context import Context
from regional.kube.objects import (
    Obj,
    copied,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_of,
    owner_reference,
    owners_of,
    spec_of,
    uid_of,
    version_of,
)


class StatefulClaims:
    def __init__(self, context: Context, component: str) -> None:
        self._context, self._component = context, component
        self._claims = context.informers.of("v1", "PersistentVolumeClaim")

    def volumes(self, statefulset: Obj, pod_name: str) -> list[Obj]:
        return [
            {
                "name": name_of(template),
                "persistentVolumeClaim": {"claimName": f"{name_of(template)}-{pod_name}"},
            }
            for template in _templates(statefulset)
        ]

    async def ensure(self, statefulset: Obj, pod_name: str) -> None:
        for template in _templates(statefulset):
            await self._ensure(statefulset, template, pod_name)

    async def _ensure(self, statefulset: Obj, template: Obj, pod_name: str) -> None:
        name = f"{name_of(template)}-{pod_name}"
        if self._claims.get(namespace_of(statefulset), name) is not None:
            return
        selector = (spec_of(statefulset).get("selector") or {}).get("matchLabels") or {}
        metadata: Obj = {
            "name": name,
            "namespace": namespace_of(statefulset),
            "labels": labels_of(template) | selector,
        }
        if annotations := (template.get("metadata") or {}).get("annotations"):
            metadata["annotations"] = dict(annotations)
        if _policy(statefulset, "whenDeleted") == "Delete":
            metadata["ownerReferences"] = [owner_reference(statefulset)]
        document: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": copied(spec_of(template)),
        }
        try:
            self._claims.observe(await self._context.client.create(document))
        except ApiError as error:
            if not error.exists:
                raise
            return
        message = f"Create Claim {name} Pod {pod_name} in StatefulSet {name_of(statefulset)} success"
        self._context.recorder.normal(self._component, statefulset, "SuccessfulCreate", message)

    async def settle_owners(self, statefulset: Obj, pod: Obj, *, condemned: bool) -> None:
        """Bring the owners of one pod's claims in line with the policy; before the pod goes, if it is condemned."""
        for template in _templates(statefulset):
            claim = self._claims.get(namespace_of(statefulset), f"{name_of(template)}-{name_of(pod)}")
            if claim is not None and not is_deleting(claim):
                await self._settle(statefulset, pod, claim, condemned=condemned)

    async def _settle(self, statefulset: Obj, pod: Obj, claim: Obj, *, condemned: bool) -> None:
        with_pod = condemned and _policy(statefulset, "whenScaled") == "Delete"
        with_set = _policy(statefulset, "whenDeleted") == "Delete" and not with_pod
        # Owners that somebody else wrote stay; a pod of that name that is gone is no owner any more.
        kept = [
            owner
            for owner in owners_of(claim)
            if owner.get("uid") != uid_of(statefulset)
            and not (owner.get("kind") == "Pod" and owner.get("name") == name_of(pod))
        ]
        holder = next((owner for owner in kept if owner.get("controller")), None)
        if holder is not None:
            return
        wanted = kept
        if with_pod:
            wanted = [*kept, owner_reference(pod)]
        elif with_set:
            wanted = [*kept, owner_reference(statefulset)]
        if [owner.get("uid") for owner in wanted] == [owner.get("uid") for owner in owners_of(claim)]:
            return
        metadata = {"uid": uid_of(claim), "resourceVersion": version_of(claim), "ownerReferences": wanted or None}
        self._claims.observe(
            await self._context.client.patch(
                "v1", "PersistentVolumeClaim", name_of(claim), namespace_of(claim), {"metadata": metadata}
            )
        )

    def are_leaving(self, statefulset: Obj, pod_name: str) -> bool:
        """Claims that go with an earlier pod of this name: its successor must not be given them."""
        for template in _templates(statefulset):
            claim = self._claims.get(namespace_of(statefulset), f"{name_of(template)}-{pod_name}")
            holder = owner_of(claim) if claim is not None else None
            if holder is not None and holder.get("kind") == "Pod":
                return True
        return False


def _templates(statefulset: Obj) -> list[Obj]:
    return spec_of(statefulset).get("volumeClaimTemplates") or []


def _policy(statefulset: Obj, moment: str) -> str:
    return str((spec_of(statefulset).get("persistentVolumeClaimRetentionPolicy") or {}).get(moment) or "Retain")

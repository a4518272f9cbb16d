"""AppliedManifestWorks: the record, on the cluster itself, of what each work put there.

They outlive the agent, so that one that was restarted, or whose work is deleted while it was away, knows what to
remove. Their finalizer keeps them until everything in them is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Obj, finalizers_of, is_deleting, name_of, spec_of, status_of, uid_of
from regional.maestro.agent.strategies import APPLIED_WORK
from regional.maestro.agent.works import ORIGINAL_SOURCE, Ref, Work
from regional.maestro.protocol.identity import applied_work_name

log = logging.getLogger(__name__)

API_VERSION = "work.open-cluster-management.io/v1"
FINALIZER = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"


class Records:
    def __init__(self, client: Client, hub: str) -> None:
        self._client, self._hub = client, hub
        self.informer = Informer(client, API_VERSION, APPLIED_WORK)

    def name_for(self, work: str) -> str:
        return applied_work_name(self._hub, work)

    def get(self, work: str) -> Obj | None:
        return self.informer.get("", self.name_for(work))

    def strangers(self, works: set[str]) -> int:
        """Records of this hub whose work we do not know (any more)."""
        ours = [found for found in self.informer if spec_of(found).get("hubHash") == self._hub]
        return sum(1 for found in ours if spec_of(found).get("manifestWorkName") not in works)

    async def ensure(self, work: Work) -> Obj:
        found = self.get(work.name)
        if found is not None and not is_deleting(found):
            return found
        if found is not None:
            # Somebody deleted the record: let it go and write a new one, the objects stay.
            await self._release(found)
        record: Obj = {
            "apiVersion": API_VERSION,
            "kind": APPLIED_WORK,
            "metadata": {
                "name": self.name_for(work.name),
                "labels": (work.metadata.get("labels") or {}) | {ORIGINAL_SOURCE: work.source},
                "finalizers": [FINALIZER],
            },
            "spec": {"hubHash": self._hub, "agentID": self._hub, "manifestWorkName": work.name},
        }
        try:
            made = await self._client.create(record)
        except ApiError as error:
            if not error.exists:
                raise
            made = await self._client.get(API_VERSION, APPLIED_WORK, self.name_for(work.name))
        self.informer.observe(made)
        return made

    def owner_reference(self, record: Obj) -> Obj:
        return {"apiVersion": API_VERSION, "kind": APPLIED_WORK, "name": name_of(record), "uid": uid_of(record)}

    async def write(self, record: Obj, resources: Sequence[Obj]) -> None:
        wanted = sorted(resources, key=lambda r: (r["group"], r["resource"], r.get("namespace", ""), r["name"]))
        if (status_of(record).get("appliedResources") or []) == wanted:
            return
        patch = {"status": {"appliedResources": wanted}}
        name = name_of(record)
        updated = await self._client.patch(API_VERSION, APPLIED_WORK, name, None, patch, subresource="status")
        self.informer.observe(updated)

    async def remove(self, record: Obj) -> None:
        """Everything in it is gone (or orphaned): so may the record."""
        if not is_deleting(record):
            await self._client.delete(API_VERSION, APPLIED_WORK, name_of(record), uid=uid_of(record), missing_ok=True)
        await self._release(record)
        self.informer.observe_deleted(record)

    async def _release(self, record: Obj) -> None:
        rest = [finalizer for finalizer in finalizers_of(record) if finalizer != FINALIZER]
        patch = {"metadata": {"finalizers": rest or None, "uid": uid_of(record)}}
        try:
            await self._client.patch(API_VERSION, APPLIED_WORK, name_of(record), None, patch)
        except ApiError as error:
            if not (error.not_found or error.conflict):  # gone, or another of the same name
                raise


def entry(ref: Ref, uid: str) -> Obj:
    found = {"group": ref.group, "version": ref.version, "resource": ref.resource, "name": ref.name, "uid": uid}
    return found | ({"namespace": ref.namespace} if ref.namespace else {})


def entries_of(record: Obj | None) -> list[Obj]:
    return list(status_of(record).get("appliedResources") or []) if record else []


def identity(found: Obj) -> tuple[str, str, str, str]:
    """Which object it is, whatever version it was applied in."""
    return (found.get("group", ""), found["resource"], found.get("namespace", ""), found["name"])

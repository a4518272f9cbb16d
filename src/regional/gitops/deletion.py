"""The end of an Application: its objects go first, in reverse order of their waves, then its finalizer."""

from __future__ import annotations

import logging

from regional.gitops.applicationset import API_VERSION, RESOURCES_FINALIZER
from regional.gitops.inventory import CRD_KIND, Inventory
from regional.gitops.waves import spared, wave_of
from regional.kube.client import ApiError, Client
from regional.kube.objects import (
    Obj,
    annotations_of,
    finalizers_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    status_of,
    uid_of,
)

log = logging.getLogger(__name__)

BACKGROUND = f"{RESOURCES_FINALIZER}/background"
FOREGROUND = f"{RESOURCES_FINALIZER}/foreground"
POLL_SECONDS = 1.0


class Deletion:
    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory

    async def go_on(self, application: Obj) -> float | None:
        """Seconds until the next look, or None when there is nothing left to do."""
        ours = [f for f in finalizers_of(application) if f in (RESOURCES_FINALIZER, BACKGROUND, FOREGROUND)]
        if not ours:
            return None
        status = status_of(application)
        result = (status.get("operationState") or {}).get("syncResult") or {}
        # The second list has the hooks as well.
        for entry in [*(status.get("resources") or []), *(result.get("resources") or [])]:
            group, version = entry.get("group", ""), entry.get("version", "v1")
            await self._inventory.ensure(f"{group}/{version}" if group else version, entry["kind"])
        left = [obj for obj in self._inventory.tracked(name_of(application)).values() if not _kept(obj)]
        if left:
            await self._delete_last_wave(left, "Background" if BACKGROUND in ours else "Foreground")
            return POLL_SECONDS
        await self._release(application, [f for f in finalizers_of(application) if f not in ours])
        return None

    async def _delete_last_wave(self, left: list[Obj], propagation: str) -> None:
        last = max(wave_of(obj) for obj in left)
        for obj in left:
            if wave_of(obj) == last and not is_deleting(obj):
                await self._client.delete(
                    obj["apiVersion"],
                    obj["kind"],
                    name_of(obj),
                    namespace_of(obj) or None,
                    propagation=propagation,
                    uid=uid_of(obj),
                    missing_ok=True,
                )

    async def _release(self, application: Obj, remaining: list[str]) -> None:
        namespace, name = key_of(application)
        change = {
            "metadata": {"finalizers": remaining or None, "resourceVersion": application["metadata"]["resourceVersion"]}
        }
        try:
            await self._client.patch(API_VERSION, "Application", name, namespace, change)
        except ApiError as error:
            if not error.not_found:
                raise
        log.info("application deleted", extra={"application": name})


def _kept(obj: Obj) -> bool:
    """Objects that ask to outlive their Application, and definitions, with which all objects of their kind would go."""
    asked = spared(obj, "Delete") or annotations_of(obj).get("helm.sh/resource-policy") == "keep"
    return asked or obj["kind"] == CRD_KIND

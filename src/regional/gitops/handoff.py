"""Has GitOps taken over? Said by the objects themselves: the set made its Applications, the controller's own one is
synced and healthy at the commit we know, and the objects we installed are still the same ones."""

from __future__ import annotations

from collections.abc import Mapping

from regional.gitops.applicationset import API_VERSION
from regional.gitops.arrival import behind, unfinished
from regional.gitops.identity import ROOT, ClusterIdentity
from regional.gitops.manifests import ObjectKey, tracked_by
from regional.gitops.repo import Repositories
from regional.kube.client import Client
from regional.kube.objects import condition_of, name_of, owner_of, uid_of

CONTROLLER = "argocd"


class Handoff:
    def __init__(
        self,
        client: Client,
        identity: ClusterIdentity,
        repositories: Repositories,
        uids: Mapping[tuple[str, ObjectKey], str],
        *,
        wait_all: bool,
    ) -> None:
        self._client = client
        self._identity = identity
        self._repositories = repositories
        self._uids = uids
        self._wait_all = wait_all

    async def missing(self) -> str:
        """What is not there yet, in one line; "" when all is."""
        namespace = self._identity.namespace
        applications = {name_of(app): app for app in await self._client.list(API_VERSION, "Application", namespace)}
        root = applications.get(ROOT)
        if root is None or (reason := await behind(root, self._repositories)):
            return f"Application {ROOT}: {reason if root else 'does not exist'}"
        sets = await self._client.list(API_VERSION, "ApplicationSet", namespace)
        if not sets:
            return "no ApplicationSet exists yet"
        for applicationset in sets:
            current = condition_of(applicationset, "ResourcesUpToDate")
            if current is None:
                return f"ApplicationSet {name_of(applicationset)} has not been looked at yet"
            if current.get("status") != "True":
                return f"ApplicationSet {name_of(applicationset)}: {current.get('message', '')}"
        generated = {name: app for name, app in applications.items() if owner_of(app)}
        own = generated.get(CONTROLLER)
        if own is None:
            return f"Application {CONTROLLER} has not been generated yet"
        waited_for = generated if self._wait_all else {CONTROLLER: own}
        reasons = [
            f"{name}: {why}"
            for name, app in sorted(waited_for.items())
            if (why := await unfinished(app, self._repositories))
        ]
        return "; ".join(reasons) or await self._changed_hands()

    async def _changed_hands(self) -> str:
        """Self-management adopted what we installed: the same objects, with one owner."""
        for (version, key), uid in self._uids.items():
            live = await self._client.get_or_none(version, key.kind, key.name, key.namespace or None)
            if live is None or uid_of(live) != uid:
                return f"{key} is not the object that was installed"
            if tracked_by(live) != CONTROLLER:
                return f"{key} is not tracked by Application {CONTROLLER}"
        return ""

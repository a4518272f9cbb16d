"""Has GitOps taken over? Said by the objects themselves: the set made its Applications, the controller's own one is
synced and healthy at the commit we know, and the objects we installed are still the same ones."""

from __future__ import annotations

from collections.abc import Mapping

from regional.gitops.applicationset import API_VERSION
from regional.gitops.identity import ROOT, ClusterIdentity
from regional.gitops.manifests import ObjectKey, tracked_by
from regional.gitops.repo import RepoError, Repositories
from regional.gitops.sources import sources_of
from regional.kube.client import Client
from regional.kube.objects import Obj, condition_of, name_of, owner_of, spec_of, status_of, uid_of

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
        if root is None or (reason := await self._behind(root)):
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
        reasons = [f"{name}: {why}" for name, app in sorted(waited_for.items()) if (why := await self._unfinished(app))]
        return "; ".join(reasons) or await self._changed_hands()

    async def _unfinished(self, application: Obj) -> str:
        if reason := await self._behind(application):
            return reason
        status = status_of(application)
        health = status.get("health") or {}
        if health.get("status") != "Healthy":
            return _why(application, f"{health.get('status')} {health.get('message', '')}".strip())
        return ""

    async def _behind(self, application: Obj) -> str:
        """A status may tell of an earlier wish: it counts only for the sources and commits wanted now."""
        sync = status_of(application).get("sync") or {}
        compared = sync.get("comparedTo") or {}
        spec = spec_of(application)
        if not sync:
            return "has not been looked at yet"
        if sync.get("status") != "Synced":
            return _why(application, sync.get("status") or "Unknown")
        if any(compared.get(field) != spec.get(field) for field in ("source", "sources")):
            return "its new sources have not been looked at yet"
        commits = sync.get("revisions") or [sync.get("revision")]
        for source, commit in zip(sources_of(application), commits, strict=False):
            try:
                wanted = await self._repositories.resolve(source["repoURL"], source.get("targetRevision") or "HEAD")
            except RepoError as error:
                return str(error)
            if commit != wanted:
                return f"is at {str(commit)[:7]}, {source.get('targetRevision')} is {wanted[:7]}"
        return ""

    async def _changed_hands(self) -> str:
        """Self-management adopted what we installed: the same objects, with one owner."""
        for (version, key), uid in self._uids.items():
            live = await self._client.get_or_none(version, key.kind, key.name, key.namespace or None)
            if live is None or uid_of(live) != uid:
                return f"{key} is not the object that was installed"
            if tracked_by(live) != CONTROLLER:
                return f"{key} is not tracked by Application {CONTROLLER}"
        return ""


def _why(application: Obj, fallback: str) -> str:
    status = status_of(application)
    said = [f"{c.get('type')}: {c.get('message')}" for c in status.get("conditions") or []]
    state = status.get("operationState") or {}
    if state.get("phase") in ("Failed", "Error", "Running") and state.get("message"):
        said.append(f"{state['phase']}: {state['message']}")
    return f"{fallback} ({'; '.join(said)})" if said else fallback

"""Has a cluster arrived at what Git says now? Asked of the objects themselves, by the bootstrap task and by `sync`.

A status may tell of an earlier wish: it counts only for the sources, the commits and the generated Applications that
are wanted at this moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from regional.gitops.applicationset import API_VERSION, EvaluationError, evaluate
from regional.gitops.generators import SECRET_TYPE, Cluster, GeneratorError
from regional.gitops.repo import RepoError, Repositories
from regional.gitops.sources import sources_of
from regional.kube.client import Client
from regional.kube.objects import Obj, is_deleting, name_of, owner_of, spec_of, status_of

LEAVING = "is being removed"


async def behind(application: Obj, repositories: Repositories) -> str:
    """Why an Application is not synced to the commits that its sources name now; "" if it is."""
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
            wanted = await repositories.resolve(source["repoURL"], source.get("targetRevision") or "HEAD")
        except RepoError as error:
            return str(error)
        if commit != wanted:
            return f"is at {str(commit)[:7]}, {source.get('targetRevision')} is {wanted[:7]}"
    return ""


async def unfinished(application: Obj, repositories: Repositories) -> str:
    """`behind`, or not healthy there."""
    if reason := await behind(application, repositories):
        return reason
    health = status_of(application).get("health") or {}
    if health.get("status") != "Healthy":
        return _why(application, f"{health.get('status')} {health.get('message', '')}".strip())
    return ""


async def underway(client: Client, namespace: str, repositories: Repositories) -> dict[str, str]:
    """Application -> what it still lacks, of all that the cluster has or should have. {} once the cluster is there."""
    applications = {name_of(app): app for app in await client.list(API_VERSION, "Application", namespace)}
    lacking = {name: why for name, app in applications.items() if (why := await unfinished(app, repositories))}
    secrets = await client.list("v1", "Secret", namespace, labels=f"{SECRET_TYPE}=cluster")
    for applicationset in await client.list(API_VERSION, "ApplicationSet", namespace):
        try:
            wanted = await _generated(applicationset, secrets, repositories)
        except (EvaluationError, GeneratorError) as error:
            lacking[name_of(applicationset)] = str(error)
            continue
        owned = {name for name, app in applications.items() if (owner_of(app) or {}).get("kind") == "ApplicationSet"}
        lacking |= dict.fromkeys(wanted - owned, "has not been generated yet")
        lacking |= dict.fromkeys(owned - wanted, LEAVING)
    return lacking | {name: LEAVING for name, app in applications.items() if is_deleting(app)}


async def _generated(applicationset: Obj, secrets: Sequence[Obj], repositories: Repositories) -> set[str]:
    async def directories(url: str, revision: str) -> Sequence[str]:
        try:
            return await repositories.directories(url, await repositories.resolve(url, revision))
        except RepoError as error:
            raise GeneratorError(str(error)) from None

    clusters = [Cluster.from_secret(secret) for secret in secrets]
    return (await evaluate(applicationset, clusters, directories)).names


def _why(application: Obj, fallback: str) -> str:
    status = status_of(application)
    said = [f"{c.get('type')}: {c.get('message')}" for c in status.get("conditions") or []]
    state = status.get("operationState") or {}
    if state.get("phase") in ("Failed", "Error", "Running") and state.get("message"):
        said.append(f"{state['phase']}: {state['message']}")
    return f"{fallback} ({'; '.join(said)})" if said else fallback

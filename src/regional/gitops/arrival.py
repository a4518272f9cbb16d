"""Has a cluster arrived at what Git says now? Asked of the objects themselves, by the bootstrap task and by `sync`.

A status may tell of an earlier wish: it counts only for the sources, the commits and the generated Applications that
are wanted at this moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regional.gitops.applicationset import API_VERSION, Evaluation, EvaluationError, evaluate
from regional.gitops.appstatus import merge_difference
from regional.gitops.generators import SECRET_TYPE, Cluster, GeneratorError
from regional.gitops.repo import RepoError, Repositories
from regional.gitops.sources import sources_of
from regional.kube.client import Client
from regional.kube.objects import Obj, is_deleting, name_of, owner_of, spec_of, status_of

LEAVING = "is being removed"
UPDATING = ("sync", "create-update")  # policies of sets that change what they made


class Refused(str):
    """A reason that only another commit takes away: to wait is of no use."""


async def behind(application: Obj, repositories: Repositories) -> str:
    """Why an Application is not synced to the commits that its sources name now; "" if it is."""
    sync = status_of(application).get("sync") or {}
    if not sync:
        return "has not been looked at yet"
    status = sync.get("status") or "Unknown"
    earlier = await _of_an_earlier_wish(application, sync, repositories)
    if status == "Synced":
        return earlier
    why = _why(application, status)
    judged = status == "Unknown" and any(_commits(sync)) and not earlier
    return Refused(why) if judged else why


async def _of_an_earlier_wish(application: Obj, sync: Obj, repositories: Repositories) -> str:
    """What of the sources and commits of a status is no longer wanted; "" if it is of those that are."""
    compared, spec = sync.get("comparedTo") or {}, spec_of(application)
    if any(compared.get(field) != spec.get(field) for field in ("source", "sources")):
        return "its new sources have not been looked at yet"
    for source, commit in zip(sources_of(application), _commits(sync), strict=False):
        try:
            wanted = await repositories.resolve(source["repoURL"], source.get("targetRevision") or "HEAD")
        except RepoError as error:
            return str(error)
        if commit != wanted:
            return f"is at {str(commit)[:7]}, {source.get('targetRevision')} is {wanted[:7]}"
    return ""


def _commits(sync: Obj) -> list[str | None]:
    return sync.get("revisions") or [sync.get("revision")]


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
        lacking |= {name: Refused(why) for name, why in wanted.invalid.items()}
        lacking |= dict.fromkeys(wanted.names - owned - wanted.invalid.keys(), "has not been generated yet")
        lacking |= dict.fromkeys(_to_be_changed(applicationset, wanted, applications), "is about to be changed")
        lacking |= dict.fromkeys(owned - wanted.names, LEAVING)
    return lacking | {name: LEAVING for name, app in applications.items() if is_deleting(app)}


async def _generated(applicationset: Obj, secrets: Sequence[Obj], repositories: Repositories) -> Evaluation:
    async def directories(url: str, revision: str) -> Sequence[str]:
        try:
            return await repositories.directories(url, await repositories.resolve(url, revision))
        except RepoError as error:
            raise GeneratorError(str(error)) from None

    clusters = [Cluster.from_secret(secret) for secret in secrets]
    return await evaluate(applicationset, clusters, directories)


def _to_be_changed(applicationset: Obj, wanted: Evaluation, applications: Mapping[str, Obj]) -> list[str]:
    """Applications that are not yet as their set has them: what they say of themselves is of an earlier wish."""
    if (spec_of(applicationset).get("syncPolicy") or {}).get("applicationsSync", "sync") not in UPDATING:
        return []
    return [
        name_of(app)
        for app in wanted.applications
        if (live := applications.get(name_of(app))) and merge_difference(spec_of(live), spec_of(app))
    ]


def _why(application: Obj, fallback: str) -> str:
    status = status_of(application)
    said = [f"{c.get('type')}: {c.get('message')}" for c in status.get("conditions") or []]
    state = status.get("operationState") or {}
    if state.get("phase") in ("Failed", "Error", "Running") and state.get("message"):
        said.append(f"{state['phase']}: {state['message']}")
    return f"{fallback} ({'; '.join(said)})" if said else fallback

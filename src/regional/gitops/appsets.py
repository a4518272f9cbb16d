"""The ApplicationSet controller: keeps the Applications that a set generates as the set wants them.

A set that fails changes nothing. One that yields nothing deletes all its Applications: that is what Argo CD does, so a
preview shows the same; the warning belongs before the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from regional.core.clock import Clock, SystemClock
from regional.core.reconcile import WorkQueue
from regional.gitops.applicationset import API_VERSION, Evaluation, EvaluationError, evaluate
from regional.gitops.appstatus import merge_difference
from regional.gitops.generators import Cluster, GeneratorError
from regional.gitops.repo import RepoError, Repositories
from regional.kube.client import ApiError, ApiUnreachable, Client, Informer
from regional.kube.objects import (
    Key,
    Obj,
    annotations_of,
    copied,
    finalizers_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    owner_of,
    owner_reference,
    set_condition,
    spec_of,
    status_of,
    uid_of,
)

log = logging.getLogger(__name__)

KIND = "ApplicationSet"
MANAGER = "argocd-applicationset-controller"
FAILED_SECONDS = 180.0
KEPT_ANNOTATIONS = ("argocd.argoproj.io/refresh", "notified.notifications.argoproj.io")


class ApplicationSetController:
    def __init__(
        self,
        client: Client,
        repositories: Repositories,
        sets: Informer,
        applications: Informer,
        secrets: Informer,
        projects: Informer,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._repositories = repositories
        self._sets = sets
        self._applications = applications
        self._secrets = secrets
        self._projects = projects
        self._clock: Clock = clock or SystemClock()
        self._follows: dict[Key, set[tuple[str, str]]] = {}
        self.queue: WorkQueue[Key] = WorkQueue(clock=self._clock, cap=30.0)
        sets.add_listener(self._set_changed)
        applications.add_listener(self._application_changed)
        secrets.add_listener(lambda *_: self.look_at_all())
        projects.add_listener(lambda kind, *_: self.look_at_all() if kind != "MODIFIED" else None)

    # -- what makes it look --------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[Key]:
        return list(self._sets.objects)

    def look_at_all(self) -> None:
        for key in self.keys():
            self.queue.add(key)

    def followed(self) -> set[tuple[str, str]]:
        return set().union(*self._follows.values())

    def revision_changed(self, url: str, revision: str) -> None:
        for key, follows in self._follows.items():
            if (url, revision) in follows:
                self.queue.add(key)

    def _set_changed(self, kind: str, obj: Obj, old: Obj | None) -> None:
        if kind == "MODIFIED" and old is not None and _wish(obj) == _wish(old):
            return
        self.queue.add(key_of(obj))

    def _application_changed(self, kind: str, obj: Obj, old: Obj | None) -> None:
        owner = owner_of(obj)
        if not owner or owner.get("kind") != KIND:
            return
        if kind == "MODIFIED" and old is not None and _wish(obj) == _wish(old):
            return
        self.queue.add((key_of(obj)[0], owner["name"]))

    # -- one look ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> float | None:
        applicationset = self._sets.get(*key)
        if applicationset is None or is_deleting(applicationset):
            # Its Applications follow by their owner reference, each with its own finalizer.
            self._follows.pop(key, None)
            return None
        follows: set[tuple[str, str]] = set()
        try:
            evaluation = await self._evaluate(applicationset, follows)
        except EvaluationError as error:
            log.warning("applicationset failed", extra={"applicationset": key[1], "reason": error.message})
            await self._report(applicationset, error.reason, error.message, parameters=False)
            return FAILED_SECONDS
        finally:
            self._follows[key] = follows
        for warning in evaluation.warnings:
            log.warning("applicationset", extra={"applicationset": key[1], "warning": warning})
        failures = evaluation.invalid | await self._bring_about(applicationset, evaluation)
        if not failures:
            await self._report(applicationset)
            return None
        last = max(failures)
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        reason = "ApplicationValidationError" if last in evaluation.invalid else "UpdateApplicationError"
        await self._report(applicationset, reason, failures[last] + more)
        return 10.0 if set(failures) - set(evaluation.invalid) else FAILED_SECONDS

    async def _evaluate(self, applicationset: Obj, follows: set[tuple[str, str]]) -> Evaluation:
        async def directories(url: str, revision: str) -> Sequence[str]:
            follows.add((url, revision))
            try:
                commit = await self._repositories.resolve(url, revision)
                return await self._repositories.directories(url, commit)
            except RepoError as error:
                raise GeneratorError(str(error)) from None

        try:
            clusters = [Cluster.from_secret(secret) for secret in self._secrets]
        except GeneratorError as error:
            raise EvaluationError("ApplicationParamsGenerationError", str(error)) from None
        namespace = key_of(applicationset)[0]
        projects = {name_of(project) for project in self._projects.in_namespace(namespace)}
        return await evaluate(applicationset, clusters, directories, projects)

    async def _bring_about(self, applicationset: Obj, evaluation: Evaluation) -> dict[str, str]:
        """Failures by name; one bad Application does not keep the others from being made."""
        policy = (spec_of(applicationset).get("syncPolicy") or {}).get("applicationsSync") or "sync"
        namespace = key_of(applicationset)[0]
        failures: dict[str, str] = {}
        for wanted in evaluation.applications:
            name = name_of(wanted)
            live = self._applications.get(namespace, name)
            try:
                if live is None:
                    await self._create(applicationset, wanted)
                elif policy in ("sync", "create-update"):
                    await self._update(applicationset, wanted, live)
            except ApiUnreachable:
                raise
            except (ApiError, EvaluationError) as error:
                failures[name] = error.message
        if policy in ("sync", "create-delete"):
            for live in self._applications.in_namespace(namespace):
                if _owned(live, applicationset) and name_of(live) not in evaluation.names and not is_deleting(live):
                    await self._client.delete(API_VERSION, "Application", name_of(live), namespace, missing_ok=True)
                    log.info("application removed", extra={"application": name_of(live)})
        return failures

    async def _create(self, applicationset: Obj, wanted: Obj) -> None:
        obj = copied(wanted)
        obj["metadata"]["ownerReferences"] = [owner_reference(_typed(applicationset))]
        try:
            created = await self._client.create(obj)
        except ApiError as error:
            if not error.exists:
                raise
            # Made by us a moment ago and not seen yet, or by hand: either way it is there to be updated.
            live = await self._client.get(API_VERSION, "Application", name_of(obj), key_of(obj)[0])
            await self._update(applicationset, wanted, live)
            return
        self._applications.observe(created)
        log.info("application created", extra={"application": name_of(obj)})

    async def _update(self, applicationset: Obj, wanted: Obj, live: Obj) -> None:
        owner = owner_of(live)
        if owner and owner.get("uid") != uid_of(applicationset):
            message = f"Object {'/'.join(key_of(live))} is already owned by another {owner['kind']} {owner['name']}"
            raise EvaluationError("UpdateApplicationError", message)
        kept = (spec_of(applicationset).get("preservedFields") or {}).get("annotations") or []
        annotations = dict(wanted["metadata"].get("annotations") or {})
        for name in (*KEPT_ANNOTATIONS, *kept):
            if name in annotations_of(live) and name not in annotations:
                annotations[name] = annotations_of(live)[name]
        change: Obj = {}
        metadata: Obj = {}
        for field, old, new in (
            ("labels", labels_of(live), wanted["metadata"].get("labels") or {}),
            ("annotations", annotations_of(live), annotations),
        ):
            if difference := merge_difference(old, new):
                metadata[field] = difference
        finalizers = wanted["metadata"].get("finalizers") or []
        if finalizers != finalizers_of(live):
            metadata["finalizers"] = finalizers or None
        if not owner:
            metadata["ownerReferences"] = [owner_reference(_typed(applicationset))]
        if difference := merge_difference(spec_of(live), spec_of(wanted)):
            change["spec"] = difference
        if metadata:
            change["metadata"] = metadata
        if change:
            namespace, name = key_of(live)
            updated = await self._client.patch(
                API_VERSION, "Application", name, namespace, change, field_manager=MANAGER
            )
            self._applications.observe(updated)

    async def _report(
        self, applicationset: Obj, reason: str = "", message: str = "", *, parameters: bool = True
    ) -> None:
        """The three conditions that Argo CD writes."""
        generated = "Successfully generated parameters for all Applications"
        obj = copied(applicationset)
        now = self._clock.now()
        error = bool(reason)
        changed = [
            set_condition(
                obj, "ErrorOccurred", error, reason or "ApplicationSetUpToDate", message or generated, now=now
            ),
            set_condition(
                obj,
                "ParametersGenerated",
                parameters,
                "ParametersGenerated" if parameters else "ErrorOccurred",
                generated if parameters else message,
                now=now,
            ),
            set_condition(
                obj,
                "ResourcesUpToDate",
                not error,
                reason or "ApplicationSetUpToDate",
                message or "All applications have been generated successfully",
                now=now,
            ),
        ]
        if not any(changed):
            return
        namespace, name = key_of(obj)
        status = {"status": {"conditions": status_of(obj)["conditions"]}}
        try:
            written = await self._client.patch(
                API_VERSION, KIND, name, namespace, status, subresource="status", field_manager=MANAGER
            )
        except ApiError as failure:
            if not failure.not_found:
                raise
        else:
            self._sets.observe(written)


def _typed(obj: Obj) -> Obj:
    return {"apiVersion": API_VERSION, "kind": KIND} | obj


def _owned(application: Obj, applicationset: Obj) -> bool:
    owner = owner_of(application)
    return bool(owner and owner.get("uid") == uid_of(applicationset))


def _wish(obj: Obj) -> tuple[object, ...]:
    metadata = obj.get("metadata") or {}
    kept = ("labels", "annotations", "finalizers", "deletionTimestamp", "ownerReferences")
    return (obj.get("spec"), *(metadata.get(key) for key in kept))

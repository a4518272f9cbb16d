"""The Application controller: looks at one Application at a time, says how it stands, and moves it on.

`reconcile` is level-triggered: it reads Git, the cluster and the Application, and does the one next thing. It is called
when the Application, one of its objects, a branch it follows, or a kind it waits for changes. One Application that
cannot be rendered or synced says so in its own status and holds up no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from regional.core.clock import Clock, SystemClock, rfc3339
from regional.core.reconcile import WorkQueue
from regional.gitops import appstatus
from regional.gitops.applicationset import API_VERSION
from regional.gitops.autosync import decide, failed_message
from regional.gitops.compare import UNKNOWN, Comparer, Comparison
from regional.gitops.deletion import Deletion
from regional.gitops.healing import Healing
from regional.gitops.health import Health
from regional.gitops.ignoring import ignore_problem
from regional.gitops.inventory import Inventory
from regional.gitops.manifests import ObjectKey
from regional.gitops.operation import FAILED, RUNNING, SUCCEEDED
from regional.gitops.projects import project_problem
from regional.gitops.repo import RepoError
from regional.gitops.sources import ComparisonError, Revisions, Sources, destination_problem, sources_of
from regional.gitops.syncing import Syncing, prepare_sync
from regional.gitops.targets import Targets, TargetState
from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import Key, Obj, annotations_of, is_deleting, key_of, name_of, spec_of, status_of

log = logging.getLogger(__name__)

KIND = "Application"
MANAGER = "argocd-application-controller"
REFRESH = "argocd.argoproj.io/refresh"
TROUBLE_SECONDS = 15.0


@dataclass(slots=True)
class AppState:
    """What the controller remembers of an Application between two looks. All of it can be lost."""

    syncing: Syncing | None = None
    healing: Healing = field(default_factory=Healing)
    follows: set[tuple[str, str]] = field(default_factory=set)
    objects: set[ObjectKey] = field(default_factory=set)
    waits_for_kind: bool = False


class ApplicationController:
    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        sources: Sources,
        applications: Informer,
        projects: Informer,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._sources = sources
        self._applications = applications
        self._projects = projects
        self._clock: Clock = clock or SystemClock()
        self._targets = TargetState(client, sources)
        self._comparer = Comparer(client, inventory)
        self._deletion = Deletion(client, inventory)
        self._states: dict[Key, AppState] = {}
        self.queue: WorkQueue[Key] = WorkQueue(clock=self._clock, cap=5.0)
        applications.add_listener(self._application_changed)
        projects.add_listener(lambda *_: self.look_at_all())
        inventory.on_new_kinds(self._kinds_changed)

    # -- what makes it look --------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[Key]:
        return list(self._applications.objects)

    def look_at_all(self) -> None:
        for key in self.keys():
            self.queue.add(key)

    def object_changed(self, key: ObjectKey, applications: set[str]) -> None:
        for app, state in self._states.items():
            waited_for = state.syncing is not None and state.syncing.touches(key)
            if app[1] in applications or key in state.objects or waited_for:
                self.queue.add(app)

    def followed(self) -> set[tuple[str, str]]:
        """(repository, revision) of every source, for whoever watches branches."""
        return set().union(*(state.follows for state in self._states.values()))

    def revision_changed(self, url: str, revision: str) -> None:
        for key, state in self._states.items():
            if (url, revision) in state.follows:
                self.queue.add(key)

    def _kinds_changed(self) -> None:
        for key, state in self._states.items():
            if state.waits_for_kind:
                if state.syncing:
                    state.syncing.retry_at = 0.0
                self.queue.add(key)

    def _application_changed(self, kind: str, obj: Obj, old: Obj | None) -> None:
        # Our own status writes come back as changes; only a changed wish is worth a look.
        if kind == "MODIFIED" and old is not None and _wish(obj) == _wish(old):
            return
        self.queue.add(key_of(obj))

    # -- one look ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> float | None:
        application = self._applications.get(*key)
        if application is None:
            self._forget(key)
            return None
        if is_deleting(application):
            return await self._delete(application)
        state = self._states.setdefault(key, AppState())
        state.follows = {(s.get("repoURL") or "", s.get("targetRevision") or "HEAD") for s in sources_of(application)}
        if annotations_of(application).get(REFRESH):
            self._refresh(application)
        problem = (
            destination_problem(application)
            or project_problem(application, self._projects.get(key[0], spec_of(application).get("project") or ""))
            or ignore_problem(spec_of(application).get("ignoreDifferences") or ())
        )
        if problem:
            await self._invalid(application, state, problem)
            return TROUBLE_SECONDS
        revisions = None
        try:
            revisions = await self._sources.resolve(application)
            targets = await self._targets.of(application, revisions)
        except ComparisonError as error:
            await self._incomparable(application, str(error), revisions if error.lasting else None)
            return TROUBLE_SECONDS
        return await self._move_on(application, state, targets)

    def _forget(self, key: Key) -> None:
        self._states.pop(key, None)
        self._targets.forget(key[1])
        self._comparer.forget(key[1])

    def _refresh(self, application: Obj) -> None:
        for source in sources_of(application):
            self._sources.repositories.forget(source.get("repoURL") or "")
        if annotations_of(application)[REFRESH] == "hard":
            self._targets.forget(name_of(application))
            self._comparer.forget(name_of(application))

    async def _delete(self, application: Obj) -> float | None:
        again = await self._deletion.go_on(application)
        if again is None:
            self._forget(key_of(application))
        return again

    async def _invalid(self, application: Obj, state: AppState, problem: str) -> None:
        state.syncing = None
        conditions = [appstatus.condition("InvalidSpecError", problem)]
        await self._write(application, UNKNOWN, Health(UNKNOWN), None, None, conditions)

    async def _incomparable(self, application: Obj, reason: str, refused: Revisions | None) -> None:
        """Git says nothing usable: what runs keeps running, and its health is still told. `refused` are commits that
        never will be usable."""
        log.warning("cannot be rendered", extra={"application": name_of(application), "reason": reason})
        await self._known_kinds(application, ())
        live = await self._comparer.compare(name_of(application), ())
        conditions = [appstatus.condition(appstatus.COMPARISON_ERROR, reason)]
        await self._write(application, UNKNOWN, live.health, None, None, conditions, refused=refused)

    async def _known_kinds(self, application: Obj, targets: Iterable[Obj]) -> bool:
        """Watch every kind that the Application has or wants; False if the API lacks one."""
        kinds = {(target["apiVersion"], target["kind"]) for target in targets}
        complete = all([await self._inventory.ensure(*kind) is not None for kind in sorted(kinds)])
        for entry in status_of(application).get("resources") or []:
            group, version = entry.get("group", ""), entry.get("version", "v1")
            if not self._inventory.serves(group, entry["kind"]):
                await self._inventory.ensure(f"{group}/{version}" if group else version, entry["kind"])
        return complete

    async def _move_on(self, application: Obj, state: AppState, targets: Targets) -> float | None:
        name = name_of(application)
        state.objects = {ObjectKey.of(target) for target in targets.objects}
        state.waits_for_kind = not await self._known_kinds(application, targets.objects)
        comparison = await self._compare(application, targets)
        conditions = [appstatus.condition("RepeatedResourceWarning", text) for text in targets.repeated]
        conditions += [appstatus.condition("SharedResourceWarning", text) for text in comparison.shared]
        again = await self._sync(application, state, targets, comparison, conditions)
        if state.syncing and state.syncing.touched:
            state.syncing.touched = False
            comparison = await self._compare(application, targets)
        await self._write(
            application, comparison.status, comparison.health, comparison, targets, conditions, state.syncing
        )
        if state.syncing and state.syncing.finished:
            log.info(
                "synced", extra={"application": name, "phase": state.syncing.phase, "revision": str(targets.revisions)}
            )
            state.syncing = None
        return again

    async def _compare(self, application: Obj, targets: Targets) -> Comparison:
        ignore = spec_of(application).get("ignoreDifferences") or ()
        return await self._comparer.compare(name_of(application), targets.objects, ignore)

    async def _sync(
        self, application: Obj, state: AppState, targets: Targets, comparison: Comparison, conditions: list[Obj]
    ) -> float | None:
        """Start, continue or retry a sync; seconds until the next look is due."""
        now = self._clock.monotonic()
        drifted = {resource.key for resource in comparison.out_of_sync()}
        state.healing.look(drifted, now)
        running = state.syncing
        if running and (
            running.targets.revisions != targets.revisions or running.source != appstatus.source_fields(application)
        ):
            # A newer wish replaces one that is still under way, or a bad commit would hold up the good one after it.
            running = state.syncing = None
        if running is None:
            running = await self._start(application, state, targets, comparison, conditions)
            state.syncing = running
        if running is None:
            return state.healing.wait(now)
        # A wave may wait for long, or for ever for what somebody took away: drift is not left until it is over. Nor
        # until what failed is tried again.
        undone = running.undone(application, comparison, state.healing.due(drifted, now))
        state.healing.done(undone, now)
        if running.retry_at > now and not undone:
            return _sooner(running.retry_at - now, state.healing.wait(now))
        await running.step(application, comparison, self._comparer)
        again = self._after_step(application, running)
        if running.phase == FAILED:
            conditions.append(appstatus.condition("SyncError", failed_message(targets.revisions, running.message)))
        return _sooner(again, state.healing.wait(now))

    async def _start(
        self, application: Obj, state: AppState, targets: Targets, comparison: Comparison, conditions: list[Obj]
    ) -> Syncing | None:
        asked = application.get("operation")
        last = status_of(application).get("operationState") or {}
        under_way = last.get("phase") == RUNNING
        if asked or under_way:
            refused = await self._refusal(application, asked.get("sync") or {}, targets) if asked else ""
            asked = asked or last.get("operation") or {}
            syncing = prepare_sync(
                self._client, self._inventory, self._clock, application, targets, asked=asked, refused=refused
            )
            if under_way:
                # The controller before us was in the middle of it.
                syncing.go_on(last)
            return syncing
        decision = decide(application, comparison, targets.revisions)
        if decision.refused:
            conditions.append(appstatus.condition("SyncError", decision.refused))
        if not decision.sync:
            return None
        heal = state.healing.due(decision.heal, self._clock.monotonic())
        if decision.heal:
            if not heal:
                return None
            state.healing.done(heal, self._clock.monotonic())
            log.info("drift", extra={"application": name_of(application), "objects": sorted(map(str, heal))})
        return prepare_sync(
            self._client, self._inventory, self._clock, application, targets, prune=decision.prune, heal=heal
        )

    async def _refusal(self, application: Obj, sync: Obj, targets: Targets) -> str:
        """Why a sync that somebody asks for would do something else than they say; "" if it would not."""
        if sync.get("dryRun"):
            return "dryRun is not supported: `regionctl apps preview` tells what a commit changes"
        named = sync.get("revisions") or [sync.get("revision")]
        for source, revision, commit in zip(sources_of(application), named, targets.revisions.commits, strict=False):
            try:
                wanted = await self._sources.repositories.resolve(source["repoURL"], revision) if revision else commit
            except RepoError as error:
                return str(error)
            if wanted != commit:
                return f"cannot sync to {revision}: the Application is at {source.get('targetRevision') or 'HEAD'}"
        return ""

    def _after_step(self, application: Obj, running: Syncing) -> float | None:
        if running.phase == RUNNING:
            # Health arrives as a change of an object; this is for what changes without one.
            return 10.0
        if running.finished:
            return None
        retry = running.retry
        if not retry.allows(running.attempt + 1):
            running.give_up()
            return None
        delay = retry.delay(running.attempt + 1, missing_kind=running.missing_kind)
        running.schedule_retry(delay)
        log.warning(
            "sync failed",
            extra={
                "application": name_of(application),
                "reason": running.message,
                "attempt": running.attempt,
                "in": delay,
            },
        )
        return delay

    # -- status --------------------------------------------------------------------------------------------------------

    async def _write(
        self,
        application: Obj,
        sync_status: str,
        health: Health,
        comparison: Comparison | None,
        targets: Targets | None,
        conditions: list[Obj],
        syncing: Syncing | None = None,
        *,
        refused: Revisions | None = None,
    ) -> None:
        old = status_of(application)
        history = old.get("history") or []
        if syncing and syncing.phase == SUCCEEDED and not syncing.partial:
            state = syncing.state()
            history = appstatus.remembered(
                application, syncing.targets, history, state["startedAt"], state["finishedAt"], syncing.initiated
            )
        new = appstatus.build(
            application,
            now=self._clock.now(),
            sync_status=sync_status,
            health=health,
            comparison=comparison,
            targets=targets,
            conditions=conditions,
            operation_state=syncing.state() if syncing else old.get("operationState"),
            history=history,
            refused=refused,
        )
        change: Obj = {}
        if (status := appstatus.patch(old, new)) is not None:
            change["status"] = status | {"reconciledAt": rfc3339(self._clock.now())}
        if "operation" in application and (not syncing or syncing.finished):
            change["operation"] = None
        if annotations_of(application).get(REFRESH):
            change["metadata"] = {"annotations": {REFRESH: None}}
        if change:
            await self._patch(application, change)

    async def _patch(self, application: Obj, change: Obj) -> None:
        namespace, name = key_of(application)
        try:
            written = await self._client.patch(API_VERSION, KIND, name, namespace, change, field_manager=MANAGER)
        except ApiError as error:
            if error.not_found:
                return
            raise
        self._applications.observe(written)


def _sooner(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def _wish(application: Obj) -> tuple[object, ...]:
    metadata = application.get("metadata") or {}
    kept = ("labels", "annotations", "finalizers", "deletionTimestamp")
    return (application.get("spec"), application.get("operation"), *(metadata.get(key) for key in kept))

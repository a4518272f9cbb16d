"""One sync, from its plan to its end: applies wave by wave, waits for health between waves, runs hooks, prunes.

It never blocks on the cluster's progress: `step` does what can be done now and returns; a change of a watched object
brings the controller back for the next one. Everything it does can be done twice. What it has done stands in the
Application's status, so that a controller that dies in the middle is followed by one that goes on from there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence, Set

from regional.core.clock import Clock
from regional.gitops.health import DEGRADED, PROGRESSING, SUSPENDED, UNKNOWN, health_of
from regional.gitops.inventory import CRD_KIND, Inventory
from regional.gitops.manifests import ObjectKey, group_of
from regional.gitops.waves import FAIL, Task, delete_policies, has_option, spared
from regional.kube.client import ApiError, ApiUnreachable, Client
from regional.kube.objects import Obj, is_deleting, is_true, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

FIELD_MANAGER = "argocd-controller"
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
CRD_SECONDS = 10.0


class Operation:
    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        clock: Clock,
        tasks: Sequence[Task],
        *,
        options: Mapping[str, str],
        prune: bool,
        namespace: Obj | None = None,
    ) -> None:
        """`namespace` is one to create before anything else, when nobody else does."""
        self._client = client
        self._inventory = inventory
        self._clock = clock
        self._options = options
        self._prune = prune
        self._namespace = namespace
        self.tasks = list(tasks)
        self.phase = RUNNING
        self.message = ""
        self.missing_kind = False
        self.answers: list[tuple[Obj, Obj]] = []
        """What was applied, and the server's answer to it, for whoever wants to know what is in sync; not `Task.live`,
        which follows the cluster while a wave waits, drift included."""
        self._failing = ""
        self._checked = False
        self._before: list[Obj] = []

    def go_on(self, results: Sequence[Obj], as_applied: Set[ObjectKey]) -> None:
        """From where another left off, by what it noted. What it applied counts as done if it is still as applied."""
        noted = {_identity(entry): entry for entry in results}
        for task in self.tasks:
            entry = noted.pop(_identity(_result(task)), None)
            if entry is not None and (task.hook or task.prune or task.key in as_applied):
                self._set(task, entry.get("hookPhase", ""), entry.get("status", ""), entry.get("message", ""))
                task.live = task.live or self._inventory.get(task.key)
        self._before = list(noted.values())  # pruned, and gone since

    async def step(self) -> None:
        """Go on as far as it goes. Afterwards `phase` says whether it is over, `message` where it stands."""
        if not self._checked:
            await self._prepare()
        while self.phase == RUNNING and await self._advance():
            pass

    def applied(self) -> set[ObjectKey]:
        return {task.key for task in self.tasks if task.status == "Synced" and not task.hook}

    def again(self, keys: Set[ObjectKey]) -> set[ObjectKey]:
        """Apply these anew, if they were applied; returns those that were."""
        found = self.applied() & keys
        for task in self.tasks:
            if task.key in found and not task.hook:
                self._set(task, "", "", "")
        return found

    async def _prepare(self) -> None:
        """Nothing is touched as long as the API does not know a kind that the sync does not bring itself."""
        brought = {_brings(task.target) for task in self.tasks if task.target is not None}
        for task in self.tasks:
            if task.prune:
                continue
            group, kind, obj = task.key.group, task.key.kind, task.obj
            if (group, kind) in brought or has_option(obj, self._options, "SkipDryRunOnMissingResource"):
                continue
            if await self._inventory.ensure(obj["apiVersion"], kind) is None:
                self.missing_kind = True
                self._set(task, FAILED, "SyncFailed", _unknown_kind(obj))
        self._checked = True
        if self.missing_kind:
            self._fail("one or more synchronization tasks are not valid", self._reasons())
            return
        if self._namespace is not None:
            try:
                await self._client.apply(self._namespace, field_manager=FIELD_MANAGER, force=True)
            except ApiError as error:
                self._fail(f"failed to create namespace {name_of(self._namespace)}", error.message)

    async def _advance(self) -> bool:
        """One round; True if there may be more to do at once."""
        self._look()
        if self._failing:
            return await self._run_failure_hooks()
        tasks = [task for task in self.tasks if task.phase != FAIL]
        several = bool(tasks) and (tasks[0].phase, tasks[0].wave) != (tasks[-1].phase, tasks[-1].wave)
        waiting = [task for task in tasks if task.state == RUNNING and (several or task.hook)]
        if waiting:
            self.message = _waiting_message(waiting)
            return False
        if any(task.state == FAILED for task in tasks):
            self._failing = "one or more synchronization tasks completed unsuccessfully"
            return True
        pending = [task for task in tasks if task.pending]
        if not pending:
            await self._finish("successfully synced (no more tasks)")
            return False
        phase, wave = pending[0].phase, pending[0].wave
        now = [task for task in pending if (task.phase, task.wave) == (phase, wave)]
        later = [task for task in pending if task not in now]
        self.message = "one or more tasks are running"
        await self._run(now)
        if any(task.state == FAILED for task in now):
            self._failing = "one or more objects failed to apply"
            return True
        if any(task.pending for task in now):
            # A hook that still exists has to go before it can be made anew; its deletion will wake us.
            self.message = _waiting_message([task for task in now if task.pending])
            return False
        if not later and not any(task.hook for task in now):
            # The last wave is not waited for: a sync without waves is an apply, done when it is accepted.
            await self._finish("successfully synced (all tasks run)")
            return False
        return True

    async def _run_failure_hooks(self) -> bool:
        hooks = [task for task in self.tasks if task.phase == FAIL]
        if pending := [task for task in hooks if task.pending]:
            await self._run(pending)
            return True
        if running := [task for task in hooks if task.state == RUNNING]:
            self.message = _waiting_message(running)
            return False
        self._fail(self._failing, self._reasons())
        await self._delete_hooks("HookFailed")
        return False

    def _look(self) -> None:
        """What became of the tasks that were under way."""
        for task in self.tasks:
            if task.state != RUNNING:
                continue
            task.live = self._inventory.get(task.key) or (None if task.hook else task.live)
            if task.live is None:
                self._set(task, FAILED, task.status, "the hook was deleted before it was done")
                continue
            health = health_of(task.live)
            if health is None or health.status == "Healthy":
                self._set(task, SUCCEEDED, task.status, health.message if health and task.hook else task.message)
            elif health.status == DEGRADED or (task.hook and health.status == UNKNOWN):
                self._set(task, FAILED, task.status, health.message or task.message)
            elif task.hook and health.status in (PROGRESSING, SUSPENDED):
                task.message = health.message

    async def _run(self, tasks: Sequence[Task]) -> None:
        prunes = [task for task in tasks if task.prune]
        await asyncio.gather(*(self._prune_one(task) for task in prunes))
        for _, group in itertools.groupby((task for task in tasks if not task.prune), key=lambda task: task.key.kind):
            await asyncio.gather(*(self._apply(task) for task in group))

    async def _prune_one(self, task: Task) -> None:
        obj = task.obj
        if not self._prune:
            self._set(task, SUCCEEDED, "PruneSkipped", "ignored (requires pruning)")
            return
        if spared(obj, "Prune"):
            self._set(task, SUCCEEDED, "PruneSkipped", "ignored (no prune)")
            return
        try:
            await self._delete(obj, self._options.get("PrunePropagationPolicy", "foreground"))
        except ApiError as error:
            self._set(task, FAILED, "SyncFailed", error.message)
        else:
            self._set(task, SUCCEEDED, "Pruned", "pruned")

    async def _delete(self, obj: Obj, propagation: str) -> None:
        await self._client.delete(
            obj["apiVersion"],
            obj["kind"],
            name_of(obj),
            namespace_of(obj) or None,
            propagation=propagation.capitalize(),
            uid=uid_of(obj) or None,
            missing_ok=True,
        )

    async def _apply(self, task: Task) -> None:
        assert task.target is not None
        target = task.target
        try:
            if await self._inventory.ensure(target["apiVersion"], target["kind"]) is None:
                self.missing_kind = True
                self._set(task, FAILED, "SyncFailed", _unknown_kind(target))
                return
            if task.hook and not await self._make_room(task):
                return
            applied = await self._send(target)
            self._inventory.observe(applied)
            task.live = applied
            if not task.hook:
                self.answers.append((target, applied))
            if target["kind"] == CRD_KIND:
                await self._established(target)
        except ApiUnreachable:
            raise
        except ApiError as error:
            self._set(task, FAILED, "SyncFailed", error.message)
            return
        verb = "created" if task.hook else "serverside-applied"
        self._set(task, RUNNING, "Synced", f"{_reference(target)} {verb}")

    async def _send(self, target: Obj) -> Obj:
        if not has_option(target, self._options, "Replace"):
            try:
                return await self._client.apply(target, field_manager=FIELD_MANAGER, force=True)
            except ApiError as error:
                if error.status != 422 or not has_option(target, self._options, "Force"):
                    raise
        live = await self._client.get_or_none(
            target["apiVersion"], target["kind"], name_of(target), namespace_of(target)
        )
        if live is None:
            return await self._client.create(target)
        if not has_option(target, self._options, "Force"):
            version = {"resourceVersion": live["metadata"]["resourceVersion"]}
            return await self._client.update(target | {"metadata": target["metadata"] | version})
        await self._delete(live, "background")
        return await self._client.create(target)

    async def _make_room(self, task: Task) -> bool:
        """BeforeHookCreation: the hook of the last sync has to be gone first. False while it is going."""
        live = self._inventory.get(task.key)
        if live is None:
            return True
        if "BeforeHookCreation" in delete_policies(task.obj) and not is_deleting(live):
            await self._delete(live, "background")
        return "BeforeHookCreation" not in delete_policies(task.obj)

    async def _established(self, definition: Obj) -> None:
        deadline = self._clock.monotonic() + CRD_SECONDS
        while self._clock.monotonic() < deadline:
            live = await self._client.get(definition["apiVersion"], CRD_KIND, name_of(definition))
            if is_true(live, "Established"):
                return
            await self._clock.sleep(0.05)

    async def _finish(self, message: str) -> None:
        for task in self.tasks:
            # Applied and accepted is all that a last wave is asked for.
            if task.state == RUNNING:
                task.state = SUCCEEDED
        await self._delete_hooks("HookSucceeded")
        self.phase, self.message = SUCCEEDED, message

    async def _delete_hooks(self, policy: str) -> None:
        """At the end of the operation, so that later phases can still look at what a hook left behind."""
        for task in self.tasks:
            done = task.state == (SUCCEEDED if policy == "HookSucceeded" else FAILED)
            if task.hook and done and task.live is not None and policy in delete_policies(task.obj):
                try:
                    await self._delete(task.live, "background")
                except ApiError as error:
                    log.warning("hook not deleted", extra={"hook": str(task.key), "reason": error.message})

    def _set(self, task: Task, state: str, status: str, message: str) -> None:
        task.state, task.status, task.message = state, status, message

    def _fail(self, message: str, reason: str) -> None:
        self.phase = FAILED
        self.message = f"{message}, reason: {reason}" if reason else message

    def _reasons(self) -> str:
        return ",".join(dict.fromkeys(task.message for task in self.tasks if task.state == FAILED and task.message))

    def results(self) -> list[Obj]:
        """syncResult.resources: what was done so far, in the order it was done."""
        return [*self._before, *(_result(task) for task in self.tasks if not task.pending)]


def _result(task: Task) -> Obj:
    return (
        {
            "group": task.key.group,
            "version": task.obj["apiVersion"].rpartition("/")[2],
            "kind": task.key.kind,
            "namespace": task.key.namespace,
            "name": task.key.name,
            "message": task.message,
            "hookPhase": task.state,
            "syncPhase": task.phase,
        }
        | ({"status": task.status} if task.status else {})
        | ({"hookType": task.phase} if task.hook else {})
    )


def _identity(result: Obj) -> tuple[object, ...]:
    return tuple(result.get(field) or "" for field in ("group", "kind", "namespace", "name", "syncPhase"))


def _brings(target: Obj) -> tuple[str, str]:
    if target["kind"] != CRD_KIND:
        return ("", "")
    spec = target.get("spec") or {}
    return (spec.get("group", ""), (spec.get("names") or {}).get("kind", ""))


def _reference(obj: Obj) -> str:
    group = group_of(obj)
    return f"{obj['kind'].lower()}{'.' + group if group else ''}/{name_of(obj)}"


def _unknown_kind(obj: Obj) -> str:
    return (
        f"The Kubernetes API could not find {group_of(obj)}/{obj['kind']} for requested resource "
        f"{namespace_of(obj) or 'default'}/{name_of(obj)}. Make sure the {obj['kind']!r} CRD is installed on the "
        "destination cluster."
    )


def _waiting_message(tasks: Sequence[Task]) -> str:
    first = tasks[0]
    what = "completion of hook" if first.hook else "healthy state of"
    more = f" and {len(tasks) - 1} more {'hooks' if first.hook else 'resources'}" if len(tasks) > 1 else ""
    return f"waiting for {what} {first.key}{more}"

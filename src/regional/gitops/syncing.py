"""A sync of one Application over its attempts: what was asked, by whom, how far it is, and how status tells it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import timedelta
from typing import Any

from regional.core.clock import Clock, rfc3339
from regional.gitops import appstatus
from regional.gitops.autosync import Retry
from regional.gitops.compare import SYNCED, Comparer, Comparison
from regional.gitops.ignoring import with_live_values
from regional.gitops.inventory import Inventory
from regional.gitops.manifests import ObjectKey
from regional.gitops.operation import FAILED, RUNNING, SUCCEEDED, Operation
from regional.gitops.targets import Targets
from regional.gitops.waves import parse_options, plan
from regional.kube.client import Client
from regional.kube.objects import Obj, name_of, parse_time, spec_of

AUTOMATED = {"automated": True}


class Syncing:
    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        clock: Clock,
        application: Obj,
        targets: Targets,
        *,
        request: Obj,
        initiated: Obj,
        retry: Retry,
        heal: bool,
        refused: str = "",
    ) -> None:
        """`refused` says why nothing may be done at all."""
        self._client, self._inventory, self._clock = client, inventory, clock
        self.targets = targets
        self.source = appstatus.source_fields(application)
        self.initiated = initiated
        self.retry = retry
        self._request = request
        self._heal = heal
        self._refused = refused
        self._started = clock.now()
        self._finished: str | None = None
        self._operation: Operation | None = None
        self._failed = ""
        self.attempt = 0
        self.retry_at = 0.0
        self.touched = False
        self._retry_note = ""
        self._last_results: Sequence[Obj] = ()
        self._applied: set[ObjectKey] = set()
        self._noted: Sequence[Obj] = ()

    def go_on(self, last: Obj) -> None:
        """Take over from a controller that died in the middle of this very sync; `last` is the operationState it left.
        A hook that has run does not run again, and one that is named by the time of the start keeps its name."""
        ours = self.state()
        result, mine = last.get("syncResult") or {}, ours["syncResult"]
        same = all(result.get(field) == value for field, value in mine.items() if field != "resources")
        started = parse_time(last.get("startedAt"))
        if not same or started is None or (last.get("operation") or {}).get("sync") != ours["operation"]["sync"]:
            return
        self._started = started
        self.attempt = int(last.get("retryCount") or 0)
        if "finishedAt" not in last:  # otherwise it waited for its next attempt, which begins anew
            self._noted = result.get("resources") or ()

    # -- progress ------------------------------------------------------------------------------------------------------

    async def step(self, application: Obj, comparison: Comparison, comparer: Comparer) -> None:
        if self._refused:
            self._failed = self._retry_note = self._refused
            self._finished = rfc3339(self._clock.now())
            return
        if self._operation is None:
            self._finished = None
            self._operation = self._begin(application, comparison)
            in_sync = {resource.key for resource in comparison.resources if resource.status == SYNCED}
            self._operation.go_on(self._noted, in_sync)
            self._noted = ()
        await self._operation.step()
        self.touched = True
        ignore = spec_of(application).get("ignoreDifferences") or ()
        for target, answer in self._operation.answers:
            comparer.applied(name_of(application), target, answer, ignore)
        self._operation.answers.clear()
        if self._operation.phase != RUNNING:
            self._finished = rfc3339(self._clock.now())

    def _begin(self, application: Obj, comparison: Comparison) -> Operation:
        spec = spec_of(application)
        policy = spec.get("syncPolicy") or {}
        options = parse_options([*(policy.get("syncOptions") or []), *(self._request.get("syncOptions") or [])])
        chosen = self._chosen(comparison)
        wanted = [t for t in self.targets.objects if chosen is None or ObjectKey.of(t) in chosen]
        lives = {r.key: r.live for r in comparison.resources if r.live is not None}
        if options.get("RespectIgnoreDifferences") == "true":
            ignore = spec.get("ignoreDifferences") or ()
            wanted = [with_live_values(target, lives.get(ObjectKey.of(target)), ignore) for target in wanted]
        prunable = [obj for obj in comparison.prunable if chosen is None or ObjectKey.of(obj) in chosen]
        tasks = plan(
            wanted,
            lives,
            prunable,
            options=options,
            revision=self.targets.revisions.commits[0],
            started=int(self._started.timestamp()),
            # A sync of some objects only runs no hooks, as in Argo CD.
            with_hooks=chosen is None,
        )
        return Operation(
            self._client,
            self._inventory,
            self._clock,
            tasks,
            options=options,
            prune=bool(self._request.get("prune")),
            namespace=self._namespace(spec, options),
        )

    def touches(self, key: ObjectKey) -> bool:
        """Whether this sync waits for the object; hooks that name themselves are known only here."""
        return self._operation is not None and any(task.key == key for task in self._operation.tasks)

    def undone(self, application: Obj, comparison: Comparison, due: Set[ObjectKey]) -> set[ObjectKey]:
        """What this sync applied and was deleted since, or changed where that is to be healed, as far as it is due:
        that much is then done again. While a failed sync waits for its next attempt, that comes at once."""
        policy = (spec_of(application).get("syncPolicy") or {}).get("automated") or {}
        drifted = {
            resource.key
            for resource in comparison.out_of_sync()
            if resource.target is not None and resource.key in due and (policy.get("selfHeal") or resource.live is None)
        }
        if self._operation is not None:
            return self._operation.again(drifted) if self._operation.phase == RUNNING else set()
        if self.attempt == 0 or self.retry.limit >= 0:
            return set()
        if not self._heal:
            return drifted & self._applied
        more = drifted - (self._chosen(comparison) or set())
        self._request = self._request | {"resources": [*self._request["resources"], *map(_named, sorted(more))]}
        return more | (drifted & self._applied)

    @property
    def partial(self) -> bool:
        return bool(self._request.get("resources"))

    def _chosen(self, comparison: Comparison) -> set[ObjectKey] | None:
        """None for all; a request may name its objects, and a heal names what drifted."""
        named = self._request.get("resources")
        if not named:
            return None
        wanted = {(r.get("group") or "", r.get("kind"), r.get("name"), r.get("namespace") or "") for r in named}
        return {
            resource.key
            for resource in comparison.resources
            if (resource.key.group, resource.key.kind, resource.key.name, resource.key.namespace) in wanted
            or (resource.key.group, resource.key.kind, resource.key.name, "") in wanted
        }

    def _namespace(self, spec: Obj, options: dict[str, str]) -> Obj | None:
        name = (spec.get("destination") or {}).get("namespace")
        if not name or options.get("CreateNamespace") != "true":
            return None
        # Also where this sync leaves it out: to apply the bare name would take from it what the chart gives it.
        if any(target["kind"] == "Namespace" and name_of(target) == name for target in self.targets.objects):
            return None
        managed = (spec.get("syncPolicy") or {}).get("managedNamespaceMetadata") or {}
        metadata = {key: managed[key] for key in ("labels", "annotations") if managed.get(key)}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name} | metadata}

    # -- outcome -------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        if self._failed:
            return FAILED
        return self._operation.phase if self._operation else RUNNING

    @property
    def finished(self) -> bool:
        return self.phase == SUCCEEDED or bool(self._failed)

    @property
    def missing_kind(self) -> bool:
        return bool(self._operation and self._operation.missing_kind)

    @property
    def message(self) -> str:
        return self._retry_note or (self._operation.message if self._operation else "")

    def schedule_retry(self, delay: float) -> None:
        self.attempt += 1
        self.retry_at = self._clock.monotonic() + delay
        message = self._operation.message if self._operation else ""
        when = self._clock.now() + timedelta(seconds=delay)
        self._retry_note = f"{message}. Retrying attempt #{self.attempt} at {when.strftime('%-I:%M%p')}."
        self._last_results = self._operation.results() if self._operation else []
        self._applied = self._operation.applied() if self._operation else set()
        self._operation = None

    def give_up(self) -> None:
        message = self._operation.message if self._operation else ""
        tried = f" (retried {self.attempt} times)." if self.attempt else ""
        self._failed = self._retry_note = f"{message}{tried}"

    def state(self) -> Obj:
        """status.operationState."""
        results = self._operation.results() if self._operation else list(self._last_results)
        fields = self.targets.revisions.fields()
        state: dict[str, Any] = {
            "phase": self.phase,
            "message": self.message,
            "startedAt": rfc3339(self._started),
            "operation": {"sync": fields | self._request, "initiatedBy": self.initiated, "retry": self.retry.policy()},
            "syncResult": {**fields, **self.source, "resources": results},
        }
        if self.attempt:
            state["retryCount"] = self.attempt
        if self._finished:
            # Also while it waits for its next attempt, which is how Argo CD tells that from one under way.
            state["finishedAt"] = self._finished
        return state


def prepare_sync(
    client: Client,
    inventory: Inventory,
    clock: Clock,
    application: Obj,
    targets: Targets,
    *,
    prune: bool = False,
    heal: Set[ObjectKey] = frozenset(),
    asked: Obj | None = None,
    refused: str = "",
) -> Syncing:
    """An automated sync, or the one that `asked` (an Application's `operation`) describes."""
    if asked is not None:
        request = {
            key: value for key, value in (asked.get("sync") or {}).items() if key not in ("revision", "revisions")
        }
        initiated = asked.get("initiatedBy") or {}
        # One that somebody asks for is tried once, unless they say otherwise.
        retry = Retry.of(application) if initiated.get("automated") else Retry.said(asked.get("retry") or {})
    else:
        request = ({"prune": prune} if prune else {}) | ({"resources": [*map(_named, sorted(heal))]} if heal else {})
        initiated, retry = AUTOMATED, Retry.of(application)
    options = (spec_of(application).get("syncPolicy") or {}).get("syncOptions")
    if options and "syncOptions" not in request:
        request = request | {"syncOptions": options}
    return Syncing(
        client,
        inventory,
        clock,
        application,
        targets,
        request=request,
        initiated=initiated,
        retry=retry,
        heal=bool(heal) and asked is None,
        refused=refused,
    )


def _named(key: ObjectKey) -> Obj:
    """As `operation.sync.resources` names it."""
    fields = {"group": key.group, "kind": key.kind, "namespace": key.namespace, "name": key.name}
    return {field: value for field, value in fields.items() if value}

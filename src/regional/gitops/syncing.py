"""A sync of one Application over its attempts: what was asked, by whom, how far it is, and how status tells it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from regional.core.clock import Clock, rfc3339
from regional.gitops import appstatus
from regional.gitops.compare import Comparer, Comparison, drop_pointer
from regional.gitops.inventory import Inventory
from regional.gitops.manifests import ObjectKey
from regional.gitops.operation import FAILED, RUNNING, SUCCEEDED, Operation
from regional.gitops.targets import Targets
from regional.gitops.waves import parse_options, plan
from regional.kube.client import Client
from regional.kube.objects import Obj, copied, name_of, spec_of

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
        heal: bool,
    ) -> None:
        self._client, self._inventory, self._clock = client, inventory, clock
        self.targets = targets
        self.source = appstatus.source_fields(application)
        self.initiated = initiated
        self._request = request
        self._heal = heal
        self._started = clock.now()
        self._finished: str | None = None
        self._operation: Operation | None = None
        self._failed = ""
        self.attempt = 0
        self.retry_at = 0.0
        self.touched = False
        self._retry_note = ""
        self._last_results: Sequence[Obj] = ()

    # -- progress ------------------------------------------------------------------------------------------------------

    async def step(self, application: Obj, comparison: Comparison, comparer: Comparer) -> None:
        if self._operation is None:
            self._operation = self._begin(application, comparison)
        await self._operation.step()
        self.touched = True
        for task in self._operation.tasks:
            if task.status == "Synced" and task.target is not None and task.live is not None and not task.hook:
                comparer.applied(name_of(application), task.target, task.live)
        if self._operation.phase != RUNNING:
            self._finished = rfc3339(self._clock.now())

    def _begin(self, application: Obj, comparison: Comparison) -> Operation:
        spec = spec_of(application)
        policy = spec.get("syncPolicy") or {}
        options = parse_options([*(policy.get("syncOptions") or []), *(self._request.get("syncOptions") or [])])
        chosen = self._chosen(comparison)
        wanted = [t for t in self.targets.objects if chosen is None or ObjectKey.of(t) in chosen]
        if options.get("RespectIgnoreDifferences") == "true":
            wanted = [_respecting(target, spec.get("ignoreDifferences") or ()) for target in wanted]
        lives = {r.key: r.live for r in comparison.resources if r.live is not None}
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
            namespace=self._namespace(spec, options, wanted),
        )

    def touches(self, key: ObjectKey) -> bool:
        """Whether this sync waits for the object; hooks that name themselves are known only here."""
        return self._operation is not None and any(task.key == key for task in self._operation.tasks)

    @property
    def partial(self) -> bool:
        return self._heal or bool(self._request.get("resources"))

    def _chosen(self, comparison: Comparison) -> set[ObjectKey] | None:
        """None for all; a heal touches only what drifted; a request may name its objects."""
        if self._heal:
            return {resource.key for resource in comparison.out_of_sync()}
        named = self._request.get("resources")
        if not named:
            return None
        wanted = {(r.get("group", ""), r.get("kind"), r.get("name"), r.get("namespace")) for r in named}
        return {
            resource.key
            for resource in comparison.resources
            if (resource.key.group, resource.key.kind, resource.key.name, resource.key.namespace) in wanted
            or (resource.key.group, resource.key.kind, resource.key.name, None) in wanted
        }

    def _namespace(self, spec: Obj, options: dict[str, str], wanted: Sequence[Obj]) -> Obj | None:
        name = (spec.get("destination") or {}).get("namespace")
        if not name or options.get("CreateNamespace") != "true":
            return None
        if any(target["kind"] == "Namespace" and name_of(target) == name for target in wanted):
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
        self._operation = None
        self._finished = None

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
            "operation": {"sync": fields | self._request, "initiatedBy": self.initiated},
            "syncResult": {**fields, **self.source, "resources": results},
        }
        if self.attempt:
            state["retryCount"] = self.attempt
        if self._finished and self.finished:
            state["finishedAt"] = self._finished
        return state


def _respecting(target: Obj, ignore: Sequence[Obj]) -> Obj:
    """RespectIgnoreDifferences: what is not compared is not applied either."""
    key = ObjectKey.of(target)
    trimmed = copied(target)
    for rule in ignore:
        if (
            rule.get("group", "") == key.group
            and rule.get("kind") == key.kind
            and rule.get("name", key.name) == key.name
        ):
            for pointer in rule.get("jsonPointers") or []:
                drop_pointer(trimmed, pointer)
    return trimmed


def prepare_sync(
    client: Client,
    inventory: Inventory,
    clock: Clock,
    application: Obj,
    targets: Targets,
    *,
    prune: bool = False,
    heal: bool = False,
    asked: Obj | None = None,
) -> Syncing:
    """An automated sync, or the one that `asked` (an Application's `operation`) describes."""
    if asked is not None:
        request = {
            key: value for key, value in (asked.get("sync") or {}).items() if key not in ("revision", "revisions")
        }
        initiated = asked.get("initiatedBy") or {}
    else:
        request = {"prune": prune} if prune else {}
        initiated = AUTOMATED
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
        heal=heal and asked is None,
    )

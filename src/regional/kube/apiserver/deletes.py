"""Delete and deletecollection: preconditions, finalizers, propagation, a pod's grace.

A deletion either removes an object or marks it (`deletionTimestamp`); a marked one goes with the write that takes its
last finalizer away (see `writes.let_go`) or, for a pod, with the node's final delete.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver import crds
from regional.kube.apiserver.admission import PROTECTED
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import CRDS, store_name
from regional.kube.apiserver.entries import Entry, Key, Obj, encode
from regional.kube.apiserver.errors import (
    Cause,
    StatusError,
    bad_request,
    details_of,
    forbidden,
    invalid_options,
    not_found,
    precondition_failed,
)
from regional.kube.apiserver.media import decode
from regional.kube.apiserver.reads import Reader
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.store import Decision, Keep, Put, Remove, Store
from regional.kube.apiserver.writes import let_go
from regional.kube.messages import Response
from regional.kube.schema.registry import Kind

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
# These answer a delete with the object, also when it is gone.
_RETURNED = frozenset(
    (
        "pods",
        "serviceaccounts",
        "resourcequotas",
        "persistentvolumes",
        "persistentvolumeclaims",
        "services",
        "storageclasses.storage.k8s.io",
        "csidrivers.storage.k8s.io",
    )
)
_BATCH = 100


class DeleteOptions(msgspec.Struct, frozen=True):
    policy: str = ""  # Foreground, Background, Orphan; "" is the kind's default
    grace: int | None = None
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


def delete_options(call: Call) -> DeleteOptions:
    """From the body if there is one, else from the query."""
    request = call.request
    body: Obj = decode(request, "DeleteOptions") if request.body.strip() else {}
    if not body:
        body = dict(request.query)
    kind = body.get("kind")
    if kind and kind != "DeleteOptions":
        version = body.get("apiVersion") or ""
        raise bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    preconditions = body.get("preconditions") or {}
    policy = body.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents")
    dry = _listed(body.get("dryRun")) or [value for key, value in request.query if key == "dryRun"]
    _check_options(policy, orphan is not None, dry)
    if orphan is not None:
        policy = "Orphan" if orphan in (True, "true", "1") else "Background"
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions must be an object")
    return DeleteOptions(
        policy,
        _grace(body.get("gracePeriodSeconds")),
        str(preconditions.get("uid") or ""),
        str(preconditions.get("resourceVersion") or ""),
        bool(dry),
    )


def check_preconditions(kind: Kind, name: str, uid: str, revision: str, options: DeleteOptions) -> None:
    if options.uid and options.uid != uid:
        raise precondition_failed(kind, name, "UID", options.uid, uid)
    if options.revision and options.revision != revision:
        raise precondition_failed(kind, name, "ResourceVersion", options.revision, revision)


def _listed(value: Any) -> list[str]:
    if not value:
        return []
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _check_options(policy: str, orphan: bool, dry: list[str]) -> None:
    found = []
    if policy not in ("", "Foreground", "Background", "Orphan"):
        text = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        found.append(Cause("FieldValueNotSupported", text, "propagationPolicy"))
    if policy and orphan:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        found.append(Cause("FieldValueInvalid", text, "propagationPolicy"))
    if any(each != "All" for each in dry):
        text = f'Unsupported value: {encode(dry).decode()}: supported values: "All"'
        found.append(Cause("FieldValueNotSupported", text, "dryRun"))
    if found:
        raise invalid_options("DeleteOptions", *found)


def _grace(value: Any) -> int | None:
    if value is None or value == "":
        return None
    try:
        seconds = int(value)
    except (TypeError, ValueError):
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None
    return max(0, seconds) if seconds >= 0 else 1


class Deleter:
    def __init__(self, store: Store, reader: Reader, renderer: Renderer, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._renderer = renderer
        self._clock = clock

    async def delete(self, call: Call) -> Response:
        options = delete_options(call)
        entry, gone = await self.remove(call, call.namespace, call.target.name, options)
        if gone and store_name(call.kind) not in _RETURNED:
            details = details_of(call.kind, entry.name, uid=entry.uid)
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return self._renderer.document(200, status, call.wanted)
        return self._renderer.single(200, call.kind, entry, call.wanted)

    async def collection(self, call: Call) -> Response:
        """Those that a list with the same parameters would show, and no others: a page of them, if a limit is given."""
        options = delete_options(call)
        chosen, meta = await self._reader.page(call)
        gone: set[Key] = set()
        for start in range(0, len(chosen), _BATCH):
            outcomes = await asyncio.gather(
                *(self.remove(call, *entry.key, options) for entry in chosen[start : start + _BATCH]),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, StatusError) and outcome.code == 404:
                    continue  # somebody else was faster, which is what we wanted
                if isinstance(outcome, BaseException):
                    raise outcome
                gone.add(outcome[0].key)
        # As they were when they were found, whatever became of them.
        deleted = [entry for entry in chosen if entry.key in gone]
        return await self._renderer.listing(call.kind, deleted, meta, call.wanted, "")

    async def remove(self, call: Call, namespace: str, name: str, options: DeleteOptions) -> tuple[Entry, bool]:
        """The object as it is now or was last, and whether it is gone."""
        gone: list[bool] = []

        def decide(live: Entry | None) -> Decision:
            gone.clear()
            if live is None:
                raise not_found(call.kind, name)
            decision = self._decide(call, live, options)
            gone.append(isinstance(decision, Remove))
            return decision

        act = self._store.preview if options.dry_run else self._store.write
        entry = await act(store_name(call.kind), namespace, name, decide)
        return entry, gone[-1]

    def _decide(self, call: Call, live: Entry, options: DeleteOptions) -> Decision:
        kind = call.kind
        check_preconditions(kind, live.name, live.uid, str(live.revision), options)
        if kind.group == "" and kind.kind == "Namespace":
            return self._end_namespace(call, live)
        obj = live.obj()
        metadata = obj["metadata"]
        finalizers = self._finalizers(call, metadata, options)
        grace = self._grace_of(kind, obj, options)
        before = metadata.get("finalizers") or []
        marked = "deletionTimestamp" in metadata
        if (
            marked
            and grace >= metadata.get("deletionGracePeriodSeconds", 0)
            and finalizers == before
            and (finalizers or grace > 0)
        ):
            return Keep(live)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if finalizers or (kind.group, kind.kind) == ("", "Pod"):
            self._mark(kind, obj, grace)
        elif not marked:
            return Remove(obj)
        if store_name(kind) == CRDS:
            crds.mark_terminating(obj, self._clock.now())
        return Remove(obj) if let_go(kind.group, kind.kind, obj) else Put(obj)

    def _mark(self, kind: Kind, obj: Obj, grace: int) -> None:
        metadata = obj["metadata"]
        first = "deletionTimestamp" not in metadata
        shorter = not first and grace < metadata.get("deletionGracePeriodSeconds", 0)
        if first or shorter:
            metadata["deletionTimestamp"] = rfc3339(self._clock.now() + timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
        if first and kind.generation and "generation" in metadata:
            metadata["generation"] += 1

    def _finalizers(self, call: Call, metadata: Obj, options: DeleteOptions) -> list[str]:
        present = list(metadata.get("finalizers") or [])
        others = [each for each in present if each not in (FOREGROUND, ORPHAN)]
        policy = options.policy
        if not policy:
            if ORPHAN in present:
                policy = "Orphan"
            elif FOREGROUND in present:
                policy = "Foreground"
            elif (call.kind.group, call.kind.kind) == ("batch", "Job"):
                policy = "Orphan"
                call.warn(ORPHAN_WARNING)
        if policy == "Orphan":
            return [*others, ORPHAN]
        return [*others, FOREGROUND] if policy == "Foreground" else others

    @staticmethod
    def _grace_of(kind: Kind, obj: Obj, options: DeleteOptions) -> int:
        if (kind.group, kind.kind) != ("", "Pod"):
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0  # no process to wait for
        if options.grace is not None:
            return options.grace
        marked: int | None = obj["metadata"].get("deletionGracePeriodSeconds")
        if marked is not None:
            return marked
        return int(spec.get("terminationGracePeriodSeconds", 30))

    def _end_namespace(self, call: Call, live: Entry) -> Decision:
        if live.name in PROTECTED:
            raise forbidden(call.kind, live.name, "this namespace may not be deleted")
        obj = live.obj()
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp") and (obj.get("spec") or {}).get("finalizers"):
            return Keep(live)
        self._mark(call.kind, obj, 0)
        metadata.pop("deletionGracePeriodSeconds", None)
        obj.setdefault("status", {})["phase"] = "Terminating"
        return Remove(obj) if let_go("", "Namespace", obj) else Put(obj)

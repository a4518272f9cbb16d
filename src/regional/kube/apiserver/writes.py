"""Create, update, patch: one pipeline for every kind, the order of §"decode, default, patch, own, admit, validate".

Everything between reading the live object and handing the new one to the store happens in one step without waiting
(`decide`), so a patch always works on the latest content and needs no retries.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from regional.core.clock import Clock, rfc3339
from regional.kube.apiserver import crds, incoming
from regional.kube.apiserver.admission import Admission, suffix
from regional.kube.apiserver.calls import Call
from regional.kube.apiserver.catalogue import CRDS, Catalogue, store_name
from regional.kube.apiserver.entries import Entry, Obj, entry_of
from regional.kube.apiserver.errors import (
    Cause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    not_found,
    other_object,
    revision_missing,
)
from regional.kube.apiserver.media import patch_type
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.store import Decide, Decision, Keep, Put, Remove, Store
from regional.kube.messages import Response
from regional.kube.schema import apply, builtin, structural
from regional.kube.schema.errors import FieldError
from regional.kube.schema.metadata_rules import unknown_finalizers
from regional.kube.schema.registry import Kind

NAME_TRIES = 8
_REPEATED_OWNERS = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)

NO_NAME = "name must be provided"
_UNNAMED = f"was undeterminable: {NO_NAME}"


class Writer:
    def __init__(
        self, store: Store, catalogue: Catalogue, admission: Admission, renderer: Renderer, clock: Clock
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._admission = admission
        self._renderer = renderer
        self._clock = clock

    # --- verbs ---------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> Response:
        call.check_options("CreateOptions")
        obj = incoming.decode_object(call, self._catalogue.schema(call.kind))
        self._address(call, obj)
        metadata = obj["metadata"]
        base = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        for attempt in range(NAME_TRIES if base else 1):
            if base:
                metadata["name"] = base[:58] + suffix()
            taken = self._store.get(store_name(call.kind), call.namespace, str(metadata.get("name", ""))) is not None
            if not (taken and base):
                break
            if attempt == NAME_TRIES - 1:
                error = already_exists(call.kind, metadata["name"])
                error.message += ", the server was not able to generate a unique name for the object"
                raise error
        revision = str(metadata.get("resourceVersion") or "0")
        return await self._create(call, obj, versioned=revision.isdigit() and int(revision) != 0)

    async def _create(self, call: Call, obj: Obj, *, versioned: bool = False) -> Response:
        name = str(obj["metadata"].get("name") or "")

        def decide(live: Entry | None) -> Decision:
            new = self._new(call, obj, managed=False, live=None if versioned else live)
            if versioned:
                raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
            return Put(self._to_store(call, new))

        entry = await self._commit(call, name, decide)
        return self._renderer.single(201, call.kind, entry, call.wanted)

    async def update(self, call: Call) -> Response:
        call.check_options("UpdateOptions")
        subresource = call.target.subresource
        sent = incoming.decode_object(call, self._catalogue.schema(call.kind))
        self._address(call, sent)
        name = call.target.name
        given = str(sent["metadata"].get("name") or "")
        if given != name:
            raise bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
                if given
                else f"the name of the object ({name} based on URL) was undeterminable: {NO_NAME}"
            )
        if not subresource and call.kind.create_on_update and self._absent(call):
            return await self._create(call, sent)
        removed: list[Entry] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, name)
            old = self._renderer.obj(call.kind, live)
            revision = str(sent["metadata"].get("resourceVersion") or "")
            if not revision and not call.kind.unconditional_update:
                raise revision_missing(call.kind, name)
            if revision not in ("", "0") and revision != str(live.revision):
                raise conflict(call.kind, name)
            uid = str(sent["metadata"].get("uid") or "")
            if uid not in ("", live.uid):
                raise other_object(call.kind, call.namespace, name, uid, live.uid)
            new = incoming.copied(sent)
            return self._changed(call, new, old, live, removed, subresource=subresource)

        return await self._answer(call, decide, removed)

    async def patch(self, call: Call) -> Response:
        how = patch_type(call.request, call.kind)
        call.check_options("PatchOptions")
        if how == "apply":
            return await self._apply(call)
        if call.request.parameter("force"):
            cause = Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force")
            raise invalid_options("PatchOptions", cause)
        patch = incoming.decode_patch(call, how)
        schema = self._catalogue.schema(call.kind)
        name = call.target.name
        removed: list[Entry] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, name)
            old = self._renderer.obj(call.kind, live)
            new = incoming.patched(how, old, patch, schema)
            self._same_identity(call, new, old)
            incoming.check_fields(call, new, schema, patch=patch, how=how)
            if new["metadata"].get("resourceVersion") not in (None, "", str(live.revision)):
                raise conflict(call.kind, name)
            return self._changed(call, new, old, live, removed, subresource=call.target.subresource)

        return await self._answer(call, decide, removed)

    async def _apply(self, call: Call) -> Response:
        schema = self._catalogue.schema(call.kind)
        applied = incoming.decode_applied(call, schema)
        self._check_place(call, applied["metadata"])
        named = bool(applied["metadata"].get("name"))
        if named:
            self._same_identity(call, applied, applied | {"metadata": {"name": call.target.name}})
        force = call.request.flag("force")
        removed: list[Entry] = []
        created: list[bool] = []
        subresource = call.target.subresource

        def merged(old: Obj | None) -> Obj:
            result = apply.server_side_apply(
                old,
                applied,
                call.manager,
                schema=schema,
                api_version=call.kind.api_version,
                force=force,
                now=self._now(),
                subresource=subresource,
                served=self._catalogue.served(call.kind),
            )
            if call.kind.custom is None:
                apply.check_readable(applied, schema, call.kind.api_version)
                structural.prune(result, schema)
            if call.namespace:
                result["metadata"]["namespace"] = call.namespace
            return result

        def decide(live: Entry | None) -> Decision:
            created.clear()
            if live is None:
                if subresource:
                    raise not_found(call.kind, call.target.name)
                if uid := applied["metadata"].get("uid"):
                    why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    raise conflict(call.kind, call.target.name, why)
                if not named:
                    raise bad_request(f"the name of the object ({call.target.name} based on URL) {_UNNAMED}")
                created.append(True)
                return Put(self._to_store(call, self._new(call, merged(None), managed=True)))
            revision = applied["metadata"].get("resourceVersion")
            if revision and revision != str(live.revision):
                raise conflict(call.kind, call.target.name)
            old = self._renderer.obj(call.kind, live)
            return self._changed(call, merged(old), old, live, removed, subresource=subresource, managed=True)

        return await self._answer(call, decide, removed, created)

    # --- the pipeline --------------------------------------------------------------------------------------------

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    def _absent(self, call: Call) -> bool:
        return self._store.get(store_name(call.kind), call.namespace, call.target.name) is None

    def _address(self, call: Call, obj: Obj) -> None:
        """The object's namespace is the URL's."""
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        self._check_place(call, metadata)
        if call.kind.namespaced:
            metadata["namespace"] = call.namespace

    @staticmethod
    def _check_place(call: Call, metadata: Obj) -> None:
        if not call.kind.namespaced:
            metadata.pop("namespace", None)
            return
        given = metadata.get("namespace")
        if given and given != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    def _same_identity(self, call: Call, new: Obj, old: Obj) -> None:
        metadata, wanted = new.get("metadata"), old["metadata"]["name"]
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not name:
            raise bad_request(f"the name of the object ({wanted} based on URL) was undeterminable: {NO_NAME}")
        if name != wanted:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")
        if "namespace" in old["metadata"] and metadata.get("namespace") != old["metadata"]["namespace"]:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    def _defaulted(self, call: Call, obj: Obj) -> None:
        if call.kind.custom is None:
            builtin.default_builtin(call.kind, obj)
        else:
            structural.default(obj, self._catalogue.schema(call.kind))

    @staticmethod
    def _settled(call: Call, obj: Obj) -> None:
        if repeated := builtin.settle(call.kind, obj):
            call.warn(_REPEATED_OWNERS + ", ".join(repeated))

    def _new(self, call: Call, obj: Obj, *, managed: bool, live: Entry | None = None) -> Obj:
        kind, metadata = call.kind, obj["metadata"]
        name = str(metadata.get("name") or "")
        if not name:
            text = "Required value: name or generateName is required"
            raise invalid(kind, "", [Cause("FieldValueRequired", text, "metadata.name")])
        self._admission.check_namespace(kind, call.namespace, name)
        self._defaulted(call, obj)
        self._settled(call, obj)
        if not managed:
            # What the client asked for, defaulted, is the client's; what the server adds from here on is nobody's.
            for never in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                metadata.pop(never, None)
            sent = {key: value for key, value in obj.items() if key not in _servers_own(kind)}
            obj["metadata"] = self._tracked(call, None, sent, "")["metadata"]
        builtin.prepare_for_create(kind, obj)
        metadata = obj["metadata"]
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._now()
        builtin.identify_job(kind, obj)
        self._admission.mutate(call, obj, None)
        self._validate(call, obj, None, "")
        if live is not None:
            raise already_exists(kind, name, deleting="deletionTimestamp" in live.obj()["metadata"])
        if store_name(kind) == CRDS:
            crds.accept(obj, self._catalogue, self._clock.now())
        self._admission.allocate(call, obj, None)
        return obj

    def _changed(
        self,
        call: Call,
        new: Obj,
        old: Obj,
        live: Entry,
        removed: list[Entry],
        *,
        subresource: str,
        managed: bool = False,
        tracked_as: str = "",
    ) -> Decision:
        kind = call.kind
        self._defaulted(call, new)
        self._settled(call, new)
        builtin.prepare_for_update(kind, new, old, subresource)
        if not managed:
            new = self._tracked(call, old, new, subresource or tracked_as)
        self._admission.mutate(call, new, old)
        self._validate(call, new, old, subresource)
        if store_name(kind) == CRDS and not subresource:
            crds.accept(new, self._catalogue, self._clock.now())
        self._admission.allocate(call, new, old)
        if let_go(kind.group, kind.kind, new):
            removed.append(_unstored(self._to_store(call, new), live))
            return Remove(live.obj())
        if apply.unchanged(old, new):
            return Keep(live)
        return Put(self._to_store(call, new))

    def _tracked(self, call: Call, old: Obj | None, new: Obj, subresource: str) -> Obj:
        return apply.track_update(
            old,
            new,
            call.manager,
            schema=self._catalogue.schema(call.kind),
            api_version=call.kind.api_version,
            now="" if subresource == "scale" else self._now(),  # such entries have no time
            subresource=subresource,
            served=self._catalogue.served(call.kind),
        )

    def _validate(self, call: Call, new: Obj, old: Obj | None, subresource: str) -> None:
        kind = call.kind
        found = self._findings(call, new, old, subresource)
        if found and old is not None and kind.custom is None:
            # A version before this one may have stored it without defaults that were learnt since: those are no change.
            old = incoming.copied(old)
            self._defaulted(call, old)
            builtin.settle(kind, old)
            found = self._findings(call, new, old, subresource)
        if found:
            causes = [Cause(error.reason, error.message, error.field) for error in found]
            raise invalid(builtin.core_kind(kind), str(new["metadata"].get("name", "")), causes)

    def _findings(self, call: Call, new: Obj, old: Obj | None, subresource: str) -> list[FieldError]:
        found: list[FieldError] = list(builtin.validate_metadata(call.kind, new, old))
        if old is not None:
            found += found  # the real server looks at a changed object's metadata twice, and tells it twice
        if call.kind.custom is None:
            found += builtin.validate_builtin(call.kind, new, old, subresource)
        else:
            found += structural.validate(new, old, self._catalogue.schema(call.kind))
        return found

    def _to_store(self, call: Call, obj: Obj) -> Obj:
        custom = self._catalogue.custom(call.kind)
        if custom is not None and custom.storage != call.kind.version:
            obj = incoming.copied(obj)
            structural.prune(obj, custom.stored_schema)
        return builtin.to_storage(call.kind, obj)

    # --- answers -------------------------------------------------------------------------------------------------

    async def _commit(self, call: Call, name: str, decide: Decide) -> Entry:
        act = self._store.preview if call.dry_run else self._store.write
        return await act(store_name(call.kind), call.namespace, name, decide)

    async def _answer(
        self, call: Call, decide: Decide, removed: list[Entry], created: list[bool] | None = None
    ) -> Response:
        entry = await self._commit(call, call.target.name, decide)
        if removed:  # the write that lets an object go answers with what it asked for; nobody else ever sees that
            entry = removed[-1]
        return self._renderer.single(201 if created else 200, call.kind, entry, call.wanted)

    async def mutate(
        self, call: Call, change: Callable[[Obj], None], *, tracked_as: str = "", managed: bool = False
    ) -> Entry:
        """A subresource's own change to a live object (scale, binding): `change` alters it in place, and if `managed`
        says who owns what."""
        removed: list[Entry] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, call.target.name)
            old = self._renderer.obj(call.kind, live)
            new = incoming.copied(old)
            change(new)
            return self._changed(call, new, old, live, removed, subresource="", managed=managed, tracked_as=tracked_as)

        return await self._commit(call, call.target.name, decide)

    def applied_part(self, call: Call, obj: Obj, config: Obj, part: str, *, force: bool) -> Obj:
        """A live object with a configuration applied that a subresource stands for; such entries have no time."""
        return apply.server_side_apply(
            obj,
            config,
            call.manager,
            schema=self._catalogue.schema(call.kind),
            api_version=call.kind.api_version,
            force=force,
            now="",
            subresource=part,
            served=self._catalogue.served(call.kind),
        )

    async def alter(self, call: Call, change: Callable[[Obj], None]) -> Entry:
        """A change that is the server's own (binding, finalize): no ownership, no rules of the main path."""
        removed: list[Entry] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, call.target.name)
            obj = live.obj()
            change(obj)
            if let_go(call.kind.group, call.kind.kind, obj):
                removed.append(_unstored(obj, live))
                return Remove(live.obj())
            return Put(obj)

        entry = await self._commit(call, call.target.name, decide)
        return removed[-1] if removed else entry

    async def finalize(self, call: Call) -> Response:
        """PUT namespaces/x/finalize: the only way to a namespace's own finalizers."""
        sent = incoming.decode_object(call, self._catalogue.schema(call.kind))
        revision = sent["metadata"].get("resourceVersion")
        finalizers = (sent.get("spec") or {}).get("finalizers") or []
        if found := list(unknown_finalizers("spec.finalizers", finalizers)):
            raise invalid(call.kind, call.target.name, [Cause(each.reason, each.message, each.field) for each in found])

        def release(namespace: Obj) -> None:
            if revision and revision != namespace["metadata"]["resourceVersion"]:
                raise conflict(call.kind, call.target.name)
            before = incoming.copied(namespace)
            namespace.setdefault("spec", {})["finalizers"] = finalizers
            if not finalizers:
                del namespace["spec"]["finalizers"]
            namespace["metadata"] = self._tracked(call, before, namespace, "finalize")["metadata"]

        return self._renderer.single(200, call.kind, await self.alter(call, release), call.wanted)


def _unstored(obj: Obj, live: Entry) -> Entry:
    """The content of a write that removes its object instead, under the revision before its end."""
    obj["metadata"]["resourceVersion"] = str(live.revision)
    return entry_of(obj, ())


def _servers_own(kind: Kind) -> tuple[str, ...]:
    if kind.kind == "CertificateSigningRequest":
        return ("spec", "status")
    return ("status",) if kind.status else ()


def let_go(group: str, kind: str, obj: Obj) -> bool:
    """A marked object whose last finalizer is gone and whose grace is over is removed by the write that says so."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if (group, kind) == ("", "Namespace") and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")

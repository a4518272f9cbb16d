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
from regional.kube.apiserver.entries import Entry, Obj, at_revision
from regional.kube.apiserver.errors import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    not_found,
)
from regional.kube.apiserver.media import patch_type
from regional.kube.apiserver.rendering import Renderer
from regional.kube.apiserver.store import Decide, Decision, Keep, Put, Remove, Store
from regional.kube.messages import Response
from regional.kube.schema import apply, builtin, structural
from regional.kube.schema.errors import FieldError

NAME_TRIES = 8


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
        return await self._create(call, obj)

    async def _create(self, call: Call, obj: Obj, *, managed: bool = False) -> Response:
        name = str(obj["metadata"].get("name") or "")

        def decide(live: Entry | None) -> Decision:
            if live is not None:
                raise already_exists(call.kind, name)
            return Put(self._to_store(call, self._new(call, obj, managed=managed)))

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
                else "name must be provided"
            )
        if not subresource and call.kind.create_on_update and self._absent(call):
            return await self._create(call, sent)
        removed: list[int] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, name)
            old = self._renderer.obj(call.kind, live)
            revision = str(sent["metadata"].get("resourceVersion") or "")
            if not revision and not call.kind.unconditional_update:
                text = "Invalid value: 0: must be specified for an update"
                raise invalid(call.kind, name, [Cause("FieldValueInvalid", text, "metadata.resourceVersion")])
            if revision not in ("", "0") and revision != str(live.revision):
                raise conflict(call.kind, name)
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
        removed: list[int] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, name)
            old = self._renderer.obj(call.kind, live)
            new = incoming.patched(how, old, patch, schema)
            self._same_identity(call, new, old)
            incoming.check_fields(call, new, schema, patch=patch)
            if new["metadata"].get("resourceVersion") not in (None, "", str(live.revision)):
                raise conflict(call.kind, name)
            return self._changed(call, new, old, live, removed, subresource=call.target.subresource)

        return await self._answer(call, decide, removed)

    async def _apply(self, call: Call) -> Response:
        applied = incoming.decode_applied(call)
        schema = self._catalogue.schema(call.kind)
        incoming.check_applied(call, applied, schema)
        self._address(call, applied)
        applied["metadata"].setdefault("name", call.target.name)
        self._same_identity(call, applied, applied | {"metadata": {"name": call.target.name}})
        force = call.request.flag("force")
        removed: list[int] = []
        created: list[bool] = []
        subresource = call.target.subresource

        def merged(old: Obj | None) -> Obj:
            return apply.server_side_apply(
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

        def decide(live: Entry | None) -> Decision:
            created.clear()
            if live is None:
                if subresource or applied["metadata"].get("uid"):
                    raise not_found(call.kind, call.target.name)
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
        if not call.kind.namespaced:
            metadata.pop("namespace", None)
            return
        given = metadata.get("namespace")
        if given and given != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = call.namespace

    def _same_identity(self, call: Call, new: Obj, old: Obj) -> None:
        metadata = new.get("metadata")
        if not isinstance(metadata, dict):
            raise bad_request("metadata must be an object")
        name, wanted = metadata.get("name"), old["metadata"]["name"]
        if name != wanted:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")
        if "namespace" in old["metadata"] and metadata.get("namespace") != old["metadata"]["namespace"]:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    def _defaulted(self, call: Call, obj: Obj) -> None:
        if call.kind.custom is None:
            builtin.default_builtin(call.kind, obj)
        else:
            structural.default(obj, self._catalogue.schema(call.kind))

    def _new(self, call: Call, obj: Obj, *, managed: bool) -> Obj:
        kind, metadata = call.kind, obj["metadata"]
        name = str(metadata.get("name") or "")
        if not name:
            text = "Required value: name or generateName is required"
            raise invalid(kind, "", [Cause("FieldValueRequired", text, "metadata.name")])
        self._admission.check_namespace(kind, call.namespace, name)
        self._defaulted(call, obj)
        builtin.prepare_for_create(kind, obj)
        metadata = obj["metadata"]
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._now()
        builtin.identify_job(kind, obj)
        if not managed:
            obj = self._tracked(call, None, obj, "")
        self._admission.mutate(call, obj, None)
        self._validate(call, obj, None, "")
        if store_name(kind) == CRDS:
            crds.accept(obj, self._catalogue, self._clock.now())
        self._admission.allocate(call, obj, None)
        if kind.deprecation:
            call.warn(kind.deprecation)
        return obj

    def _changed(
        self,
        call: Call,
        new: Obj,
        old: Obj,
        live: Entry,
        removed: list[int],
        *,
        subresource: str,
        managed: bool = False,
        tracked_as: str = "",
    ) -> Decision:
        kind = call.kind
        self._defaulted(call, new)
        builtin.prepare_for_update(kind, new, old, subresource)
        if not managed:
            new = self._tracked(call, old, new, subresource or tracked_as)
        if not subresource:
            self._admission.mutate(call, new, old)
        self._validate(call, new, old, subresource)
        if store_name(kind) == CRDS and not subresource:
            crds.accept(new, self._catalogue, self._clock.now())
        self._admission.allocate(call, new, old)
        if kind.deprecation:
            call.warn(kind.deprecation)
        if let_go(kind.group, kind.kind, new):
            removed.append(live.revision)
            return Remove(self._to_store(call, new))
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
            now=self._now(),
            subresource=subresource,
            served=self._catalogue.served(call.kind),
        )

    def _validate(self, call: Call, new: Obj, old: Obj | None, subresource: str) -> None:
        kind = call.kind
        found: list[FieldError] = list(builtin.validate_metadata(kind, new, old))
        if kind.custom is None:
            found += builtin.validate_builtin(kind, new, old, subresource)
        else:
            found += structural.validate(new, old, self._catalogue.schema(kind))
        if found:
            causes = [Cause(error.reason, error.message, error.field) for error in dict.fromkeys(found)]
            raise invalid(kind, str(new["metadata"].get("name", "")), causes)

    @staticmethod
    def _to_store(call: Call, obj: Obj) -> Obj:
        return builtin.to_storage(call.kind, obj)

    # --- answers -------------------------------------------------------------------------------------------------

    async def _commit(self, call: Call, name: str, decide: Decide) -> Entry:
        act = self._store.preview if call.dry_run else self._store.write
        return await act(store_name(call.kind), call.namespace, name, decide)

    async def _answer(
        self, call: Call, decide: Decide, removed: list[int], created: list[bool] | None = None
    ) -> Response:
        entry = await self._commit(call, call.target.name, decide)
        if removed:  # the write that lets an object go answers with the revision before its end
            entry = at_revision(entry, removed[-1])
        return self._renderer.single(201 if created else 200, call.kind, entry, call.wanted)

    async def mutate(self, call: Call, change: Callable[[Obj], None], *, tracked_as: str = "") -> Entry:
        """A subresource's own change to a live object (scale, binding): `change` alters it in place."""
        removed: list[int] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, call.target.name)
            old = self._renderer.obj(call.kind, live)
            new = incoming.copied(old)
            change(new)
            return self._changed(call, new, old, live, removed, subresource="", tracked_as=tracked_as)

        return await self._commit(call, call.target.name, decide)

    async def alter(self, call: Call, change: Callable[[Obj], None]) -> Entry:
        """A change that is the server's own (binding, finalize): no ownership, no rules of the main path."""
        removed: list[int] = []

        def decide(live: Entry | None) -> Decision:
            if live is None:
                raise not_found(call.kind, call.target.name)
            obj = live.obj()
            change(obj)
            if let_go(call.kind.group, call.kind.kind, obj):
                removed.append(live.revision)
                return Remove(obj)
            return Put(obj)

        entry = await self._commit(call, call.target.name, decide)
        return at_revision(entry, removed[-1]) if removed else entry

    async def finalize(self, call: Call) -> Response:
        """PUT namespaces/x/finalize: the only way to a namespace's own finalizers."""
        sent = incoming.decode_object(call, self._catalogue.schema(call.kind))
        revision = sent["metadata"].get("resourceVersion")
        finalizers = (sent.get("spec") or {}).get("finalizers") or []

        def release(namespace: Obj) -> None:
            if revision and revision != namespace["metadata"]["resourceVersion"]:
                raise conflict(call.kind, call.target.name)
            namespace.setdefault("spec", {})["finalizers"] = finalizers
            if not finalizers:
                del namespace["spec"]["finalizers"]

        return self._renderer.single(200, call.kind, await self.alter(call, release), call.wanted)


def let_go(group: str, kind: str, obj: Obj) -> bool:
    """A marked object whose last finalizer is gone and whose grace is over is removed by the write that says so."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if (group, kind) == ("", "Namespace") and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")

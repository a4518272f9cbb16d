"""One manifest onto the cluster, by its update strategy. Returns the object as the cluster has it afterwards.

Every object that is not to be orphaned carries a reference to its AppliedManifestWork, so that the cluster's own
garbage collection would find what an agent that died half-way forgot. References of other works are kept: an object
may belong to several.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from typing import Any

import msgspec

from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, is_deleting, metadata_of, owners_of, uid_of
from regional.maestro.agent import ignored
from regional.maestro.agent.options import Option
from regional.maestro.agent.works import Ref
from regional.maestro.protocol.bundles import ServerSideApply
from regional.maestro.protocol.tracing import ANNOTATION

APPLIED_WORK = "AppliedManifestWork"
CONFLICTS = 5
_RBAC = "rbac.authorization.k8s.io"
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
# Fields that the manifest owns as a whole: what it does not list must not be there.
_WHOLE = frozenset({"data", "binaryData", "stringData", "rules", "subjects", "webhooks"})


class Conflict(Exception):
    """Another field manager owns a field: trying again soon would not help."""


class Vanishing(Exception):
    """An object of this name is still being deleted."""


class Wanted(msgspec.Struct, frozen=True):
    ref: Ref
    manifest: Obj
    option: Option
    owner: Obj | None
    """The reference to our AppliedManifestWork; None if the object is to be orphaned."""
    owner_uid: str
    request_id: str
    before: Obj | None = None
    """The manifest as this agent applied it last, if it did: what it no longer says is taken away."""

    def digest(self) -> str:
        """Of everything that decides what would be written."""
        parts = (self.manifest, self.option.strategy, self.owner, self.owner_uid, self.request_id)
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]


async def apply(client: Client, wanted: Wanted, live: Obj | None) -> Obj | None:
    """`live` is the object as it is now. None only for a read-only object that is not there."""
    if wanted.option.read_only:
        return live
    if live is not None and is_deleting(live):
        raise Vanishing(f"{wanted.ref} of the same name is still being deleted")
    manifest = _prepared(wanted, live)
    match wanted.option.strategy.type:
        case "ServerSideApply":
            return await _server_side(client, wanted, manifest, live)
        case "CreateOnly":
            if live is None:
                return await _created(client, manifest)
            return await _owned(client, wanted, live)
    if live is None:
        return await _created(client, manifest)
    return await _updated(client, wanted, manifest, live)


def _prepared(wanted: Wanted, live: Obj | None) -> Obj:
    manifest: Obj = without_null_times(copy.deepcopy(wanted.manifest))
    metadata = manifest.setdefault("metadata", {})
    for field in ("uid", "resourceVersion", "managedFields", "selfLink"):
        metadata.pop(field, None)
    owners = _owners(wanted, metadata.get("ownerReferences") or [], owners_of(live) if live else [])
    if owners:
        metadata["ownerReferences"] = owners
    if wanted.request_id:
        metadata["annotations"] = (metadata.get("annotations") or {}) | {ANNOTATION: wanted.request_id}
    return manifest


def _owners(wanted: Wanted, asked: list[Obj], present: list[Obj]) -> list[Obj]:
    """Those the manifest asks for, those of other works, and ours."""
    others = [o for o in present if o.get("kind") == APPLIED_WORK and o.get("uid") != wanted.owner_uid]
    return [*asked, *others, *([wanted.owner] if wanted.owner else [])]


def without_null_times(value: Any) -> Any:
    """Go writes `creationTimestamp: null`; as something applied it would claim the field."""
    if isinstance(value, dict):
        return {
            name: without_null_times(inner)
            for name, inner in value.items()
            if not (name == "creationTimestamp" and inner is None)
        }
    return [without_null_times(inner) for inner in value] if isinstance(value, list) else value


async def _server_side(client: Client, wanted: Wanted, manifest: Obj, live: Obj | None) -> Obj:
    options = wanted.option.strategy.server_side_apply or ServerSideApply()
    if options.ignore_fields:
        rest = ignored.reduced(manifest, options.ignore_fields)
        digest = ignored.digest_of(ignored.reduced(wanted.manifest, options.ignore_fields))
        if live is not None and ignored.unchanged(live, digest):
            return await _owned(client, wanted, live)
        manifest = ignored.marked(manifest if live is None else rest, digest)
    try:
        applied = await client.apply(manifest, field_manager=options.field_manager or "work-agent", force=options.force)
    except ApiError as error:
        causes = (error.body.get("details") or {}).get("causes") or []
        if any(cause.get("reason") == "FieldManagerConflict" for cause in causes):
            raise Conflict(error.message) from None
        raise
    return await _disowned(client, wanted, applied)


async def _created(client: Client, manifest: Obj) -> Obj:
    """Without the keys that ask to be removed: there is nothing to remove, and no such key is valid."""
    metadata = manifest["metadata"]
    for field in ("labels", "annotations"):
        if isinstance(metadata.get(field), dict):
            metadata[field] = {key: value for key, value in metadata[field].items() if not key.endswith("-")}
    return await client.create(manifest)


async def _made_anew(client: Client, ref: Ref, manifest: Obj, live: Obj) -> Obj:
    """A binding: the cluster lets nobody change which role it is of."""
    await client.delete(ref.api_version, ref.kind, ref.name, ref.namespace or None, uid=uid_of(live), missing_ok=True)
    return await _created(client, manifest)


async def _owned(client: Client, wanted: Wanted, live: Obj) -> Obj:
    if wanted.owner is None:
        return await _disowned(client, wanted, live)
    if any(owner.get("uid") == wanted.owner_uid for owner in owners_of(live)):
        return live
    return await _patch_owners(client, wanted.ref, live, [*owners_of(live), wanted.owner])


async def _disowned(client: Client, wanted: Wanted, live: Obj) -> Obj:
    """An object that is to be orphaned must not go with our record of it."""
    if wanted.owner is not None or not any(o.get("uid") == wanted.owner_uid for o in owners_of(live)):
        return live
    return await drop_owner(client, wanted.ref, live, wanted.owner_uid)


async def drop_owner(client: Client, ref: Ref, live: Obj, uid: str) -> Obj:
    return await _patch_owners(client, ref, live, [o for o in owners_of(live) if o.get("uid") != uid])


async def _patch_owners(client: Client, ref: Ref, live: Obj, owners: list[Obj]) -> Obj:
    metadata = {"ownerReferences": owners or None, "resourceVersion": metadata_of(live).get("resourceVersion")}
    return await client.patch(ref.api_version, ref.kind, ref.name, ref.namespace or None, {"metadata": metadata})


async def _updated(client: Client, wanted: Wanted, manifest: Obj, live: Obj) -> Obj:
    """Read, merge, write, until nobody comes in between."""
    for attempt in range(CONFLICTS):
        merged = merged_over(live, manifest, wanted.before)
        if wanted.owner is None:
            merged["metadata"]["ownerReferences"] = [o for o in owners_of(merged) if o.get("uid") != wanted.owner_uid]
        if merged == live:
            return live
        if wanted.ref.kind in _BINDINGS and wanted.ref.group == _RBAC and merged.get("roleRef") != live.get("roleRef"):
            return await _made_anew(client, wanted.ref, manifest, live)
        try:
            return await client.update(merged)
        except ApiError as error:
            if not error.conflict or attempt == CONFLICTS - 1:
                raise
        ref = wanted.ref
        fresh = await client.get_or_none(ref.api_version, ref.kind, ref.name, ref.namespace or None)
        if fresh is None:
            return await _created(client, manifest)
        live = fresh
    raise AssertionError("unreachable")


def merged_over(live: Obj, manifest: Obj, before: Obj | None) -> Obj:
    """The live object with everything that the manifest says, without what it said before and no longer says.

    What the cluster or its controllers added stays: defaults, allocated addresses, finalizers, status.
    """
    merged = copy.deepcopy(live)
    for name, value in manifest.items():
        if name == "metadata":
            merged["metadata"] = _merged_metadata(merged.get("metadata") or {}, value, (before or {}).get("metadata"))
        elif name in _WHOLE:
            merged[name] = copy.deepcopy(value)
        elif name != "status":
            merged[name] = _merged(merged.get(name), value, (before or {}).get(name))
    for name in (before or {}).keys() - manifest.keys() - {"metadata", "status"}:
        merged.pop(name, None)
    if merged.get("kind") == "Secret" and "stringData" in manifest and "data" not in manifest:
        # The server writes stringData into data and shows only that: compare what it would become.
        merged.pop("stringData", None)
        merged["data"] = (merged.get("data") or {}) | _encoded(manifest["stringData"])
    return merged


def _encoded(texts: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def _merged_metadata(live: Obj, wanted: Obj, before: Obj | None) -> Obj:
    merged = dict(live)
    for field in ("labels", "annotations"):
        pairs = dict(live.get(field) or {})
        for key in ((before or {}).get(field) or {}).keys() - (wanted.get(field) or {}).keys():
            pairs.pop(key, None)
        for key, value in (wanted.get(field) or {}).items():
            if key.endswith("-"):  # how a manifest asks for a key to be removed
                pairs.pop(key[:-1], None)
            else:
                pairs[key] = value
        if pairs or field in live:
            merged[field] = pairs
    owners = {owner.get("uid"): owner for owner in live.get("ownerReferences") or []}
    owners |= {owner.get("uid"): owner for owner in wanted.get("ownerReferences") or []}
    if owners:
        merged["ownerReferences"] = list(owners.values())
    return merged


def _merged(live: Any, wanted: Any, before: Any) -> Any:
    if not (isinstance(live, dict) and isinstance(wanted, dict)):
        if isinstance(live, list) and isinstance(wanted, list) and len(live) == len(wanted):
            earlier = before if isinstance(before, list) and len(before) == len(wanted) else [None] * len(wanted)
            return [_merged(*pair) for pair in zip(live, wanted, earlier, strict=True)]
        return copy.deepcopy(wanted)
    earlier_map = before if isinstance(before, dict) else {}
    kept = {name: value for name, value in live.items() if name in wanted or name not in earlier_map}
    return kept | {name: _merged(live.get(name), value, earlier_map.get(name)) for name, value in wanted.items()}

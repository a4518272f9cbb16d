"""Bringing objects to the state that is wanted, with as few writes as that takes.

An object that already has all that is wanted is left alone, so that a reconcile of a steady cluster writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regional.hypershift.names import (
    API_VERSION,
    CLUSTER,
    FIELD_MANAGER,
    FINALIZER,
    MANAGED,
    REQUEST_ID,
    request_of,
    slashed,
)
from regional.kube.client import ApiError, Client, Informer
from regional.kube.objects import (
    Obj,
    finalizers_of,
    generation_of,
    is_deleting,
    name_of,
    namespace_of,
    owner_reference,
    spec_of,
    uid_of,
    version_of,
)


def covers(wanted: Any, live: Any) -> bool:
    """Whether `live` has everything of `wanted`. What the server filled in besides does not count."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key == REQUEST_ID or covers(value, live.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(covers, wanted, live))
    return bool(wanted == live)


async def drop_finalizer(client: Client, kind: str, obj: Obj) -> None:
    """Ours alone, of this very object as it was seen: raises ApiError if it has changed since."""
    left = [finalizer for finalizer in finalizers_of(obj) if finalizer != FINALIZER]
    metadata = {"uid": uid_of(obj), "resourceVersion": version_of(obj), "finalizers": left}
    await client.patch(API_VERSION, kind, name_of(obj), namespace_of(obj), {"metadata": metadata})


def overtaken(seen: Obj, live: Obj) -> bool:
    """Whether something else is wanted now than when the findings about `seen` were made.

    They must not be told as if they were about the new wish; the change of it has asked for a pass of its own.
    """
    return (uid_of(seen), generation_of(seen)) != (uid_of(live), generation_of(live))


def mark(obj: Obj, hosted: Obj, *, owned: bool = False) -> Obj:
    """Say for whom an object was made, and by which request. The request alone is no reason to write again."""
    metadata = obj["metadata"]
    metadata["labels"] = {**MANAGED, **(metadata.get("labels") or {})}
    annotations = {CLUSTER: slashed(hosted)} | ({REQUEST_ID: request_of(hosted)} if request_of(hosted) else {})
    metadata["annotations"] = annotations | (metadata.get("annotations") or {})
    if owned:
        metadata["ownerReferences"] = [owner_reference(hosted)]
    return obj


class Writer:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def ensure(self, cache: Informer, wanted: Obj, *, optional: Collection[str] = ()) -> Obj:
        """`optional` are fields of the spec that shall not stay when they are wanted no more."""
        live = cache.get(namespace_of(wanted), name_of(wanted))
        if live is not None and is_deleting(live):
            return live
        if live is not None and covers(wanted, live):
            stale = (spec_of(live).keys() - spec_of(wanted).keys()) & set(optional)
            if not stale:
                return live
        answer = await self._client.apply(wanted, field_manager=FIELD_MANAGER, force=True)
        cache.observe(answer)
        return answer

    async def create_once(self, cache: Informer, obj: Obj) -> Obj:
        """What is there already stays: the cache may be a moment behind a predecessor that was killed."""
        live = cache.get(namespace_of(obj), name_of(obj))
        if live is not None:
            return live
        try:
            answer = await self._client.create(obj)
        except ApiError as error:
            if not error.exists:
                raise
            answer = await self._client.get(obj["apiVersion"], obj["kind"], name_of(obj), namespace_of(obj))
        cache.observe(answer)
        return answer

    async def status(self, cache: Informer, live: Obj, status: Obj) -> Obj:
        """Replace an object's status, if it differs."""
        if live.get("status") == status:
            return live
        answer = await self._client.update_status({**live, "status": status})
        cache.observe(answer)
        return answer

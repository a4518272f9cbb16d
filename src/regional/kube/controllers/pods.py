"""Pods as their owners see them: active, ready, which to give up first, and how to make exactly one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta

from regional.kube.client import ApiError, ApiUnreachable, Informer
from regional.kube.controllers.context import Context, is_namespace_ending
from regional.kube.objects import (
    Obj,
    condition_of,
    copied,
    created_at,
    is_deleting,
    is_true,
    metadata_of,
    name_of,
    namespace_of,
    owner_of,
    owner_reference,
    parse_time,
    spec_of,
    status_of,
    uid_of,
)

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
CONCURRENT = 16


def index_by_node(pods: Informer) -> None:
    """Ask with `pods.indexed("node", name)`; "" are the pods without a node."""
    if not pods.has_index("node"):
        pods.index("node", lambda pod: (str(spec_of(pod).get("nodeName") or ""),))


def phase_of(pod: Obj) -> str:
    return str(status_of(pod).get("phase") or "Pending")


def is_finished(pod: Obj) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    return not is_finished(pod) and not is_deleting(pod)


def is_ready(pod: Obj) -> bool:
    return is_true(pod, "Ready")


def available_in(pod: Obj, min_ready_seconds: int, now: datetime) -> float | None:
    """0 when available, seconds until it will be, None when it is not even ready."""
    if not is_ready(pod):
        return None
    if not min_ready_seconds:
        return 0.0
    since = parse_time((condition_of(pod, "Ready") or {}).get("lastTransitionTime"))
    if since is None:
        return float(min_ready_seconds)
    return max(0.0, (since + timedelta(seconds=min_ready_seconds) - now).total_seconds())


def restarts_of(pod: Obj) -> int:
    statuses = (status_of(pod).get("containerStatuses") or []) + (status_of(pod).get("initContainerStatuses") or [])
    return sum(int(status.get("restartCount") or 0) for status in statuses)


def given_up_first(pods: list[Obj]) -> list[Obj]:
    """Cheapest to lose first: unplaced, not running, not ready, often restarted, then the youngest."""

    def cost(pod: Obj) -> tuple[bool, int, bool, int, int, float]:
        created = created_at(pod)
        return (
            bool(spec_of(pod).get("nodeName")),
            {"Pending": 0, "Unknown": 1}.get(phase_of(pod), 2),
            is_ready(pod),
            _deletion_cost(pod),
            -restarts_of(pod),
            -(created.timestamp() if created else 0.0),
        )

    return sorted(pods, key=cost)


def _deletion_cost(pod: Obj) -> int:
    text = (metadata_of(pod).get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
    try:
        return int(text)
    except ValueError:
        return 0


def from_template(owner: Obj, template: Obj, name: str, *, generated_from: str = "") -> Obj:
    metadata = template.get("metadata") or {}
    made: Obj = {
        "name": name,
        "namespace": namespace_of(owner),
        "labels": dict(metadata.get("labels") or {}),
        "ownerReferences": [owner_reference(owner)],
    }
    if metadata.get("annotations"):
        made["annotations"] = dict(metadata["annotations"])
    if metadata.get("finalizers"):
        made["finalizers"] = list(metadata["finalizers"])
    if generated_from:
        made["generateName"] = generated_from
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": copied(template.get("spec") or {})}


def random_suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(5))


class PodMaker:
    """Makes pods with names chosen here rather than by the server.

    A create whose answer got lost may or may not have happened. Asking again under the same name settles it: either
    the pod is made now, or the server says that it is there.
    """

    def __init__(self, context: Context, pods: Informer, component: str) -> None:
        self._context, self._pods, self._component = context, pods, component
        self._unsettled: dict[str, set[str]] = {}

    def forget(self, owner_uid: str) -> None:
        self._unsettled.pop(owner_uid, None)

    def owned(self, owner: Obj) -> list[Obj]:
        """The owner's pods, to count from. Whatever is unsettled and not among them now is one of those it lacks."""
        unsettled = self._unsettled.get(uid_of(owner), set())
        unsettled -= {name for name in unsettled if self._pods.get(namespace_of(owner), name) is not None}
        return self._pods.indexed("owner", uid_of(owner))

    async def make_many(
        self, owner: Obj, template: Obj, count: int, *, adjust: Callable[[Obj], None] | None = None
    ) -> int:
        """How many were made, of those that `owned` did not show. The first refusal ends it: the rest would most
        likely be refused too.
        """
        made = 0
        wave = 1
        while made < count:
            size = min(wave, count - made, CONCURRENT)
            makes = (self.make(owner, template, adjust=adjust) for _ in range(size))
            results = await asyncio.gather(*makes, return_exceptions=True)
            made += sum(1 for result in results if not isinstance(result, BaseException))
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            wave *= 2
        return made

    async def make(
        self,
        owner: Obj,
        template: Obj,
        *,
        name: str = "",
        prefix: str = "",
        adjust: Callable[[Obj], None] | None = None,
        tell: bool = True,
    ) -> Obj:
        """One pod; `name` when the owner's pods have names of their own (StatefulSet); an owner that tells of its
        pods in words of its own has no use for ours.
        """
        prefix = prefix or f"{name_of(owner)[:57]}-"
        chosen = name or self._pick(owner, prefix)
        if not name and (arrived := self._pods.get(namespace_of(owner), chosen)) is not None:
            # The one we were unsure about showed up after the owner counted its pods.
            return arrived
        pod = from_template(owner, template, chosen, generated_from="" if name else prefix)
        if adjust is not None:
            adjust(pod)
        try:
            created = await self._create(owner, pod)
        except ApiError as error:
            if isinstance(error, ApiUnreachable) or error.status >= 500:
                self._unsettled.setdefault(uid_of(owner), set()).add(chosen)
            elif not name:
                # Refused under a name that nobody will see again: told as the server tells it of a generated one.
                error.message = error.message.replace(f'"{chosen}"', f'"{prefix}"')
            if tell and error.status and error.status < 500 and not is_namespace_ending(error):
                message = f"Error creating: {error.message}"
                self._context.recorder.warning(self._component, owner, "FailedCreate", message)
            raise
        self._pods.observe(created)
        if tell:
            self._context.recorder.normal(self._component, owner, "SuccessfulCreate", f"Created pod: {chosen}")
        return created

    async def _create(self, owner: Obj, pod: Obj) -> Obj:
        """The pod as it is on the server, whether this call or an earlier one that got no answer made it."""
        try:
            return await self._context.client.create(pod)
        except ApiError as error:
            if not error.exists:
                raise
            present = await self._context.client.get_or_none("v1", "Pod", name_of(pod), namespace_of(owner))
            holder = owner_of(present) if present is not None else None
            if present is None or holder is None or holder.get("uid") != uid_of(owner):
                raise
            return present

    def _pick(self, owner: Obj, prefix: str) -> str:
        unsettled = self._unsettled.get(uid_of(owner), set())
        known = next((name for name in unsettled if name.startswith(prefix)), None)
        if known is None:
            return prefix + random_suffix()
        unsettled.discard(known)
        return known

"""Objects off the cluster again: last in, first out, each only if it is still ours alone, and waited for until gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from regional.kube.client import ApiError, Client
from regional.kube.objects import Obj, is_deleting, owners_of, uid_of
from regional.maestro.agent.options import orphaned, rank_of
from regional.maestro.agent.strategies import APPLIED_WORK, drop_owner
from regional.maestro.agent.tracker import Tracker
from regional.maestro.agent.works import Ref
from regional.maestro.protocol.bundles import DeleteOption

log = logging.getLogger(__name__)


class Removal:
    def __init__(self, client: Client, tracker: Tracker) -> None:
        self._client, self._tracker = client, tracker
        self._kinds: dict[tuple[str, str, str], str] = {}

    async def remove(self, record: Obj, doomed: Sequence[Obj], option: DeleteOption | None, work: str) -> list[Obj]:
        """Those entries that are still there. Call again until there is none."""
        known = [(found, ref) for found in doomed if (ref := await self._ref(found)) is not None]
        # Their end is to be heard of at once.
        self._tracker.track(work, {ref for _, ref in known} | self._tracker.followed(work))
        ranks = sorted({rank_of(ref.kind) for _, ref in known}, reverse=True)
        for rank in ranks:
            here = [(found, ref) for found, ref in known if rank_of(ref.kind) == rank]
            left = await asyncio.gather(*(self._lingers(record, found, ref, option) for found, ref in here))
            if any(left):
                # What these stand on is left alone until they are gone.
                below = [found for found, ref in known if rank_of(ref.kind) < rank]
                return [found for (found, _), lingers in zip(here, left, strict=True) if lingers] + below
        return []

    async def _lingers(self, record: Obj, found: Obj, ref: Ref, option: DeleteOption | None) -> bool:
        try:
            live = await self._tracker.fetch(ref)
        except ApiError as error:
            if error.status == 403 and not found.get("uid"):
                return False  # no record says that it was ever made, and what we may not read we could not make
            raise
        if live is None or (found.get("uid") and uid_of(live) != found["uid"]):
            return False
        ours = uid_of(record)
        owners = [owner for owner in owners_of(live) if owner.get("kind") == APPLIED_WORK]
        mine = any(owner.get("uid") == ours for owner in owners)
        if orphaned(ref, option) or not mine or len(owners) > 1:
            if mine:
                self._tracker.observe(ref, await drop_owner(self._client, ref, live, ours))
            return False
        if not is_deleting(live):
            try:
                answer = await self._client.delete(
                    ref.api_version,
                    ref.kind,
                    ref.name,
                    ref.namespace or None,
                    propagation="Background",
                    uid=uid_of(live),
                )
            except ApiError as error:
                if error.not_found or error.conflict:  # gone, or another of the same name, which is not ours
                    return False
                raise
            if answer.get("kind") == "Status":  # it is gone; an answer with the object may mean either
                return False
            live = await self._tracker.fetch(ref)
        return live is not None

    async def _ref(self, found: Obj) -> Ref | None:
        kind = await self._kind(found)
        if kind is None:
            log.warning("a kind has gone, and its objects with it", extra={"resource_kind": found["resource"]})
            return None
        group, version = found.get("group", ""), found["version"]
        api_version = f"{group}/{version}" if group else version
        return Ref(api_version, kind, found.get("namespace", ""), found["name"], found["resource"])

    async def _kind(self, found: Obj) -> str | None:
        """Records name resources, not kinds, as the contract has it."""
        key = (found.get("group", ""), found["version"], found["resource"])
        if key not in self._kinds:
            for known in await self._client.resources():
                resource = known.resource
                self._kinds[resource.group, resource.version, resource.plural] = resource.kind
        return self._kinds.get(key)

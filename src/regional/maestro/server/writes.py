"""Changes of bundles, whichever door they come in by: checked, stored, and on their way before the answer is sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import prometheus_client

from regional.maestro.server.agent_works import LONGEST_ID, AgentWorks
from regional.maestro.server.bundles import (
    BundleExists,
    Bundles,
    NewBundle,
    StaleVersion,
    UnderDeletion,
    UnknownConsumer,
)
from regional.maestro.server.model import Bundle, Contact
from regional.maestro.server.refusals import CONFLICT, FORBIDDEN, NOT_FOUND, Refusal

log = logging.getLogger(__name__)

_accepted = prometheus_client.Counter(
    "maestro_server_accepted_total", "Changes of bundles that were accepted", ["change"]
)

Next = Callable[[Bundle], tuple[str, str, str]]
"""(metadata, spec, request id) of the version that follows a bundle. Raises Refusal."""


class Writes:
    def __init__(
        self, bundles: Bundles, works: AgentWorks, deliver: Callable[[Bundle], object], largest: Callable[[], int]
    ) -> None:
        self._bundles, self._works, self._deliver, self._largest = bundles, works, deliver, largest

    @property
    def largest(self) -> int:
        """Bytes of a spec that one message carries."""
        return self._largest()

    async def create(self, new: NewBundle, started: float) -> tuple[Bundle, Contact, bool]:
        """The bundle, how its consumer is reached, and whether it is new. Raises Refusal."""
        checked = time.monotonic() - started
        try:
            bundle, contact, fresh = await self._bundles.create(new)
        except UnknownConsumer as error:
            raise Refusal(NOT_FOUND, str(error)) from None
        except (BundleExists, UnderDeletion) as error:
            raise Refusal(CONFLICT, str(error)) from None
        if fresh:
            self._accept(bundle, "create", started, checked)
        return bundle, contact, fresh

    async def update(
        self, bundle_id: str, version: int | None, following: Next, started: float
    ) -> tuple[Bundle, Contact] | None:
        """The bundle's next version, and how its consumer is reached; None if nothing differs.

        Without a version asked for, the last writer wins. Raises Refusal.
        """
        while True:
            bundle = await self._bundles.get(bundle_id)
            if bundle is None:
                raise Refusal(NOT_FOUND, f"Resource with id='{bundle_id}' not found")
            try:
                updated = await self._updated(bundle, version, following)
            except UnderDeletion as error:
                raise Refusal(CONFLICT, str(error)) from None
            except StaleVersion as error:
                if version is not None:
                    raise Refusal(CONFLICT, str(error)) from None
                continue  # somebody was faster; ours goes on top
            if updated is not None:
                self._accept(updated[0], "update", started)
            return updated

    async def _updated(self, bundle: Bundle, version: int | None, following: Next) -> tuple[Bundle, Contact] | None:
        if bundle.deleted_at is not None:
            raise UnderDeletion(bundle.id)
        if version is not None and version != bundle.version:
            raise StaleVersion(bundle.version)
        metadata, spec, request_id = following(bundle)
        return await self._bundles.update(bundle, metadata=metadata, spec=spec, request_id=request_id)

    async def delete(self, bundle_id: str, request_id: str, started: float, source: str = "") -> None:
        """One that is being deleted already, or unknown, is no fault: an agent may know it, now or later.

        With a source, only what is of that source. Raises Refusal.
        """
        if len(bundle_id) > LONGEST_ID:
            return  # nothing anywhere is called so
        if source and (found := await self._bundles.get(bundle_id)) and found.source not in ("", source):
            raise Refusal(FORBIDDEN, f"the resource belongs to source {found.source}")
        bundle = await self._bundles.delete(bundle_id, request_id) or await self._works.end(bundle_id, request_id)
        if bundle is not None:
            self._accept(bundle, "delete", started)

    async def expire(self, bundle_id: str, started: float) -> None:
        """Not if somebody has changed it since it was found: the new version may not have finished."""
        if (bundle := await self._bundles.delete(bundle_id, "", expired=True)) is not None:
            self._accept(bundle, "delete", started)

    async def redeliver(self, bundle_id: str, request_id: str, started: float) -> None:
        """Send it as if it were new, and wait for the agent's word again. Raises Refusal."""
        bundle = await self._bundles.redeliver(bundle_id, request_id)
        if bundle is None:
            raise Refusal(NOT_FOUND, f"Resource with id='{bundle_id}' not found")
        self._accept(bundle, "redeliver", started)

    def _accept(self, bundle: Bundle, change: str, started: float, checked: float = 0.0) -> None:
        """`started` is when the request came, `checked` how long it took to read and check it; what follows the commit
        is not in its span."""
        ms = round((time.monotonic() - started) * 1000, 3)
        self._deliver(bundle)
        _accepted.labels(change).inc()
        log.info(
            "bundle accepted",
            extra={
                "change": change,
                "resource": bundle.id,
                "consumer": bundle.consumer_name,
                "version": bundle.version,
                "request_id": bundle.request_id,
                "span": "maestro.commit",
                "ms": ms,
                **({"checked_ms": round(checked * 1000, 3)} if checked else {}),
            },
        )

"""Bundles that finish by themselves: one whose `ttlSecondsAfterFinished` has passed since its condition `Complete`
became true is deleted, as if somebody had asked for it.

The time runs by the server's clock, from the status that first said so: agents' clocks differ.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from regional.core.database import still_wanted
from regional.maestro.server.bundles import Bundles
from regional.maestro.server.connection import FAILURES
from regional.maestro.server.writes import Writes

log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
PAGE = 100


async def keep_expiring(bundles: Bundles, writes: Writes, held: Callable[[], Collection[str]]) -> None:
    """Each replica sees to the consumers that it holds."""
    while True:
        try:
            consumers = list(held())
            while consumers and (expired := await bundles.expired(consumers, PAGE)):
                log.info("bundles have expired", extra={"number": len(expired), "resources": ",".join(expired[:20])})
                # At once, so that few statements delete them all.
                await asyncio.gather(*(writes.expire(bundle_id, time.monotonic()) for bundle_id in expired))
        except FAILURES:
            still_wanted()
        await asyncio.sleep(LOOK_SECONDS)

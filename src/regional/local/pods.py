"""The pods that nodes left running: `down` stops them, because nothing may outlive it."""

from __future__ import annotations

import asyncio

from regional.core.paths import RegionPaths
from regional.core.process import ProcessRef
from regional.core.spawn import read_state

_GRACE = 2.0


def running(region: RegionPaths) -> list[ProcessRef]:
    found = []
    for state in region.root.glob("nodes/*/pods/*/containers/*/state.json"):
        ref = read_state(state)
        if ref is not None and ref.alive():
            found.append(ref)
    return found


async def stop_all(region: RegionPaths) -> None:
    await asyncio.gather(*(ref.stop(_GRACE) for ref in running(region)))

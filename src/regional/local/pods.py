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


async def stop_all(region: RegionPaths) -> bool:
    """Each container's main process, what is left of its group, then whatever else their pods started."""
    # Here, because a supervisor that only keeps watch should not carry them about.
    from regional.kube.node.containers import end_group
    from regional.kube.node.sweeping import kill_inside

    found = running(region)

    async def stop(ref: ProcessRef) -> None:
        await ref.stop(_GRACE)
        end_group(ref)

    await asyncio.gather(*(stop(ref) for ref in found))
    nodes = [str(node / "pods") for node in region.root.glob("nodes/*")]
    swept = await asyncio.to_thread(kill_inside, nodes) if nodes else 0
    return bool(found or swept)

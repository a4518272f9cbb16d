"""`regionctl status` while a cluster's API is away: one line that says so, and no rubbish from the client behind it."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

from regional.core.paths import RegionPaths
from regional.local.addresses import Addresses
from regional.local.inspection import inspect_cluster
from regional.local.provisioner.cluster_directory import ClusterDirectory


async def test_nothing_is_left_open_when_no_api_answers(regional_home: Path) -> None:
    paths = RegionPaths("silent")
    ClusterDirectory(paths.cluster("mc01"), "mc01", Addresses(paths).block("mc01")).ensure()
    noticed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context))
    for _ in range(10):
        [part] = await inspect_cluster(paths, "mc01")
        assert (part.state, part.ok) == ("Unreachable", False) and part.message
    await asyncio.sleep(0)
    gc.collect()
    assert not noticed, noticed

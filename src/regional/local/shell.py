"""What a shell needs to work with a region: programs on PATH and where AWS is."""

from __future__ import annotations

import sys
from pathlib import Path

from regional.core import paths
from regional.local.addresses import Addresses


def settings(region: paths.RegionPaths) -> dict[str, str]:
    values = {"PATH": f"{Path(sys.executable).parent}:{paths.tools() / 'bin'}", "REGIONAL_REGION": region.region}
    if region.root.exists():
        block = Addresses(region).block("region")
        values["AWS_ENDPOINT_URL"] = f"http://{block.infra(3)}:4566"
    return values

"""What a shell needs to work with a region: programs on PATH, where AWS and the region's API are, and a key for them.

The variables are those that AWS's own tools read, so that whatever signs requests finds them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from regional.core import paths
from regional.local.addresses import Addresses
from regional.local.customer import load_key
from regional.local.provisioner.context import GATEWAY_ADDRESS, REGION_BLOCK
from regional.local.provisioner.roots.api_gateway import PORT, EdgeFiles


def settings(region: paths.RegionPaths) -> dict[str, str]:
    values = {"PATH": f"{Path(sys.executable).parent}:{paths.tools() / 'bin'}", "REGIONAL_REGION": region.region}
    if not region.root.exists():
        return values
    block = Addresses(region).block(REGION_BLOCK)
    values["AWS_ENDPOINT_URL"] = f"http://{block.infra(3)}:4566"
    trust = EdgeFiles(region).trust
    if trust.exists():
        values["API_GATEWAY_URL"] = f"{block.infra(GATEWAY_ADDRESS)}:{PORT}"
        values |= dict.fromkeys(("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), str(trust))
    if key := load_key(region):
        values |= dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), key.region)
        values["AWS_ACCESS_KEY_ID"] = key.access_key
        values["AWS_SECRET_ACCESS_KEY"] = key.secret_key
    return values

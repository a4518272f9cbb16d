"""Does the region's edge answer? Asked the way a customer asks: over TLS, signed, through to the Platform API and CLM.

A process that runs is not yet a door that opens: this one request needs the certificate, the key look-up in the AWS
host, the shared secret, the Service and the API behind it to be right.
"""

from __future__ import annotations

import asyncio

from regional.core.paths import RegionPaths
from regional.local.customer import load_key
from regional.local.provisioner.roots.api_gateway import EdgeFiles

_TIMEOUT_SECONDS = 4.0


async def edge_problem(region: RegionPaths, address: str) -> str:
    """ "" if it answers; else why it does not, in a few words."""
    try:
        async with asyncio.timeout(2 * _TIMEOUT_SECONDS):
            return await asyncio.to_thread(_ask, region, address)
    except TimeoutError:
        return f"no answer within {2 * _TIMEOUT_SECONDS:.0f} s"


def _ask(region: RegionPaths, address: str) -> str:
    from regional.cloud.aws import Credentials
    from regional.gateway.client import ApiClient, ApiError

    key = load_key(region)
    authority = EdgeFiles(region).authority
    if not authority.exists():
        return f"{authority} is missing: run `regionctl up` again"
    credentials = key.credentials() if key else Credentials("none", "none")
    client = ApiClient(
        address, key.region if key else "none", credentials, ca_file=str(authority), timeout=_TIMEOUT_SECONDS
    )
    try:
        client.call("GET", "/api/v0/ready")
    except ApiError as error:
        if key is None and error.status == 403:
            return ""  # nobody has a key yet; that it says so is an answer
        return f"{error.reason} ({error.status})" if error.status else error.reason
    finally:
        client.close()
    return ""

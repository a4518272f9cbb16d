"""Which certificate an agent came in with, as the region has seen it: the agent says so in its resyncs.

A certificate's digest is compared, which is also AWS IoT's id of it. Nobody calls into a Management Cluster for this.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from regional.cloud.aws import Aws
from regional.core.problems import UserError
from regional.gateway.client import ApiClient, ApiError, ApiUnreachable
from regional.local.provisioner import certificates, iot_records
from regional.local.provisioner.inputs import ManagementInputs
from regional.local.provisioner.outputs import load_outputs
from regional.local.provisioner.roots.maestro_agent_iot_regional import policy_name
from regional.local.registration import region_api, rendered_inputs

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


def await_agent_certificate(central: Aws, var_file: Path, timeout: float) -> None:
    """Returns once the agent was seen with the newest of its certificates."""
    inputs = rendered_inputs(central, var_file, ManagementInputs)
    assert isinstance(inputs, ManagementInputs)
    wanted = digest(_newest(central, inputs))
    with region_api(central, inputs, inputs.regional_aws_account_id) as api:
        wait_for(lambda: seen(api, inputs.cluster_id, wanted), inputs.cluster_id, timeout)


def digest(certificate: str) -> str:
    return x509.load_pem_x509_certificate(certificate.encode()).fingerprint(hashes.SHA256()).hex()


def wait_for(look: Callable[[], str], cluster_id: str, timeout: float) -> None:
    """`look` says what is still missing."""
    deadline = time.monotonic() + timeout
    said = ""
    while missing := look():
        if missing != said:
            log.info("waiting", extra={"for": missing})
            said = missing
        if time.monotonic() >= deadline:
            raise UserError(
                f"the agent of {cluster_id} was not seen with its new certificate within {timeout:.0f} s: {missing}",
                "its former certificate stays good; run it again to go on waiting",
            )
        time.sleep(_POLL_SECONDS)
    log.info("the agent has come in with its new certificate", extra={"consumer": cluster_id})


def seen(api: ApiClient, cluster_id: str, wanted: str) -> str:
    """What is missing until the region has seen the agent with this certificate; empty when it has."""
    try:
        found: dict[str, Any] = api.call("GET", f"/api/v0/management_clusters/{cluster_id}").json()
    except ApiUnreachable as error:
        return f"the region's API does not answer: {error.reason}"
    except ApiError as error:
        if error.status < 500 and error.status != 404:
            raise UserError(f"the region's API refuses to tell about {cluster_id}: {error.reason}") from None
        return f"the region's API says {error.status}: {error.reason}"
    if found.get("agent_certificate") == wanted:
        return ""
    if not found.get("last_seen_at"):
        return "the agent was never seen"
    if not found.get("connected"):
        return f"the agent is not connected, last seen {found['last_seen_at']}"
    if not found.get("agent_certificate"):
        return "the agent does not say which certificate it uses"
    return "the agent still uses a former one"


def _newest(central: Aws, inputs: ManagementInputs) -> str:
    door = central.assume(inputs.regional_aws_account_id, session_name="await-agent-certificate")
    door.region = inputs.region
    try:
        root = "maestro-agent-iot-regional"
        recorded = load_outputs(door, inputs.regional_aws_account_id, root, inputs) or {}
        registered = iot_records.active_certificates(door, policy_name(inputs))
        newest = certificates.newest_of(registered, str(recorded.get("certificate_arn", "")))
    finally:
        door.close()
    if not newest:
        raise UserError(f"{inputs.cluster_id} has no registered certificate", f"provision {root} first")
    return newest

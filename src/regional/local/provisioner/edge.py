"""The secret that the region's gateway and the Platform API share, and the stage that carries it in the cloud.

Whoever knows it may say who a caller is, so it is drawn here and goes to Secrets Manager alone: Terraform makes the
secret's place and everything of the API but its stage, because a stage's variables would be read into the state. A
secret that exists is the truth; the gateway is set to it again.
"""

from __future__ import annotations

import logging
import secrets

import msgspec
from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.cloud.secrets import get_secret, put_secret
from regional.local.provisioner.records import error_code

log = logging.getLogger(__name__)

GATEWAY_SECRET = "platform-api/gateway-secret"
STAGE = "prod"
_VARIABLE = "gatewaySecret"  # what the integration of the API maps to X-Gateway-Secret


class _Stored(msgspec.Struct):
    secret: str


def gateway_secret(aws: Aws) -> str:
    """As stored, or drawn now and already stored."""
    stored = get_secret(aws, GATEWAY_SECRET)
    if stored is not None:
        return msgspec.json.decode(stored, type=_Stored).secret
    drawn = secrets.token_urlsafe(32)
    put_secret(aws, GATEWAY_SECRET, {"secret": drawn})
    log.info("gateway secret drawn", extra={"secret": GATEWAY_SECRET})
    return drawn


def publish_stage(aws: Aws, rest_api_id: str, deployment_id: str) -> None:
    """The stage, showing the deployment that Terraform made last, with the secret that is stored now."""
    client = aws.client("apigateway")
    secret = gateway_secret(aws)
    try:
        client.get_stage(restApiId=rest_api_id, stageName=STAGE)
    except ClientError as error:
        if error_code(error) != "NotFoundException":
            raise
        client.create_stage(
            restApiId=rest_api_id, stageName=STAGE, deploymentId=deployment_id, variables={_VARIABLE: secret}
        )
        log.info("stage made", extra={"stage": STAGE})
        return
    changes = {"/deploymentId": deployment_id, f"/variables/{_VARIABLE}": secret}
    client.update_stage(
        restApiId=rest_api_id,
        stageName=STAGE,
        patchOperations=[{"op": "replace", "path": path, "value": value} for path, value in changes.items()],
    )

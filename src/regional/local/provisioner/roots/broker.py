"""The broker, and the registered certificate of Maestro's server. The server's key is the step program's matter."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import yaml

from regional.cloud.aws import Aws
from regional.cloud.secrets import put_secret
from regional.core.problems import UserError
from regional.local.provisioner import iot_records, mosquitto, records
from regional.local.provisioner.authority import serial
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs

log = logging.getLogger(__name__)

CERT_SECRET, CONFIG_SECRET = "maestro/server-cert", "maestro/server-config"


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    ca_certificate_pem: str
    server_certificate_pem: str


class Outputs(msgspec.Struct, kw_only=True):
    broker_host: str
    server_certificate_arn: str
    server_policy_name: str
    server_cert_secret_arn: str
    server_config_secret_arn: str


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.account_id, inputs.region)
    address = context.broker_address()
    outputs, retired = await asyncio.to_thread(_record, aws, inputs, address)
    for certificate in retired:
        context.authorities.server.revoke(serial(certificate))
    await run_broker(context)
    return outputs


async def run_broker(context: Context) -> None:
    """Also called when a certificate was revoked: the broker then starts again with the new list."""
    authorities = context.authorities
    if not authorities.agents.exists or not authorities.server.exists:
        raise UserError("the region has no certificate authority yet", "provision certificate-authority first")
    spec = mosquitto.service(context.paths.broker, context.broker_address(), authorities)
    await context.supervisor.ensure(spec)
    log.info("Mosquitto runs", extra={"address": spec.address})


def broker_config(host: str, consumer: str) -> str:
    """Maestro's broker file; `consumer` is a consumer's name, or + for all of them."""
    return yaml.safe_dump(
        {
            "brokerHost": host,
            "caFile": "/mnt/secrets-store/ca.crt",
            "clientCertFile": "/mnt/secrets-store/tls.crt",
            "clientKeyFile": "/mnt/secrets-store/tls.key",
            "topics": {
                "sourceEvents": f"{mosquitto.TOPICS}/{consumer}/sourceevents",
                "agentEvents": f"{mosquitto.TOPICS}/{consumer}/agentevents",
            },
        },
        sort_keys=False,
    )


def _record(aws: Aws, inputs: Inputs, address: str) -> tuple[Outputs, list[str]]:
    """The outputs, and the certificates that this one replaced."""
    policy = f"{inputs.name}-maestro-server"
    arn = iot_records.ensure_certificate(aws, inputs.server_certificate_pem, inputs.ca_certificate_pem)
    iot_records.ensure_policy(aws, policy, iot_records.server_policy(inputs.region, inputs.account_id), arn)
    retired = iot_records.retire_others(aws, policy, arn)
    certificate_place = records.ensure_secret_place(
        aws, CERT_SECRET, "Maestro server's certificate and key", inputs.tags
    )
    config_place = records.ensure_secret_place(
        aws, CONFIG_SECRET, "Broker and topics for Maestro's server", inputs.tags
    )
    put_secret(aws, CONFIG_SECRET, {"config": broker_config(f"{address}:{mosquitto.SERVER_PORT}", "+")})
    outputs = Outputs(
        broker_host=f"{address}:{mosquitto.AGENT_PORT}",
        server_certificate_arn=arn,
        server_policy_name=policy,
        server_cert_secret_arn=certificate_place,
        server_config_secret_arn=config_place,
    )
    return outputs, retired

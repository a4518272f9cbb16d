"""The broker, and the registered certificate of Maestro's server. The server's key is the step program's matter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
import yaml

from regional.cloud.aws import Aws
from regional.cloud.secrets import put_secret
from regional.core.problems import UserError
from regional.local.provisioner import iot_records, mosquitto, records
from regional.local.provisioner.authority import FileAuthority, serial
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs
from regional.local.provisioner.locks import one_at_a_time

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
    await revoke(context, inputs.region_id, context.authorities.server, retired.values())
    await asyncio.to_thread(iot_records.retire, aws, outputs.server_policy_name, retired)
    return outputs


async def revoke(context: Context, region_id: str, authority: FileAuthority, certificates: Iterable[str]) -> None:
    """The broker runs, and takes none of these any more. IoT's records are changed after that: a step that is killed in
    between finds them as they were, and comes here again."""
    for certificate in certificates:
        authority.revoke(serial(certificate))
    await run_broker(context, region_id)


async def run_broker(context: Context, region_id: str) -> None:
    """With the revocations that there are now: Mosquitto reads that list only when it starts."""
    authorities = context.authorities
    if not authorities.agents.exists or not authorities.server.exists:
        raise UserError("the region has no certificate authority yet", "provision certificate-authority first")
    # Steps of two Management Clusters may come here at once, and the later list must win.
    async with one_at_a_time(context.paths.pipelines / "locks" / "broker-service.lock"):
        topics = mosquitto.topics_of(region_id)
        spec = mosquitto.service(context.paths.broker, context.broker_address(), authorities, topics)
        await context.supervisor.ensure(spec)
    log.info("Mosquitto runs", extra={"address": spec.address})


def broker_config(host: str, region_id: str, consumer: str) -> str:
    """Maestro's broker file; `consumer` is a consumer's name, or + for all of them."""
    topics = mosquitto.topics_of(region_id)
    return yaml.safe_dump(
        {
            "brokerHost": host,
            "caFile": "/mnt/secrets-store/ca.crt",
            "clientCertFile": "/mnt/secrets-store/tls.crt",
            "clientKeyFile": "/mnt/secrets-store/tls.key",
            "clientIdPrefix": mosquitto.client_id_prefix(region_id),
            "topics": {
                "sourceEvents": f"{topics}/{consumer}/sourceevents",
                "agentEvents": f"{topics}/{consumer}/agentevents",
            },
        },
        sort_keys=False,
    )


def _record(aws: Aws, inputs: Inputs, address: str) -> tuple[Outputs, dict[str, str]]:
    """The outputs, and the certificates that this one replaces."""
    policy = f"{inputs.name}-maestro-server"
    arn = iot_records.ensure_certificate(aws, inputs.server_certificate_pem, inputs.ca_certificate_pem)
    document = iot_records.server_policy(inputs.region, inputs.account_id, inputs.region_id)
    iot_records.ensure_policy(aws, policy, document, arn)
    retired = {a: pem for a, pem in iot_records.active_certificates(aws, policy).items() if a != arn}
    certificate_place = records.ensure_secret_place(
        aws, CERT_SECRET, "Maestro server's certificate and key", inputs.tags
    )
    config_place = records.ensure_secret_place(
        aws, CONFIG_SECRET, "Broker and topics for Maestro's server", inputs.tags
    )
    config = broker_config(f"{address}:{mosquitto.SERVER_PORT}", inputs.region_id, "+")
    put_secret(aws, CONFIG_SECRET, {"config": config})
    outputs = Outputs(
        broker_host=f"{address}:{mosquitto.AGENT_PORT}",
        server_certificate_arn=arn,
        server_policy_name=policy,
        server_cert_secret_arn=certificate_place,
        server_config_secret_arn=config_place,
    )
    return outputs, retired

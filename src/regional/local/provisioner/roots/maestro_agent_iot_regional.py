"""First half of bringing an agent to the broker, in the regional account: its certificate is registered by name."""

from __future__ import annotations

import asyncio

import msgspec

from regional.cloud.aws import Aws
from regional.local.provisioner import iot_records
from regional.local.provisioner.authority import serial
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import ManagementInputs
from regional.local.provisioner.roots.broker import run_broker


class Inputs(ManagementInputs, kw_only=True, frozen=True):
    ca_certificate_pem: str
    certificate_pem: str


class Outputs(msgspec.Struct, kw_only=True):
    consumer_name: str
    certificate_arn: str
    policy_name: str
    handover_secret_name: str


def policy_name(inputs: ManagementInputs) -> str:
    return f"{inputs.name}-maestro-agent"


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.regional_aws_account_id, inputs.region)
    arn, retired = await asyncio.to_thread(_record, aws, inputs)
    agents = context.authorities.agents
    for certificate in retired:
        agents.revoke(serial(certificate))
    if retired:
        await run_broker(context)
    return Outputs(
        consumer_name=inputs.cluster_id,
        certificate_arn=arn,
        policy_name=policy_name(inputs),
        handover_secret_name=inputs.handover_secret,
    )


def _record(aws: Aws, inputs: Inputs) -> tuple[str, list[str]]:
    """The registered certificate, and those that it replaced."""
    policy = policy_name(inputs)
    arn = iot_records.ensure_certificate(aws, inputs.certificate_pem, inputs.ca_certificate_pem)
    document = iot_records.agent_policy(inputs.region, inputs.regional_aws_account_id)
    iot_records.ensure_policy(aws, policy, document, arn)
    return arn, iot_records.retire_others(aws, policy, arn)

"""First half of bringing an agent to the broker, in the regional account: its certificate is registered by name.

While a certificate is rotated there are two: the newest, and the former, which is good until the agent was seen with
the newest. Whatever is not named any more is withdrawn.
"""

from __future__ import annotations

import asyncio

import msgspec

from regional.cloud.aws import Aws
from regional.local.provisioner import iot_records
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import ManagementInputs
from regional.local.provisioner.roots.broker import revoke


class Inputs(ManagementInputs, kw_only=True, frozen=True):
    ca_certificate_pem: str
    certificate_pem: str
    former_certificates_pem: list[str] = msgspec.field(default_factory=list)


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
    if retired:
        await revoke(context, inputs.region_id, context.authorities.agents, retired.values())
        await asyncio.to_thread(iot_records.retire, aws, policy_name(inputs), retired)
    return Outputs(
        consumer_name=inputs.cluster_id,
        certificate_arn=arn,
        policy_name=policy_name(inputs),
        handover_secret_name=inputs.handover_secret,
    )


def _record(aws: Aws, inputs: Inputs) -> tuple[str, dict[str, str]]:
    """The newest certificate, registered, and those that are neither it nor a former one."""
    policy = policy_name(inputs)
    document = iot_records.agent_policy(inputs.region, inputs.regional_aws_account_id, inputs.region_id)
    kept = []
    for certificate in (inputs.certificate_pem, *inputs.former_certificates_pem):
        kept.append(iot_records.ensure_certificate(aws, certificate, inputs.ca_certificate_pem))
        iot_records.ensure_policy(aws, policy, document, kept[-1])
    found = iot_records.active_certificates(aws, policy)
    return kept[0], {arn: pem for arn, pem in found.items() if arn not in kept}

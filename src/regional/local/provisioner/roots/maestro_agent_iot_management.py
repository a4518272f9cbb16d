"""Second half of bringing an agent to the broker, in the Management Cluster's account: places for what is carried."""

from __future__ import annotations

import asyncio

import msgspec

from regional.cloud.aws import Aws
from regional.local.provisioner import records
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import ManagementInputs

CERT_SECRET, CONFIG_SECRET = "maestro/agent-cert", "maestro/agent-config"


class Inputs(ManagementInputs, kw_only=True, frozen=True):
    pass


class Outputs(msgspec.Struct, kw_only=True):
    consumer_name: str
    agent_cert_secret_arn: str
    agent_config_secret_arn: str


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.account_id, inputs.region)
    return await asyncio.to_thread(_record, aws, inputs)


def _record(aws: Aws, inputs: Inputs) -> Outputs:
    certificate = records.ensure_secret_place(aws, CERT_SECRET, "Maestro agent's certificate and key", inputs.tags)
    config = records.ensure_secret_place(aws, CONFIG_SECRET, "Broker, topics and consumer name", inputs.tags)
    return Outputs(consumer_name=inputs.cluster_id, agent_cert_secret_arn=certificate, agent_config_secret_arn=config)

"""The authority that signs the region's broker certificates: a key in a private directory, registered with IoT."""

from __future__ import annotations

import asyncio

import msgspec

from regional.local.provisioner import iot_records
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    pass


class Outputs(msgspec.Struct, kw_only=True):
    ca_certificate_pem: str
    ca_certificate_id: str


async def apply(inputs: Inputs, context: Context) -> Outputs:
    authorities = context.authorities
    authorities.ensure()
    certificate = authorities.agents.certificate
    aws = context.account(inputs.account_id, inputs.region)
    identifier = await asyncio.to_thread(iot_records.ensure_authority, aws, certificate)
    return Outputs(ca_certificate_pem=certificate, ca_certificate_id=identifier)

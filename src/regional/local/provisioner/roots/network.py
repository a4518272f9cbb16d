"""Network facts of the Regional Cluster. Here addresses come from the loopback blocks; the VPC is a record."""

from __future__ import annotations

import asyncio
import ipaddress

import msgspec

from regional.cloud.aws import Aws
from regional.local.provisioner import records
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    vpc_cidr: str = "10.0.0.0/16"
    availability_zone_count: int = 3


class Outputs(msgspec.Struct, kw_only=True):
    vpc_id: str
    vpc_cidr: str
    private_subnet_ids: list[str]
    public_subnet_ids: list[str]


async def apply(inputs: Inputs, context: Context) -> Outputs:
    aws = context.account(inputs.account_id, inputs.region)
    return await asyncio.to_thread(
        lay_network, aws, inputs.name, inputs.vpc_cidr, inputs.availability_zone_count, inputs.tags
    )


def lay_network(aws: Aws, name: str, cidr: str, zone_count: int, tags: dict[str, str]) -> Outputs:
    vpc_id = records.ensure_vpc(aws, name, cidr, tags)
    zones = records.zones(aws, zone_count)
    slices = list(ipaddress.ip_network(cidr).subnets(prefixlen_diff=8))
    private = [(zone, str(slices[index])) for index, zone in enumerate(zones)]
    public = [(zone, str(slices[100 + index])) for index, zone in enumerate(zones)]
    return Outputs(
        vpc_id=vpc_id,
        vpc_cidr=cidr,
        private_subnet_ids=records.ensure_subnets(aws, vpc_id, f"{name}-private", private, tags),
        public_subnet_ids=records.ensure_subnets(aws, vpc_id, f"{name}-public", public, tags),
    )

"""A Management Cluster: hosts customers' control planes, in an account and a network of its own."""

from __future__ import annotations

import asyncio

import msgspec

from regional.core.problems import UserError
from regional.local.provisioner.cluster import ClusterOutputs, ClusterRequest, run_cluster
from regional.local.provisioner.context import REGION_BLOCK, Context
from regional.local.provisioner.inputs import ManagementInputs
from regional.local.provisioner.roots import regional_cluster
from regional.local.provisioner.roots.network import lay_network


class Inputs(ManagementInputs, kw_only=True, frozen=True):
    agent_cert_secret_arn: str
    agent_config_secret_arn: str
    vpc_cidr: str = "10.0.0.0/16"
    availability_zone_count: int = 3
    kubernetes_version: str = "1.34"
    image: str = "regional/regional:0.1.0"


class Outputs(ClusterOutputs, kw_only=True):
    vpc_id: str
    private_subnet_ids: list[str]


async def apply(inputs: Inputs, context: Context) -> Outputs:
    if inputs.cluster_id in (REGION_BLOCK, regional_cluster.DIRECTORY):
        raise UserError(f"a Management Cluster cannot be named {inputs.cluster_id}", "choose another cluster_id")
    aws = context.account(inputs.account_id, inputs.region)
    network = await asyncio.to_thread(
        lay_network, aws, inputs.name, inputs.vpc_cidr, inputs.availability_zone_count, inputs.tags
    )
    request = ClusterRequest(
        directory_name=inputs.cluster_id,
        name=inputs.name,
        cluster_type="management-cluster",
        kubernetes_version=inputs.kubernetes_version,
        image=inputs.image,
        vpc_id=network.vpc_id,
        private_subnet_ids=network.private_subnet_ids,
        secret_arns=[inputs.agent_cert_secret_arn, inputs.agent_config_secret_arn],
    )
    cluster = await run_cluster(request, inputs, context)
    return Outputs(
        vpc_id=network.vpc_id, private_subnet_ids=network.private_subnet_ids, **msgspec.structs.asdict(cluster)
    )

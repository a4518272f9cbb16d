"""The Regional Cluster: takes customers' requests and holds the truth. Here it is called `rc`."""

from __future__ import annotations

from regional.local.provisioner.cluster import ClusterOutputs, ClusterRequest, run_cluster
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import RegionalInputs

DIRECTORY = "rc"


class Inputs(RegionalInputs, kw_only=True, frozen=True):
    vpc_id: str
    private_subnet_ids: list[str]
    database_security_group_id: str
    maestro_db_secret_arn: str
    clm_db_secret_arn: str
    server_cert_secret_arn: str
    server_config_secret_arn: str
    api_security_group_id: str
    gateway_secret_arn: str
    platform_api_config_secret_arn: str
    platform_api_port: int = 8000
    kubernetes_version: str = "1.34"
    image: str = "regional/regional:0.1.0"


class Outputs(ClusterOutputs, kw_only=True):
    pass


async def apply(inputs: Inputs, context: Context) -> ClusterOutputs:
    request = ClusterRequest(
        directory_name=DIRECTORY,
        name=inputs.name,
        cluster_type="regional-cluster",
        kubernetes_version=inputs.kubernetes_version,
        image=inputs.image,
        vpc_id=inputs.vpc_id,
        private_subnet_ids=inputs.private_subnet_ids,
        secret_arns=[
            inputs.maestro_db_secret_arn,
            inputs.clm_db_secret_arn,
            inputs.server_cert_secret_arn,
            inputs.server_config_secret_arn,
            inputs.gateway_secret_arn,
            inputs.platform_api_config_secret_arn,
        ],
    )
    return await run_cluster(request, inputs, context)

"""A Kubernetes cluster on this machine: an API process and a node process, and the records that EKS and ECS would have.

The node gets an access key of its own cluster's account that may read that cluster's secrets, in the role of pod
identity; it knows nothing of any other account.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import msgspec

from regional.cloud.aws import Aws
from regional.core.files import write_json
from regional.core.paths import RegionPaths
from regional.core.problems import UserError
from regional.local.addresses import API_PORT, KUBELET_PORT
from regional.local.provisioner import records
from regional.local.provisioner.cluster_directory import ClusterDirectory
from regional.local.provisioner.context import Context
from regional.local.provisioner.inputs import CommonInputs
from regional.local.provisioner.real_cluster import run_real_control_plane
from regional.local.supervisor_client import ServiceSpec
from regional.local.tools import ensure_kubectl_and_helm

log = logging.getLogger(__name__)

IMAGE = "regional/regional"


class ClusterOutputs(msgspec.Struct, kw_only=True):
    cluster_name: str
    cluster_arn: str
    cluster_endpoint: str
    cluster_certificate_authority_data: str
    bootstrap_cluster_arn: str
    bootstrap_task_definition_arn: str
    bootstrap_security_group_id: str
    bootstrap_log_group_name: str


class ClusterRequest(msgspec.Struct, kw_only=True, frozen=True):
    directory_name: str  # rc, or the management cluster's id: what people type
    name: str  # EKS's name
    cluster_type: str
    kubernetes_version: str
    image: str
    vpc_id: str
    private_subnet_ids: list[str]
    secret_arns: list[str]  # what the node may read for its pods


class _Record(msgspec.Struct):
    cluster_name: str
    cluster_type: str


class _NodeCredentials(msgspec.Struct):
    access_key: str
    secret_key: str
    region: str


async def run_cluster(request: ClusterRequest, inputs: CommonInputs, context: Context) -> ClusterOutputs:
    aws = context.account(inputs.account_id, inputs.region)
    block = context.addresses.block(request.directory_name)
    directory = ClusterDirectory(context.paths.cluster(request.directory_name), request.directory_name, block)
    directory.ensure()
    write_json(directory.directory / "cluster.json", _Record(request.name, request.cluster_type))
    run_api = run_real_control_plane if context.kube == "real" else _run_api
    bootstrap, _ = await asyncio.gather(asyncio.to_thread(_record, aws, request, inputs), run_api(directory, context))
    await asyncio.to_thread(_ensure_node_credentials, aws, request, inputs, directory.aws_credentials)
    await _run_node(directory, inputs, context)
    return ClusterOutputs(
        cluster_name=request.name,
        cluster_endpoint=directory.endpoint,
        cluster_certificate_authority_data=directory.authority_data(),
        **bootstrap,
    )


def bootstrap_kubeconfig(paths: RegionPaths, cluster_name: str) -> Path:
    """The kubeconfig with which the bootstrap task enters a cluster: `aws eks update-kubeconfig`'s role."""
    for file in sorted(paths.root.glob("clusters/*/cluster.json")):
        if msgspec.json.decode(file.read_bytes(), type=_Record).cluster_name == cluster_name:
            return file.with_name("admin.kubeconfig")
    raise UserError(f"there is no cluster named {cluster_name} in region {paths.region}", "provision it first")


async def _run_api(directory: ClusterDirectory, context: Context) -> None:
    block = directory.block
    await context.supervisor.ensure(
        ServiceSpec(
            name=f"{directory.name}-api",
            description=f"Kubernetes API of {directory.name}",
            kind="fork",
            argv=[
                *("regionctl", "serve", "kube-api"),
                *("--cluster", directory.name),
                *("--data", str(directory.data)),
                *("--pki", str(directory.certificates)),
                *("--address", block.api),
                *("--port", str(API_PORT)),
                *("--service-cidr", block.service_cidr),
            ],
            address=f"{block.api}:{API_PORT}",
            ready=f"https://{block.api}:{API_PORT}/readyz",
        )
    )
    log.info("Kubernetes API runs", extra={"cluster": directory.name, "address": directory.endpoint})


async def _run_node(directory: ClusterDirectory, inputs: CommonInputs, context: Context) -> None:
    block = directory.block
    tools = ":".join([str(ensure_kubectl_and_helm()), str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin"])
    await context.supervisor.ensure(
        ServiceSpec(
            name=f"{directory.name}-node",
            description=f"Node of {directory.name}: runs its pods",
            kind="fork",
            argv=[
                *("regionctl", "serve", "kube-node"),
                *("--cluster", directory.name),
                *("--node-name", directory.node_name),
                *("--kubeconfig", str(directory.node_kubeconfig)),
                *("--pki", str(directory.certificates)),
                *("--root", str(context.paths.node(directory.name))),
                *("--address", block.node),
                *("--pod-cidr", block.pod_cidr),
                *("--spawner", str(context.warm_socket)),
                *("--tools-path", tools),
                *("--aws-endpoint", context.central.endpoint),
                *("--aws-credentials", str(directory.aws_credentials)),
                *("--image", IMAGE),
            ],
            address=f"{block.node}:{KUBELET_PORT}",
            ready=f"tcp:{block.node}:{KUBELET_PORT}",
            needs=[f"{directory.name}-api"],
        )
    )
    log.info("node runs", extra={"cluster": directory.name, "node": directory.node_name})


def _ensure_node_credentials(aws: Aws, request: ClusterRequest, inputs: CommonInputs, file: Path) -> None:
    client = aws.client("iam")
    user = f"{request.name}-node"
    if user not in {u["UserName"] for page in client.get_paginator("list_users").paginate() for u in page["Users"]}:
        client.create_user(UserName=user, Tags=[{"Key": k, "Value": v} for k, v in inputs.tags.items()])
        log.info("node identity made", extra={"user": user})
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"],
                "Resource": request.secret_arns,
            }
        ],
    }
    client.put_user_policy(UserName=user, PolicyName="read-own-secrets", PolicyDocument=json.dumps(policy))
    keys = [key["AccessKeyId"] for key in client.list_access_keys(UserName=user)["AccessKeyMetadata"]]
    if file.exists():
        stored = msgspec.json.decode(file.read_bytes(), type=_NodeCredentials)
        if stored.access_key in keys and stored.region == inputs.region:
            return
    for key in keys:  # made by a run that was killed before it wrote them down: nobody has their secret
        client.delete_access_key(UserName=user, AccessKeyId=key)
    made = client.create_access_key(UserName=user)["AccessKey"]
    write_json(file, _NodeCredentials(made["AccessKeyId"], made["SecretAccessKey"], inputs.region))


def _record(aws: Aws, request: ClusterRequest, inputs: CommonInputs) -> dict[str, str]:
    name, tags = request.name, inputs.tags
    role = records.ensure_role(aws, f"{name}-cluster", "eks.amazonaws.com", tags)
    task_role = records.ensure_role(aws, f"{name}-bootstrap", "ecs-tasks.amazonaws.com", tags)
    log_group = f"/ecs/{name}/bootstrap"
    records.ensure_log_group(aws, log_group, 365)
    container = {
        "name": "bootstrap",
        "image": request.image,
        "essential": True,
        "entryPoint": ["sh", "-ec"],
        "command": [
            'exec regionctl bootstrap --cluster "$CLUSTER" --cluster-name "$CLUSTER_NAME"'
            ' --cluster-type "$CLUSTER_TYPE" --environment "$ENVIRONMENT" --region "$REGION_ALIAS"'
            ' --aws-region "$AWS_REGION" --git-repo "$GIT_REPO" --git-revision "$GIT_REVISION"'
        ],
        "environment": [
            {"name": "AWS_REGION", "value": inputs.region},
            {"name": "CLUSTER", "value": request.directory_name},
            {"name": "CLUSTER_NAME", "value": name},
            {"name": "CLUSTER_TYPE", "value": request.cluster_type},
            {"name": "ENVIRONMENT", "value": inputs.environment},
            {"name": "REGION_ALIAS", "value": inputs.region_alias},
        ],
    }
    return {
        "cluster_arn": records.ensure_eks_cluster(
            aws, name, role, request.private_subnet_ids, request.kubernetes_version, tags
        ),
        "bootstrap_cluster_arn": records.ensure_ecs_cluster(aws, f"{name}-bootstrap"),
        "bootstrap_task_definition_arn": records.ensure_task_definition(
            aws,
            f"{name}-bootstrap",
            {
                "containerDefinitions": [container],
                "networkMode": "awsvpc",
                "requiresCompatibilities": ["FARGATE"],
                "cpu": "256",
                "memory": "512",
                "taskRoleArn": task_role,
                "executionRoleArn": task_role,
            },
        ),
        "bootstrap_security_group_id": records.ensure_security_group(
            aws, request.vpc_id, f"{name}-bootstrap", f"Bootstrap task of {name}", tags
        ),
        "bootstrap_log_group_name": log_group,
    }

"""Find-or-create for the AWS records that describe what runs here: network, identities, clusters, tasks.

Everything is found by its name before it is made, and made with its tags in one call, so that a killed run leaves
nothing that the next one cannot see.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from botocore.exceptions import ClientError

from regional.cloud.aws import Aws

log = logging.getLogger(__name__)


def error_code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def ensure_vpc(aws: Aws, name: str, cidr: str, tags: dict[str, str]) -> str:
    client = aws.client("ec2")
    found = client.describe_vpcs(Filters=[{"Name": "tag:Name", "Values": [name]}])["Vpcs"]
    if found:
        return str(min(vpc["VpcId"] for vpc in found))
    made = client.create_vpc(
        CidrBlock=cidr,
        TagSpecifications=[{"ResourceType": "vpc", "Tags": _tag_list({"Name": name, **tags})}],
    )
    log.info("VPC made", extra={"vpc": made["Vpc"]["VpcId"], "name_tag": name})
    return str(made["Vpc"]["VpcId"])


def ensure_subnets(aws: Aws, vpc_id: str, name: str, ranges: list[tuple[str, str]], tags: dict[str, str]) -> list[str]:
    """One subnet per (zone, range), in that order."""
    client = aws.client("ec2")
    listed = client.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["Subnets"]
    known = {subnet["CidrBlock"]: str(subnet["SubnetId"]) for subnet in listed}
    for zone, cidr in ranges:
        if cidr in known:
            continue
        specification = {"ResourceType": "subnet", "Tags": _tag_list({"Name": f"{name}-{zone}", **tags})}
        made = client.create_subnet(
            VpcId=vpc_id, CidrBlock=cidr, AvailabilityZone=zone, TagSpecifications=[specification]
        )
        known[cidr] = str(made["Subnet"]["SubnetId"])
        log.info("subnet made", extra={"subnet": known[cidr], "range": cidr})
    return [known[cidr] for _, cidr in ranges]


def zones(aws: Aws, count: int) -> list[str]:
    listed = aws.client("ec2").describe_availability_zones()["AvailabilityZones"]
    return sorted(zone["ZoneName"] for zone in listed)[:count]


def ensure_security_group(aws: Aws, vpc_id: str, name: str, description: str, tags: dict[str, str]) -> str:
    client = aws.client("ec2")
    wanted = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "group-name", "Values": [name]}]
    if found := client.describe_security_groups(Filters=wanted)["SecurityGroups"]:
        return str(found[0]["GroupId"])
    made = client.create_security_group(
        GroupName=name,
        Description=description,
        VpcId=vpc_id,
        TagSpecifications=[{"ResourceType": "security-group", "Tags": _tag_list({"Name": name, **tags})}],
    )
    log.info("security group made", extra={"group": made["GroupId"], "group_name": name})
    return str(made["GroupId"])


def ensure_role(aws: Aws, name: str, service: str, tags: dict[str, str]) -> str:
    client = aws.client("iam")
    try:
        return str(client.get_role(RoleName=name)["Role"]["Arn"])
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
    }
    made = client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust), Tags=_tag_list(tags))
    log.info("role made", extra={"role_name": name})
    return str(made["Role"]["Arn"])


def ensure_secret_place(aws: Aws, name: str, description: str, tags: dict[str, str]) -> str:
    """A secret without a value; its ARN."""
    client = aws.client("secretsmanager")
    try:
        return str(client.describe_secret(SecretId=name)["ARN"])
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
    log.info("place for a secret made", extra={"secret": name})
    return str(client.create_secret(Name=name, Description=description, Tags=_tag_list(tags))["ARN"])


def ensure_database_instance(
    aws: Aws, identifier: str, service: str, options: dict[str, Any], tags: dict[str, str]
) -> None:
    client = aws.client("rds")
    try:
        client.describe_db_instances(DBInstanceIdentifier=identifier)
        return
    except ClientError as error:
        if error_code(error) != "DBInstanceNotFound":
            raise
    client.create_db_instance(
        DBInstanceIdentifier=identifier,
        DBName=service,
        Engine="postgres",
        MasterUsername=service,
        ManageMasterUserPassword=False,
        AllocatedStorage=20,
        StorageEncrypted=True,
        PubliclyAccessible=False,
        BackupRetentionPeriod=7,
        Tags=_tag_list(tags),
        **options,
    )
    log.info("database instance recorded", extra={"instance": identifier})


def ensure_eks_cluster(
    aws: Aws, name: str, role_arn: str, subnet_ids: list[str], version: str, tags: dict[str, str]
) -> str:
    client = aws.client("eks")
    try:
        return str(client.describe_cluster(name=name)["cluster"]["arn"])
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
    made = client.create_cluster(
        name=name,
        roleArn=role_arn,
        version=version,
        resourcesVpcConfig={"subnetIds": subnet_ids, "endpointPublicAccess": False, "endpointPrivateAccess": True},
        logging={
            "clusterLogging": [
                {
                    "types": ["api", "audit", "authenticator", "controllerManager", "scheduler"],
                    "enabled": True,
                }
            ]
        },
        tags=tags,
    )
    log.info("EKS cluster recorded", extra={"cluster": name})
    return str(made["cluster"]["arn"])


def ensure_ecs_cluster(aws: Aws, name: str) -> str:
    client = aws.client("ecs")
    found = [c for c in client.describe_clusters(clusters=[name])["clusters"] if c["status"] == "ACTIVE"]
    if found:
        return str(found[0]["clusterArn"])
    log.info("ECS cluster recorded", extra={"cluster": name})
    return str(client.create_cluster(clusterName=name)["cluster"]["clusterArn"])


def ensure_task_definition(aws: Aws, family: str, definition: dict[str, Any]) -> str:
    """A new revision only if the container changed."""
    client = aws.client("ecs")
    container = definition["containerDefinitions"][0]
    try:
        present = client.describe_task_definition(taskDefinition=family)["taskDefinition"]
        current = present["containerDefinitions"][0]
        if all(current.get(key) == container[key] for key in ("image", "entryPoint", "command", "environment")):
            return str(present["taskDefinitionArn"])
    except ClientError as error:
        if error_code(error) != "ClientException":
            raise
    made = client.register_task_definition(family=family, **definition)
    log.info("bootstrap task recorded", extra={"family": family})
    return str(made["taskDefinition"]["taskDefinitionArn"])


def ensure_log_group(aws: Aws, name: str, days: int) -> None:
    client = aws.client("logs")
    try:
        client.create_log_group(logGroupName=name)
    except ClientError as error:
        if error_code(error) != "ResourceAlreadyExistsException":
            raise
        return
    client.put_retention_policy(logGroupName=name, retentionInDays=days)

"""Outputs of roots, kept for the roots after them: JSON in the state bucket of the account that they are about.

Every account has its own bucket, so a Management Cluster's facts never lie beside the Regional Cluster's. The key names
environment and region deployment (two environments may call a region the same). There is no secret in an output.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.local.provisioner.inputs import CommonInputs, ManagementInputs
from regional.local.provisioner.records import error_code

log = logging.getLogger(__name__)


def bucket_name(account_id: str, region: str) -> str:
    return f"terraform-state-{account_id}-{region}"


def state_key(root: str, inputs: CommonInputs, suffix: str) -> str:
    parts = [inputs.environment, inputs.region_alias, root]
    if isinstance(inputs, ManagementInputs):
        parts.append(inputs.cluster_id)
    return "/".join(parts) + suffix


def load_outputs(aws: Aws, account_id: str, root: str, inputs: CommonInputs) -> dict[str, Any] | None:
    try:
        answer = aws.client("s3").get_object(
            Bucket=bucket_name(account_id, inputs.region), Key=state_key(root, inputs, ".json")
        )
    except ClientError as error:
        if error_code(error) in ("NoSuchKey", "NoSuchBucket", "404"):
            return None
        raise
    stored: dict[str, Any] = msgspec.json.decode(answer["Body"].read())
    return stored


def save_outputs(aws: Aws, account_id: str, root: str, inputs: CommonInputs, outputs: dict[str, Any]) -> None:
    if load_outputs(aws, account_id, root, inputs) == outputs:
        return
    bucket, key = bucket_name(account_id, inputs.region), state_key(root, inputs, ".json")
    ensure_bucket(aws, bucket)
    aws.client("s3").put_object(
        Bucket=bucket, Key=key, Body=json.dumps(outputs, indent=2).encode(), ContentType="application/json"
    )
    log.info("outputs stored", extra={"bucket": bucket, "key": key})


def ensure_bucket(aws: Aws, bucket: str) -> None:
    client = aws.client("s3")
    try:
        client.head_bucket(Bucket=bucket)
        return
    except ClientError as error:
        if error_code(error) not in ("404", "NoSuchBucket"):
            raise
    # us-east-1 is S3's default and must not be named.
    location = {} if aws.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    try:
        client.create_bucket(Bucket=bucket, **location)
    except ClientError as error:  # a root that runs beside us was faster
        if error_code(error) != "BucketAlreadyOwnedByYou":
            raise
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    client.put_public_access_block(
        Bucket=bucket,
        PublicAccessBlockConfiguration={
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": True,
            "RestrictPublicBuckets": True,
        },
    )
    log.info("state bucket made", extra={"bucket": bucket})

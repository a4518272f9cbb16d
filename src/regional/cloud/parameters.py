"""Parameters (SSM): facts that pipelines hand on, and the `ssm:///path` references that keep account ids out of Git."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.core.problems import UserError

SCHEME = "ssm://"


def get_parameter(aws: Aws, name: str) -> str | None:
    try:
        return str(aws.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            return None
        raise


def put_parameter(aws: Aws, name: str, value: str, *, secure: bool = False) -> bool:
    """True if something changed; an equal value makes no new version."""
    if get_parameter(aws, name) == value:
        return False
    kind = "SecureString" if secure else "String"
    aws.client("ssm").put_parameter(Name=name, Value=value, Type=kind, Overwrite=True)
    return True


def is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith(SCHEME)


def resolve(aws: Aws, value: str) -> str:
    """`ssm:///infra/x` becomes what is stored under `/infra/x`; any other text stays itself."""
    if not is_reference(value):
        return value
    name = value.removeprefix(SCHEME)
    found = get_parameter(aws, name)
    if found is None:
        raise UserError(
            f"{value} names an SSM parameter that does not exist in {aws.region}",
            hint="account ids are written by the task mint-account: has its pipeline run?",
        )
    return found


def resolve_tree(aws: Aws, value: Any) -> Any:
    """Every reference inside nested lists and mappings, as rendered Terraform inputs have them."""
    if isinstance(value, dict):
        return {key: resolve_tree(aws, item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_tree(aws, item) for item in value]
    return resolve(aws, value) if isinstance(value, str) else value

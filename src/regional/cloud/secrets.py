"""Secrets (Secrets Manager): create or update, and no new version when nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from regional.cloud.aws import Aws


def get_secret(aws: Aws, name: str) -> str | None:
    try:
        return str(aws.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])
    except ClientError as error:
        if _code(error) == "ResourceNotFoundException":
            return None
        raise


def put_secret(aws: Aws, name: str, value: str | Mapping[str, Any]) -> bool:
    """True if something changed. A mapping is stored as JSON. Safe against a twin doing the same."""
    text = value if isinstance(value, str) else msgspec.json.encode(dict(value), order="sorted").decode()
    client = aws.client("secretsmanager")
    try:
        if get_secret(aws, name) == text:
            return False
    except ClientError as error:
        if _code(error) != "InvalidRequestException":
            raise
        # Marked for deletion: its name is taken for days, so the only way to use it again is to restore it.
        client.restore_secret(SecretId=name)
    try:
        client.put_secret_value(SecretId=name, SecretString=text)
    except ClientError as error:
        if _code(error) != "ResourceNotFoundException":
            raise
        try:
            client.create_secret(Name=name, SecretString=text)
        except ClientError as race:
            if _code(race) != "ResourceExistsException":
                raise
            client.put_secret_value(SecretId=name, SecretString=text)
    return True


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])

"""Minting, secrets and parameters may be repeated at will: the second time changes nothing."""

from __future__ import annotations

import pytest

from regional.cloud.accounts import account_id_parameter, ensure_organization, mint_account
from regional.cloud.parameters import put_parameter, resolve, resolve_tree
from regional.cloud.secrets import get_secret, put_secret
from regional.core.problems import UserError

from .conftest import Host


def test_accounts_are_minted_once_and_placed_in_the_tree(host: Host) -> None:
    aws = host.central()
    assert ensure_organization(aws) == ensure_organization(aws)
    first = mint_account(aws, "local-rc", "rc@example.com", "regional/local/local-us-west-2")
    journal = (host.journal / "journal").read_bytes()
    assert mint_account(aws, "local-rc", "RC@example.com", "regional/local/local-us-west-2") == first
    assert (host.journal / "journal").read_bytes() == journal
    other = mint_account(aws, "local-mc01", "mc01@example.com", "regional/local/local-us-west-2")
    client = aws.client("organizations")
    assert other != first
    assert client.list_parents(ChildId=other)["Parents"] == client.list_parents(ChildId=first)["Parents"]
    with pytest.raises(UserError, match="belongs to account"):
        mint_account(aws, "another-name", "rc@example.com")


def test_a_secret_gets_no_new_version_for_an_equal_value(host: Host) -> None:
    aws = host.central()
    client = aws.client("secretsmanager")
    assert put_secret(aws, "maestro/server-cert", {"b": 1, "a": 2})
    assert not put_secret(aws, "maestro/server-cert", {"a": 2, "b": 1})
    assert len(client.describe_secret(SecretId="maestro/server-cert")["VersionIdsToStages"]) == 1
    assert put_secret(aws, "maestro/server-cert", {"a": 3})
    assert get_secret(aws, "maestro/server-cert") == '{"a":3}'
    client.delete_secret(SecretId="maestro/server-cert", RecoveryWindowInDays=7)
    assert put_secret(aws, "maestro/server-cert", {"a": 3})
    assert get_secret(aws, "maestro/server-cert") == '{"a":3}'
    assert get_secret(aws, "none") is None


def test_references_are_resolved_wherever_they_stand(host: Host) -> None:
    aws = host.central()
    name = account_id_parameter("local", "us-west-2", "mc01")
    assert put_parameter(aws, name, "111122223333")
    assert not put_parameter(aws, name, "111122223333")
    inputs = {"account_id": f"ssm://{name}", "tags": ["plain", f"ssm://{name}"], "count": 2}
    assert resolve_tree(aws, inputs) == {"account_id": "111122223333", "tags": ["plain", "111122223333"], "count": 2}
    with pytest.raises(UserError, match=r"ssm:///none .*does not exist"):
        resolve(aws, "ssm:///none")

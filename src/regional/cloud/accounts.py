"""Accounts are minted, not configured: one for each Regional Cluster and each Management Cluster.

The organisation's tree has one unit per environment and region, so that trust can be given by path instead of by a list
of account numbers. An account is known by its e-mail address, which AWS keeps unique; whoever is killed between asking
for an account and writing its number down finds it again by that address.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from regional.cloud.aws import Aws
from regional.core.problems import UserError

_POLL_SECONDS = 2.0
_CREATE_DEADLINE_SECONDS = 600.0


def account_id_parameter(environment: str, region: str, cluster_id: str = "") -> str:
    """Where an account's number is kept in the central account: without a cluster id, that of the region itself."""
    return "/".join(["/infra", environment, region, *([cluster_id] if cluster_id else []), "account_id"])


def ensure_organization(aws: Aws) -> str:
    """The id of the organisation that this account manages."""
    client = aws.client("organizations")
    try:
        return str(client.describe_organization()["Organization"]["Id"])
    except ClientError as error:
        if _code(error) != "AWSOrganizationsNotInUseException":
            raise
    try:
        return str(client.create_organization(FeatureSet="ALL")["Organization"]["Id"])
    except ClientError as error:
        if _code(error) != "AlreadyInOrganizationException":
            raise
        return str(client.describe_organization()["Organization"]["Id"])


def mint_account(
    aws: Aws, name: str, email: str, ou_path: str = "", *, sleep: Callable[[float], None] = time.sleep
) -> str:
    """The number of the account with this address, created if need be, under the unit `a/b/c` below the root."""
    ensure_organization(aws)
    account_id = _find_account(aws, name, email) or _create_account(aws, name, email, sleep)
    if ou_path:
        _place(aws, account_id, ensure_units(aws, ou_path))
    return account_id


def ensure_units(aws: Aws, path: str) -> str:
    """The id of the organisational unit at `path`, with all units on the way."""
    client = aws.client("organizations")
    parent = str(client.list_roots()["Roots"][0]["Id"])
    for name in [part for part in path.split("/") if part]:
        parent = _find_unit(client, parent, name) or _create_unit(client, parent, name)
    return parent


def _find_account(aws: Aws, name: str, email: str) -> str | None:
    pages = aws.client("organizations").get_paginator("list_accounts").paginate()
    for account in (account for page in pages for account in page["Accounts"]):
        if account["Email"].lower() != email.lower():
            continue
        if account["Status"] != "ACTIVE":
            raise UserError(
                f"account {account['Id']} with address {email} is {account['Status']}",
                hint="AWS never frees the address of a closed account: choose another one",
            )
        if account["Name"] != name:
            raise UserError(
                f"address {email} belongs to account {account['Id']} named {account['Name']}, not {name}",
                hint="give each account an address of its own",
            )
        return str(account["Id"])
    return None


def _create_account(aws: Aws, name: str, email: str, sleep: Callable[[float], None]) -> str:
    client = aws.client("organizations")
    status = _creation_under_way(client, name)
    if status is None:
        status = client.create_account(AccountName=name, Email=email)["CreateAccountStatus"]
    waited = 0.0
    while status["State"] == "IN_PROGRESS":
        if waited >= _CREATE_DEADLINE_SECONDS:
            raise UserError(f"account {name} is still being created after {waited:.0f} s", hint="run this again later")
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        request_id = status["Id"]
        status = client.describe_create_account_status(CreateAccountRequestId=request_id)["CreateAccountStatus"]
    if status["State"] == "SUCCEEDED":
        return str(status["AccountId"])
    if status.get("FailureReason") == "EMAIL_ALREADY_EXISTS" and (found := _find_account(aws, name, email)):
        return found  # a twin was faster
    raise UserError(f"account {name} could not be created: {status.get('FailureReason', 'no reason given')}")


def _creation_under_way(client: Any, name: str) -> dict[str, Any] | None:
    answer = client.list_create_account_status(States=["IN_PROGRESS"])
    return next((status for status in answer["CreateAccountStatuses"] if status["AccountName"] == name), None)


def _place(aws: Aws, account_id: str, unit_id: str) -> None:
    client = aws.client("organizations")
    parent = client.list_parents(ChildId=account_id)["Parents"][0]["Id"]
    if parent == unit_id:
        return
    try:
        client.move_account(AccountId=account_id, SourceParentId=parent, DestinationParentId=unit_id)
    except ClientError as error:
        if _code(error) != "DuplicateAccountException":
            raise


def _find_unit(client: Any, parent: str, name: str) -> str | None:
    pages = client.get_paginator("list_organizational_units_for_parent").paginate(ParentId=parent)
    units = (unit for page in pages for unit in page["OrganizationalUnits"])
    # The smallest id, so that twins who both created it (moto lets them) agree on one.
    return min((str(unit["Id"]) for unit in units if unit["Name"] == name), default=None)


def _create_unit(client: Any, parent: str, name: str) -> str:
    try:
        client.create_organizational_unit(ParentId=parent, Name=name)
    except ClientError as error:
        if _code(error) != "DuplicateOrganizationalUnitException":
            raise
    found = _find_unit(client, parent, name)
    assert found is not None
    return found


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])

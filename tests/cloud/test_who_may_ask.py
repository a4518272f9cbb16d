"""The look-up of secret keys is for the gateway alone; sessions belong to their account and end."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from regional.cloud.accounts import mint_account
from regional.cloud.aws import Aws, Credentials

from .conftest import TOKEN, Host


def look_up(host: Host, key: str, token: str = TOKEN) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(f"{host.url}/_regional/keys/{key}", headers={"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_look_up_needs_its_token(host: Host) -> None:
    iam = host.central().client("iam")
    iam.create_user(UserName="ada")
    key = iam.create_access_key(UserName="ada")["AccessKey"]
    status, owner = look_up(host, key["AccessKeyId"])
    assert status == 200
    assert owner["secretKey"] == key["SecretAccessKey"]
    assert owner["arn"] == "arn:aws:iam::123456789012:user/ada"
    assert look_up(host, key["AccessKeyId"], "wrong")[0] == 401
    assert look_up(host, key["AccessKeyId"], "")[0] == 401
    assert look_up(host, "AKIANOBODY")[0] == 404


def test_a_session_is_found_with_its_token_and_acts_in_its_own_account(host: Host) -> None:
    aws = host.central()
    account_id = mint_account(aws, "rc", "rc@example.com")
    inside = aws.assume(account_id)
    assert inside.account_id() == account_id != aws.account_id()
    session = inside.frozen_credentials()
    status, owner = look_up(host, session.access_key)
    assert status == 200
    assert (owner["secretKey"], owner["sessionToken"]) == (session.secret_key, session.session_token)
    assert owner["account"] == account_id
    inside.client("ssm").put_parameter(Name="/only/here", Value="x", Type="String")
    with pytest.raises(ClientError, match="ParameterNotFound"):
        aws.client("ssm").get_parameter(Name="/only/here")
    inside.close()


@pytest.mark.parametrize("service", ["sts", "ssm", "s3"])
def test_a_session_that_ended_is_nobody_rather_than_the_central_account(host: Host, service: str) -> None:
    stale = Aws(region="us-west-2", endpoint=host.url, credentials=Credentials("ASIA" + "X" * 16, "x", "x"), environ={})
    calls = {
        "sts": lambda: stale.client("sts").get_caller_identity(),
        "ssm": lambda: stale.client("ssm").get_parameter(Name="/a"),
        "s3": lambda: stale.client("s3").list_buckets(),
    }
    with pytest.raises(ClientError) as refused:
        calls[service]()
    assert refused.value.response["Error"]["Code"] == "ExpiredToken"
    stale.close()


def test_the_account_of_a_call_is_not_the_callers_to_choose(host: Host) -> None:
    request = urllib.request.Request(
        host.url,
        data=b"Action=GetCallerIdentity&Version=2011-06-15",
        headers={
            "x-moto-account-id": "999999999999",
            "authorization": "AWS4-HMAC-SHA256 Credential=AKIACENTRAL/20260101/us-west-2/sts/aws4_request",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert b"<Account>123456789012</Account>" in answer.read()


def test_motos_own_control_surface_is_not_served(host: Host) -> None:
    host.central().client("ssm").put_parameter(Name="/kept", Value="x", Type="String")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{host.url}/moto-api/reset", method="POST"))
    refused.value.close()
    assert host.central().client("ssm").get_parameter(Name="/kept")["Parameter"]["Value"] == "x"

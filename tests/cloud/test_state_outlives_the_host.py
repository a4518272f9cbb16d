"""moto forgets; the host around it must not: after kill -9 every id, key and value is what it was."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from regional.cloud.accounts import mint_account
from regional.cloud.aws import Aws, Credentials
from regional.cloud.parameters import put_parameter
from regional.cloud.secrets import put_secret

from .conftest import Host


def snapshot(aws: Aws, account_id: str, session: Credentials) -> dict[str, Any]:
    inside = Aws(region=aws.region, endpoint=aws.endpoint, credentials=session, environ={})
    organizations, secrets, iam = aws.client("organizations"), inside.client("secretsmanager"), inside.client("iam")
    described = secrets.describe_secret(SecretId="maestro/agent-cert")
    seen = {
        "organization": organizations.describe_organization()["Organization"]["Id"],
        "accounts": [account["Id"] for account in organizations.list_accounts()["Accounts"]],
        "units": organizations.list_parents(ChildId=account_id)["Parents"],
        "identity": inside.client("sts").get_caller_identity()["Arn"],
        "secret": secrets.get_secret_value(SecretId="maestro/agent-cert")["SecretString"],
        "secretArn": described["ARN"],
        "versions": described["VersionIdsToStages"],
        "keys": [key["AccessKeyId"] for key in iam.list_access_keys(UserName="ada")["AccessKeyMetadata"]],
        "parameter": aws.client("ssm").get_parameter(Name="/infra/local/us-west-2/account_id")["Parameter"]["ARN"],
        "vpcs": [vpc["VpcId"] for vpc in inside.client("ec2").describe_vpcs()["Vpcs"]],
        "object": aws.client("s3").get_object(Bucket="state", Key="a b/ä.json")["Body"].read(),
    }
    inside.close()
    return seen


def test_everything_comes_back_as_it_was_after_kill_9(host: Host) -> None:
    aws = host.central()
    account_id = mint_account(aws, "local-mc01", "mc01@example.com", "regional/local/local-us-west-2")
    inside = aws.assume(account_id)
    session = inside.frozen_credentials()
    for value in ({"certificate": "a"}, {"certificate": "b"}):
        put_secret(inside, "maestro/agent-cert", value)
    inside.client("iam").create_user(UserName="ada")
    created = inside.client("iam").create_access_key(UserName="ada")["AccessKey"]
    put_parameter(aws, "/infra/local/us-west-2/account_id", account_id)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="state", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="state", Key="a b/ä.json", Body=b"{}")
    inside.close()
    before = snapshot(aws, account_id, session)
    assert before["keys"] == [created["AccessKeyId"]]

    for _ in range(2):
        host.restart()
        assert snapshot(aws, account_id, session) == before
    assert '"msg":"replayed call ended otherwise"' not in host.log.read_text()


def test_an_unfinished_entry_at_the_end_is_dropped_and_the_rest_kept(host: Host) -> None:
    aws = host.central()
    put_parameter(aws, "/kept", "yes")
    host.kill()
    journal = host.journal / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[-100:-10])
    host.start()
    assert aws.client("ssm").get_parameter(Name="/kept")["Parameter"]["Value"] == "yes"
    put_parameter(aws, "/later", "also")
    host.restart()
    assert aws.client("ssm").get_parameter(Name="/later")["Parameter"]["Value"] == "also"


def test_no_acknowledged_write_is_lost_when_killed_in_the_middle_of_many(host: Host) -> None:
    aws = host.central()
    ssm = aws.client("ssm")
    acknowledged: list[str] = []
    enough, killing = 60, threading.Lock()

    def write(worker: int) -> None:
        for number in range(10_000):
            name = f"/many/{worker}/{number}"
            try:
                host_client[worker].put_parameter(Name=name, Value="x", Type="String")
            except Exception:
                return
            acknowledged.append(name)
            # Not by the number alone: of two that are noted at the same moment neither may see it. Killed once.
            if len(acknowledged) >= enough and killing.acquire(blocking=False):
                host.kill()

    from botocore.config import Config
    from botocore.session import Session

    session = Session()
    session.set_credentials("AKIACENTRAL", "central")
    impatient = Config(retries={"total_max_attempts": 1}, connect_timeout=2)
    host_client = [
        session.create_client("ssm", region_name="us-west-2", endpoint_url=host.url, config=impatient) for _ in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    for client in host_client:
        client.close()
    host.start()
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path="/many", Recursive=True)
    kept = {parameter["Name"] for page in pages for parameter in page["Parameters"]}
    assert len(acknowledged) >= enough
    assert set(acknowledged) <= kept


def test_the_journal_is_private(host: Host) -> None:
    put_secret(host.central(), "a", "b")
    assert {oct(path.stat().st_mode & 0o777) for path in host.journal.iterdir()} == {"0o600"}
    assert oct(host.journal.stat().st_mode & 0o777) == "0o700"


def test_one_failing_call_stops_nothing(host: Host) -> None:
    aws = host.central()
    with pytest.raises(ClientError):
        aws.client("secretsmanager").get_secret_value(SecretId="none")
    with pytest.raises(ClientError):
        aws.client("iam").attach_user_policy(UserName="nobody", PolicyArn="arn:aws:iam::aws:policy/None")
    put_parameter(aws, "/still", "here")
    host.restart()
    assert json.loads(_get(host, "/_regional/healthz"))["mismatches"] == 0


def _get(host: Host, path: str) -> bytes:
    import urllib.request

    with urllib.request.urlopen(host.url + path) as answer:
        return bytes(answer.read())

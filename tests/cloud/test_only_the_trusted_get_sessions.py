"""A session counts for what it is worth: the role exists, it trusts the caller, and the caller proved who it is."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from botocore.exceptions import ClientError

from regional.cloud.accounts import mint_account
from regional.cloud.aws import ACCESS_ROLE, Aws, Credentials
from regional.cloud.host.calls import Call
from regional.cloud.host.journal import MAGIC, frame, read_frames
from regional.cloud.host.trust import Caller, allows

from .conftest import Host
from .test_who_may_ask import look_up


class Tenant:
    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self.account = mint_account(host.central(), name, f"{name}@example.com")
        self.inside = host.central().assume(self.account)
        iam = self.inside.client("iam")
        iam.create_user(UserName="owner")
        made = iam.create_access_key(UserName="owner")["AccessKey"]
        self.key = Credentials(made["AccessKeyId"], made["SecretAccessKey"])
        self.owner = self.door(self.key)
        self._opened = [self.inside, self.owner]

    def door(self, key: Credentials) -> Aws:
        return Aws(region="us-west-2", endpoint=self._host.url, credentials=key, environ={})

    def role(self, name: str, principal: Any, **statement: Any) -> str:
        allow = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **statement}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        made = self.owner.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)
        return str(made["Role"]["Arn"])

    def close(self) -> None:
        for door in self._opened:
            door.close()


@pytest.fixture
def tenants(host: Host) -> Iterator[tuple[Tenant, Tenant]]:
    both = Tenant(host, "victim"), Tenant(host, "stranger")
    yield both
    for tenant in both:
        tenant.close()


def assume(door: Aws, role_arn: str, **more: str) -> str:
    answer = door.client("sts").assume_role(RoleArn=role_arn, RoleSessionName="me", **more)
    return str(answer["Credentials"]["AccessKeyId"])


def refused(door: Aws, role_arn: str, **more: str) -> str:
    with pytest.raises(ClientError) as error:
        assume(door, role_arn, **more)
    return str(error.value.response["Error"]["Code"])


def access_role(account: str) -> str:
    return f"arn:aws:iam::{account}:role/{ACCESS_ROLE}"


def test_nobody_enters_an_account_that_does_not_trust_him(host: Host, tenants: tuple[Tenant, Tenant]) -> None:
    victim, stranger = tenants
    assert refused(stranger.owner, access_role(victim.account)) == "AccessDenied"
    assert refused(stranger.inside, access_role(victim.account)) == "AccessDenied"
    assert refused(stranger.owner, f"arn:aws:iam::{victim.account}:role/none") == "AccessDenied"
    assert refused(stranger.owner, "arn:aws:iam::999999999999:role/none") == "AccessDenied"
    assert refused(stranger.owner, "arn:aws:iam::123456789012:role/<b>&") == "AccessDenied"
    assert refused(host.central(), f"arn:aws:iam::{victim.account}:role/none") == "AccessDenied"
    closed = victim.role("closed", {"Service": "ec2.amazonaws.com"})
    assert refused(stranger.owner, closed) == "AccessDenied"
    assert json.loads(_health(host))["status"] == "ok"


def test_whom_a_role_trusts_gets_in_and_that_outlives_a_restart(host: Host, tenants: tuple[Tenant, Tenant]) -> None:
    victim, stranger = tenants
    arn = f"arn:aws:iam::{stranger.account}"
    session = f"arn:aws:sts::{stranger.account}:assumed-role/{ACCESS_ROLE}/regional"
    keys = [
        assume(stranger.owner, victim.role("number", {"AWS": stranger.account})),
        assume(stranger.owner, victim.role("root", {"AWS": [f"{arn}:root"]})),
        assume(stranger.owner, victim.role("user", {"AWS": f"{arn}:user/owner"})),
        assume(stranger.owner, victim.role("all", "*")),
        assume(stranger.inside, victim.role("role", {"AWS": f"{arn}:role/{ACCESS_ROLE}"})),
        assume(stranger.inside, victim.role("session", {"AWS": session})),
    ]
    wants_id = victim.role("id", {"AWS": "*"}, Condition={"StringEquals": {"sts:ExternalId": "seven"}})
    assert refused(stranger.owner, wants_id) == refused(stranger.owner, wants_id, ExternalId="eight") == "AccessDenied"
    keys.append(assume(stranger.owner, wants_id, ExternalId="seven"))
    assert refused(stranger.owner, victim.role("other", {"AWS": f"{arn}:user/other"})) == "AccessDenied"
    host.restart()
    assert [look_up(host, key)[1]["account"] for key in keys] == [victim.account] * len(keys)


def test_a_key_without_its_secret_gives_nothing(host: Host, tenants: tuple[Tenant, Tenant]) -> None:
    victim, _ = tenants
    mine = victim.role("mine", {"AWS": victim.account})
    session = victim.inside.frozen_credentials()
    doors = {
        "SignatureDoesNotMatch": [
            Credentials(victim.key.access_key, "guessed"),
            Credentials(session.access_key, "guessed", session.session_token),
        ],
        "InvalidClientTokenId": [Credentials(session.access_key, session.secret_key, "guessed")],
    }
    for code, guesses in doors.items():
        for guess in guesses:
            door = victim.door(guess)
            assert refused(door, mine) == code
            with pytest.raises(ClientError, match=code):
                door.client("iam").create_access_key(UserName="owner")
            door.close()
    assert look_up(host, assume(victim.owner, mine))[0] == 200


def test_a_key_that_was_deleted_or_switched_off_is_not_the_central_accounts(
    host: Host, tenants: tuple[Tenant, Tenant]
) -> None:
    victim, stranger = tenants
    iam = stranger.inside.client("iam")
    iam.update_access_key(UserName="owner", AccessKeyId=stranger.key.access_key, Status="Inactive")
    assert refused(stranger.owner, access_role(victim.account)) == "InvalidClientTokenId"
    iam.delete_access_key(UserName="owner", AccessKeyId=stranger.key.access_key)
    assert refused(stranger.owner, access_role(victim.account)) == "InvalidClientTokenId"


def test_a_request_that_reads_two_ways_gives_no_session(host: Host, tenants: tuple[Tenant, Tenant]) -> None:
    """The role that was looked at must be the role of the session."""
    victim, stranger = tenants
    mine = stranger.role("mine", {"AWS": stranger.account})
    wanted = urllib.parse.urlencode({"RoleArn": access_role(victim.account)})
    form = urllib.parse.urlencode({"Action": "AssumeRole", "Version": "2011-06-15", "RoleSessionName": "me"})
    given = urllib.parse.urlencode({"RoleArn": mine})
    for query, body in ((f"?{wanted}", f"{form}&{given}"), ("", f"{form}&{given}&{wanted}")):
        answer = _post(host, stranger.key, f"/{query}", body)
        assert victim.account not in answer
    for body in (f"{form}&{wanted}", f"{form}&{wanted}&{given}"):
        assert "<Code>AccessDenied</Code>" in _post(host, stranger.key, "/", body)


def test_identities_that_nobody_vouches_for_get_no_session(host: Host, tenants: tuple[Tenant, Tenant]) -> None:
    victim, _ = tenants
    role = victim.role("web", {"AWS": "*"})
    with pytest.raises(ClientError) as error:
        host.central().client("sts").assume_role_with_web_identity(
            RoleArn=role, RoleSessionName="me", WebIdentityToken="made up"
        )
    assert error.value.response["Error"]["Code"] == "AccessDenied"


def test_sessions_in_a_journal_of_old_load_but_prove_nothing(host: Host) -> None:
    aws = host.central()
    account = mint_account(aws, "old", "old@example.com")
    inside = aws.assume(account)
    session = inside.frozen_credentials()
    assert look_up(host, session.access_key)[0] == 200
    host.kill()
    path = host.journal / "journal"
    header, *entries = read_frames(path.read_bytes()[len(MAGIC) :])
    place = Call.__struct_fields__.index("session_proven")
    old = [msgspec.msgpack.encode(msgspec.msgpack.decode(entry)[:place]) for entry in entries]
    path.write_bytes(MAGIC + b"".join(map(frame, [header, *old])))
    host.start()
    assert json.loads(_health(host))["mismatches"] == 0
    assert inside.account_id() == account
    assert look_up(host, session.access_key)[0] == 404
    assert look_up(host, assume(aws, access_role(account)))[0] == 200
    inside.close()


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Deny", "Principal": {"AWS": "1"}, "Action": "sts:*"},
        {"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole", "Condition": {"Bool": {"x": "true"}}},
        {"Effect": "Deny", "NotPrincipal": {"AWS": "2"}, "Action": "sts:AssumeRole"},
    ],
)
def test_a_denial_wins(statement: dict[str, Any]) -> None:
    caller = Caller("1", "arn:aws:iam::1:user/a", frozenset({"1"}))
    allow = {"Effect": "Allow", "Principal": {"AWS": "1"}, "Action": ["sts:TagSession", "sts:AssumeRole"]}
    assert allows({"Statement": allow}, caller, "")
    assert not allows({"Statement": [allow, statement]}, caller, "")


@pytest.mark.parametrize(
    "change",
    [
        {"Condition": {"IpAddress": {"aws:SourceIp": "0.0.0.0/0"}}},
        {"Condition": {"StringEquals": {"sts:ExternalId": "7", "aws:PrincipalOrgID": "o"}}},
        {"Action": "sts:TagSession"},
        {"Principal": {"Federated": "*"}},
        {"Principal": {"AWS": ["2", 7, None]}},
        {"Principal": None},
    ],
)
def test_what_is_not_understood_allows_nothing(change: dict[str, Any]) -> None:
    caller = Caller("1", "arn:aws:iam::1:user/a", frozenset({"1"}))
    allow = {"Effect": "Allow", "Principal": {"AWS": "1"}, "Action": "sts:AssumeRole", **change}
    assert not allows({"Statement": [allow, "nonsense"]}, caller, "7")
    assert not allows(["nonsense"], caller, "7")


def _post(host: Host, key: Credentials, path: str, body: str) -> str:
    request = AWSRequest("POST", host.url + path, data=body.encode())
    request.headers["content-type"] = "application/x-www-form-urlencoded"
    SigV4Auth(BotocoreCredentials(key.access_key, key.secret_key), "sts", "us-west-2").add_auth(request)
    prepared = urllib.request.Request(host.url + path, body.encode(), dict(request.headers.items()))
    try:
        with urllib.request.urlopen(prepared) as answer:
            return bytes(answer.read()).decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def _health(host: Host) -> bytes:
    with urllib.request.urlopen(f"{host.url}/_regional/healthz") as answer:
        return bytes(answer.read())

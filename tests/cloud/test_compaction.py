"""The journal may only forget what nobody can see any more."""

from __future__ import annotations

import json

from regional.cloud.host.calls import Call, describe
from regional.cloud.host.compaction import needed


def call(service: str, action: str, body: dict[str, object], **more: object) -> Call:
    headers = [
        ("authorization", f"AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-west-2/{service}/aws4_request, x"),
        ("x-amz-target", f"{service}.{action}"),
    ]
    made = Call("POST", "/", "", headers, json.dumps(body).encode(), b"seed", "1", 0.0, 200)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def s3(method: str, path: str, query: str = "", **headers: str) -> Call:
    known = [("authorization", "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-west-2/s3/aws4_request, x")]
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Call(method, path, query, known + named, b"", b"seed", "1", 0.0, 200)


def kept(*calls: Call, now: float = 1000.0) -> list[int]:
    remaining = needed(list(calls), now)
    return [index for index, one in enumerate(calls) if any(one is other for other in remaining)]


def test_expired_sessions_go_and_valid_ones_stay() -> None:
    old = call("sts", "AssumeRole", {}, session_key="ASIA1", session_until=999.0)
    new = call("sts", "AssumeRole", {}, session_key="ASIA2", session_until=1001.0)
    assert kept(old, new) == [1]


def test_only_a_secrets_current_and_previous_values_stay() -> None:
    values = [call("secretsmanager", "PutSecretValue", {"SecretId": "a", "SecretString": str(n)}) for n in range(5)]
    create = call("secretsmanager", "CreateSecret", {"Name": "a", "SecretString": "0"})
    assert kept(create, *values) == [0, 4, 5]


def test_a_call_that_is_not_understood_protects_what_came_before() -> None:
    values = [call("secretsmanager", "PutSecretValue", {"SecretId": "a", "SecretString": str(n)}) for n in range(2)]
    staged = call("secretsmanager", "UpdateSecretVersionStage", {"SecretId": "a", "MoveToVersionId": "v"})
    delete = call("secretsmanager", "DeleteSecret", {"SecretId": "a", "ForceDeleteWithoutRecovery": True})
    assert kept(*values, staged, *values) == [0, 1, 2, 3, 4]
    assert kept(values[0], staged, delete) == [0, 1, 2]


def test_a_parameters_puts_stay_because_they_count_versions_until_it_is_deleted() -> None:
    puts = [call("ssm", "PutParameter", {"Name": "/a", "Value": str(n)}) for n in range(3)]
    delete = call("ssm", "DeleteParameter", {"Name": "/a"})
    again = call("ssm", "PutParameter", {"Name": "/a", "Value": "new"})
    assert kept(*puts) == [0, 1, 2]
    assert kept(*puts, delete, again) == [4]


def test_the_same_name_elsewhere_is_something_else() -> None:
    put = call("ssm", "PutParameter", {"Name": "/a"})
    elsewhere = call("ssm", "DeleteParameter", {"Name": "/a"}, account="2")
    assert 0 in kept(put, elsewhere)


def test_overwritten_objects_go_unless_the_bucket_has_versions_or_a_copy_looked_at_them() -> None:
    first, second, delete = s3("PUT", "/b/k"), s3("PUT", "/b/k"), s3("DELETE", "/b/k")
    assert kept(s3("PUT", "/b"), first, second) == [0, 2]
    assert kept(first, delete, second) == [2]
    assert kept(s3("PUT", "/b", "versioning"), first, second) == [0, 1, 2]
    assert kept(first, s3("PUT", "/b/other", x_amz_copy_source="b/k"), second) == [0, 1, 2]
    assert kept(first, s3("PUT", "/b/k", if_match="etag"), second) == [0, 1, 2]


def test_reads_are_told_from_changes_in_every_protocol() -> None:
    def query(action: str) -> Call:
        form = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")]
        return Call("POST", "/", "", form, f"Action={action}&Version=1".encode(), b"", "", 0.0)

    assert not describe(call("ssm", "GetParameter", {})).mutating
    assert describe(call("ssm", "PutParameter", {})).mutating
    assert not describe(query("DescribeVpcs")).mutating
    assert describe(query("AssumeRole")).mutating
    assert describe(query("GetSessionToken")).mutating
    assert not describe(s3("GET", "/b/k")).mutating
    assert describe(s3("POST", "/b/k", "uploads")).mutating
    rpc = Call("POST", "/service/GraniteServiceVersion20100801/operation/PutMetricData", "", [], b"", b"", "", 0.0)
    assert describe(rpc).mutating

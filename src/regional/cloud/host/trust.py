"""Who may become whom: what AWS asks before it hands out a session, and moto does not.

moto gives anybody a session of any role in any account, whether the role exists or not, and looks at no signature. With
a session one can make users and keys in its account, and the gateway believes keys: so all of it must be asked before.

A key that the host never issued belongs to the central account, as with moto. It may do what the owner of an
organisation can do without asking an account's administrator: enter the accounts that the organisation made.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from regional.cloud.aws import ACCESS_ROLE
from regional.cloud.host.calls import Call
from regional.cloud.host.keys import issued

Refused = tuple[str, str]  # AWS's code and a message
_ROLE = re.compile(r"arn:aws:iam::(\d{12}):role/(?:[\x21-\x7e]+/)?([\w+=,.@-]{1,64})", re.ASCII)
_ISSUED = re.compile(r"AKIA[A-Z0-9]{16}")  # the shape of keys that the host hands out
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([A-Za-z0-9]+)/(\d{8})/([^/,\s]+)/([^/,\s]+)/aws4_request,\s*"
    r"SignedHeaders=([a-z0-9;_.-]+),\s*Signature=([0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
_SKEW_SECONDS = 900.0


class Caller(msgspec.Struct, frozen=True):
    account: str
    arn: str
    principals: frozenset[str]  # all names under which a trust policy may mean it
    issued: bool = True  # False: a key that the host does not know


class Key(msgspec.Struct, frozen=True):
    """One that the host issued. Without a caller it is switched off, or its owner is gone."""

    secret: str
    session_token: str
    caller: Caller | None

    def __repr__(self) -> str:
        return f"Key({self.caller})"


def find_key(access_key: str) -> Key | None:
    found = issued(access_key)
    if found is None:
        return None
    account, secret = found.account, found.key.secret_access_key
    if found.role is not None:
        return Key(secret, found.role.session_token, _caller(account, found.role.arn, found.role.role_arn))
    return Key(secret, "", _caller(account, found.user.arn) if found.user is not None else None)


def role_of_session(access_key: str) -> str:
    """The role that a session really has, in moto's own words."""
    from moto.sts.models import sts_backends

    backends: Iterator[tuple[str, str, Any]] = sts_backends.iter_backends()
    for _, _, sts in backends:
        if (role := sts.get_assumed_role_from_access_key(access_key)) is not None:
            return str(role.role_arn)
    return ""


def central(account: str) -> Caller:
    root = f"arn:aws:iam::{account}:root"
    return Caller(account, root, frozenset({account, root}), issued=False)


def why_not_assume(access_key: str, caller: Caller, request: dict[str, str]) -> Refused | None:
    """None if AWS would hand this caller a session of the role it asks for."""
    if not caller.issued and _ISSUED.fullmatch(access_key):  # deleted, most likely: not the central account's
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    wanted = request.get("RoleArn", "")
    refused = "AccessDenied", f"User: {caller.arn} is not authorized to perform: sts:AssumeRole on resource: {wanted}"
    match = _ROLE.fullmatch(wanted)
    if match is None or (not caller.issued and match[2] != ACCESS_ROLE):
        return refused
    policy = _trust_policy(match[1], wanted)
    return None if policy is not None and allows(policy, caller, request.get("ExternalId", "")) else refused


def allows(policy: Any, caller: Caller, external_id: str) -> bool:
    """What is not understood gives nothing: an Allow with such a condition does not count, a Deny does."""
    statements = _many(policy.get("Statement")) if isinstance(policy, dict) else []
    allowed = False
    for statement in statements:
        if not isinstance(statement, dict):
            continue
        if statement.get("Effect") == "Allow":
            allowed = allowed or (_is_meant(statement, caller) and _holds(statement.get("Condition"), external_id))
        elif "NotPrincipal" in statement or "NotAction" in statement or _is_meant(statement, caller):
            return False
    return allowed


def why_not_signed(call: Call, sent: Sequence[tuple[str, str]], key: Key, now: float) -> Refused | None:
    """None if the call was signed with this key, as a whole and just now. `sent` are all headers, names lower-case."""
    mismatch = "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
    headers: dict[str, str] = {}
    for name, value in sent:
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        return "IncompleteSignature", "The request must be signed with the Authorization header."
    _, day, region, service, names, signature = match.groups()
    signed = names.split(";")
    stamp = headers.get("x-amz-date", "")
    try:
        age = now - datetime.strptime(stamp, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return "IncompleteSignature", "The request must have a valid X-Amz-Date header."
    if abs(age) > _SKEW_SECONDS or stamp[:8] != day:
        return "SignatureDoesNotMatch", "Signature expired: the request's date is not within 15 minutes of now."
    if key.session_token and not _same(headers.get("x-amz-security-token", ""), key.session_token):
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    payload = hashlib.sha256(call.body).hexdigest()
    complete = {"host", "x-amz-date"} <= set(signed) <= headers.keys()
    if not complete or headers.get("x-amz-content-sha256", payload) != payload:
        return mismatch
    expected = _signature(call, key.secret, stamp, region, service, {name: headers[name] for name in signed})
    return None if _same(signature, expected) else mismatch


def _signature(call: Call, secret: str, stamp: str, region: str, service: str, signed: dict[str, str]) -> str:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = f"http://{signed['host']}{call.path}" + (f"?{call.query}" if call.query else "")
    if urlsplit(url).netloc != signed["host"]:
        return ""
    signer = SigV4Auth(Credentials("", secret), service, region)
    request = AWSRequest(call.method, url, headers=signed, data=call.body)
    request.context["timestamp"] = stamp
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


def _same(given: str, right: str) -> bool:
    return bool(right) and hmac.compare_digest(given.encode(), right.encode())


def _caller(account: str, arn: str, role_arn: str = "") -> Caller:
    names = {account, f"arn:aws:iam::{account}:root", arn, role_arn or arn}
    return Caller(account, arn, frozenset(names))


def _trust_policy(account: str, role_arn: str) -> Any:
    from moto.iam.models import iam_backends

    if account not in iam_backends:  # looking would make it
        return None
    iam: Any = iam_backends[account]["aws"]
    role = next((role for role in iam.get_roles() if role.arn == role_arn), None)
    try:
        return msgspec.json.decode(role.assume_role_policy_document) if role is not None else None
    except (msgspec.DecodeError, TypeError):
        return None


def _is_meant(statement: dict[str, Any], caller: Caller) -> bool:
    actions = {str(action).lower() for action in _many(statement.get("Action"))}
    if not actions & {"sts:assumerole", "sts:*", "*"}:
        return False
    principal = statement.get("Principal")
    named = _many(principal.get("AWS")) if isinstance(principal, dict) else [principal]
    return any(name == "*" or name in caller.principals for name in named if isinstance(name, str))


def _holds(condition: Any, external_id: str) -> bool:
    if not condition:
        return True
    if not isinstance(condition, dict) or set(condition) != {"StringEquals"}:
        return False
    equals = condition["StringEquals"]
    if not isinstance(equals, dict) or {str(name).lower() for name in equals} != {"sts:externalid"}:
        return False
    return all(external_id in _many(value) for value in equals.values()) and external_id != ""


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]

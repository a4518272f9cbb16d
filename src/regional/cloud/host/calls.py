"""What an AWS call is, whoever made it: which service and action, and whether it changes anything.

AWS speaks several protocols on one port; the action is in a header (JSON), the body or query (Query), the path (RPC
v2) or only in method and path (REST). A call that cannot be told to be a read counts as a change: at worst the journal
keeps one entry too many.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

import msgspec

_CREDENTIAL = re.compile(r"Credential=([A-Za-z0-9]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_RPC_PATH = re.compile(r"^/service/[^/]+/operation/([A-Za-z0-9]+)$")
_READ = re.compile(
    r"^(Get|List|Describe|BatchGet|BatchDescribe|Head|Search|Query|Scan|Select|Lookup|Check|Validate|Simulate|"
    r"Preview|Estimate|Filter|Poll|Test|TransactGet|Decode|GenerateDataKey|GenerateRandom|GenerateCredentialReport|"
    r"Encrypt|Decrypt|ReEncrypt|Verify|Sign)(?![a-z])"
)
# These hand out credentials that must stay valid over a restart, or only look like reads.
_CHANGES = frozenset({"GetSessionToken", "GetFederationToken", "TestInvokeMethod", "SignalResource"})
SESSION_ACTIONS = frozenset({"AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity"})
# Neither state nor meaning for moto; the session token is a secret we need not keep.
_DROPPED_HEADERS = frozenset(
    {
        "connection",
        "transfer-encoding",
        "content-length",
        "user-agent",
        "accept-encoding",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "expect",
        "x-amz-security-token",
        "x-moto-account-id",
    }
)


class Call(msgspec.Struct, array_like=True):
    """A call as it is executed, live and on replay alike: same input, same seed, same outcome."""

    method: str
    path: str  # percent-encoded, as sent
    query: str
    headers: list[tuple[str, str]]  # lower-case names
    body: bytes
    seed: bytes
    account: str  # resolved when first executed: its session may have expired by the time of a replay
    time: float
    status: int = 0
    session_key: str = ""  # access key that this call handed out, and until when it is good
    session_until: float = 0.0
    session_proven: bool = False  # whoever got it was trusted by the role; journals of old do not say

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class Described(msgspec.Struct, frozen=True):
    service: str  # signing name: secretsmanager, ssm, sts, s3, …
    region: str
    access_key: str
    action: str  # "" for REST calls
    protocol: str  # json, query, rpc, rest
    mutating: bool


def sent_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def kept_headers(sent: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in sent if name not in _DROPPED_HEADERS]


def describe(call: Call) -> Described:
    access_key, region, service = _credential(call)
    action, protocol = _action(call)
    if protocol == "rest":
        mutating = call.method not in ("GET", "HEAD", "OPTIONS")
    else:
        mutating = action in _CHANGES or not _READ.match(action)
    return Described(service, region, access_key, action, protocol, mutating)


def _credential(call: Call) -> tuple[str, str, str]:
    match = _CREDENTIAL.search(call.header("authorization"))
    if match is None:  # a presigned URL
        match = _CREDENTIAL.search("Credential=" + (_first(call.query, "X-Amz-Credential") or ""))
    return (match[1], match[2], match[3].lower()) if match else ("", "", "")


def _action(call: Call) -> tuple[str, str]:
    if target := call.header("x-amz-target"):
        return target.rpartition(".")[2], "json"
    if match := _RPC_PATH.match(call.path):
        return match[1], "rpc"
    is_form = call.header("content-type").startswith("application/x-www-form-urlencoded")
    if is_form and (action := _first(call.body.decode("latin-1"), "Action")):
        return action, "query"
    if action := _first(call.query, "Action"):
        return action, "query"
    return "", "rest"


def _first(query: str, name: str) -> str | None:
    return parse_qs(query).get(name, [None])[0] if name in query or "%" in query else None


def form(call: Call) -> dict[str, str]:
    """Parameters of a Query call, first value each."""
    text = call.body.decode() if call.body else call.query
    return {name: values[0] for name, values in parse_qs(text).items()}


def json_body(call: Call) -> dict[str, object]:
    try:
        return msgspec.json.decode(call.body or b"{}", type=dict[str, object])
    except msgspec.MsgspecError:
        return {}


def bucket_and_key(call: Call) -> tuple[str, str]:
    bucket, _, key = call.path.lstrip("/").partition("/")
    return unquote(bucket), unquote(key)


def refusal(described: Described, code: str, message: str) -> tuple[int, str, bytes]:
    """(status, content type, body) in the dialect that the caller's SDK understands."""
    if described.protocol in ("json", "rpc"):
        return 400, "application/x-amz-json-1.1", msgspec.json.encode({"__type": code, "message": message})
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    if described.protocol == "query":
        return 403, "text/xml", f"<ErrorResponse>{error}<RequestId>regional</RequestId></ErrorResponse>".encode()
    if described.service == "s3":
        return 403, "application/xml", error.encode()
    return 403, "application/json", msgspec.json.encode({"__type": code, "message": message})

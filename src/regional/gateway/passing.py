"""Which headers pass the edge, in both directions, and which the edge adds itself."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from regional.cloud.host.keys import KeyOwner
from regional.gateway.sigv4 import Headers

SECRET_HEADER = "X-Gateway-Secret"

# Identity is the edge's to say. An underscore reads like a hyphen to some servers, so such names never pass.
_OURS = ("x-amz", "x-gateway", "x-forwarded", "x-tenant", "x-system", "x-actor", "x-real-ip", "forwarded")
# About one connection (RFC 9110), or meant for the edge alone.
_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
    | {"proxy-authenticate", "proxy-authorization", "host", "authorization", "content-length", "x-request-id"}
)
_NOT_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "trailer", "date", "server"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def request_id_of(headers: Headers) -> str:
    """The client's own, if it is one that logs can hold; else a new one."""
    given = [value.decode("latin-1") for name, value in headers if name == b"x-request-id"]
    return given[0] if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) else str(uuid.uuid4())


def upstream_headers(
    headers: Headers, owner: KeyOwner, *, source_ip: str, request_id: str, secret: str
) -> list[tuple[str, str]]:
    named = b",".join(value for name, value in headers if name == b"connection").decode("latin-1").lower()
    dropped = _HOP | {token.strip() for token in named.split(",")}
    kept = [
        (name, value.decode("latin-1"))
        for name, value in ((raw.decode("latin-1").lower(), value) for raw, value in headers)
        if name not in dropped and "_" not in name and not name.startswith(_OURS)
    ]
    return [
        *kept,
        ("X-Amz-Account-Id", owner.account),
        ("X-Amz-Caller-Arn", owner.arn),
        ("X-Amz-User-Id", owner.user_id),
        ("X-Amz-Source-Ip", source_ip),
        ("X-Amz-Request-Id", request_id),
        ("X-Request-Id", request_id),
        ("X-Forwarded-For", source_ip),
        ("X-Forwarded-Proto", "https"),
        (SECRET_HEADER, secret),
    ]


def response_headers(headers: Iterable[tuple[str, str]], request_id: str) -> list[tuple[bytes, bytes]]:
    kept = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers
        if name.lower() not in _NOT_BACK and name.lower() not in ("x-request-id", "x-amzn-requestid")
    ]
    return [*kept, *identifying(request_id)]


def identifying(request_id: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-amzn-requestid", request_id.encode()), (b"x-request-id", request_id.encode())]
